//! Advice of `headstart faults` on what the kernel does with files on a disk.

use crate::command::headstart;
use headstart_testing::{disk_dir, python, root_or_skip, skip, write_synced};
use serde_json::Value;
use std::path::Path;

/// Maps a file as code or not (1) and touches a byte of each page upwards or downwards (2), after its
/// pages were dropped, filled by huge pages, or left (3).
const WALK: &str = "
import mmap, os, sys
path, kind, way, state = sys.argv[1:]
fd = os.open(path, os.O_RDONLY)
size = os.fstat(fd).st_size
if state != 'left':
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
prot = mmap.PROT_READ | (mmap.PROT_EXEC if kind == 'code' else 0)
if state == 'huge':
    whole = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    whole.madvise(14)
    for at in range(0, size, 2 << 20):
        whole[at]
    sys.exit()
memory = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=prot)
pages = range(0, size, 4096)
for at in pages if way == 'up' else reversed(pages):
    memory[at]
";

/// The document of a walk.
fn walk(python: &str, file: &Path, [kind, way, state]: [&str; 3]) -> Value {
    let words = ["faults", "-q", "--json", "-", "--", python, "-I", "-S", "-c", WALK];
    let output = headstart(&[&words[..], &[file.to_str().unwrap(), kind, way, state]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The advice of a rule on a file.
fn advice<'a>(document: &'a Value, rule: &str, file: &Path) -> Option<&'a Value> {
    let mut all = document["advice"].as_array().unwrap().iter();
    all.find(|advice| advice["rule"] == rule && advice["file"]["path"] == file.to_str().unwrap())
}

#[test]
fn code_that_is_walked_downwards_from_a_disk_is_told_from_other_walks() {
    if !root_or_skip() {
        return;
    }
    let Some(python) = python() else { return };
    let dir = disk_dir();
    let file = dir.path().join("code");
    write_synced(&file, &vec![7; 4 << 20]);
    let down = walk(&python, &file, ["code", "down", "dropped"]);
    if down["total"]["major"]["count"].as_u64() < Some(512) {
        return skip("this kernel reads code on in both directions, or the file stayed in memory");
    }
    let found = advice(&down, "backward-text", &file).unwrap_or_else(|| panic!("{down:#}"));
    assert!(found["share"].as_f64() > Some(0.02), "{found:#}");
    let prefetch = down["advice"].as_array().unwrap().iter().find(|a| a["rule"] == "prefetch");
    assert!(prefetch.is_some_and(|advice| advice["gain_ns"].as_u64() > Some(0)), "{down:#}");
    for other in [["code", "up", "dropped"], ["data", "down", "dropped"], ["code", "down", "left"]]
    {
        let document = walk(&python, &file, other);
        assert_eq!(advice(&document, "backward-text", &file), None, "{other:?}: {document:#}");
    }
}

#[test]
fn a_file_in_memory_page_by_page_gains_from_large_folios_and_one_in_huge_pages_does_not() {
    if !root_or_skip() {
        return;
    }
    let Some(python) = python() else { return };
    let dir = disk_dir();
    let file = dir.path().join("code");
    write_synced(&file, &vec![7; 16 << 20]);
    walk(&python, &file, ["code", "up", "dropped"]);
    let small = walk(&python, &file, ["code", "up", "left"]);
    walk(&python, &file, ["code", "up", "huge"]);
    let large = walk(&python, &file, ["code", "up", "left"]);
    let faults = |document: &Value| {
        let mut places = document["places"].as_array().unwrap().iter();
        places.find(|place| place["path"] == file.to_str().unwrap()).unwrap()["minor"]["count"]
            .as_u64()
            .unwrap()
    };
    if faults(&large) * 4 > faults(&small) {
        return skip("this kernel or file system maps no large folios");
    }
    let found = advice(&small, "large-folios", &file).unwrap_or_else(|| panic!("{small:#}"));
    assert!(found["command"].as_str().unwrap().contains("--large-folios"), "{found:#}");
    assert_eq!(advice(&large, "large-folios", &file), None, "{large:#}");
}
