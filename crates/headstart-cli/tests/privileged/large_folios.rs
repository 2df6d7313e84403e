//! `headstart replay --large-folios` and `run --large-folios`, on real file systems.

use crate::command::{headstart, json};
use crate::common::process::is_an_argument;
use headstart_testing::{LoopFs, disk_dir, noise, skip, undisturbed, wait_until, write_synced};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Four parts of 2 MiB and one that the file ends in.
const BYTES: usize = (8 << 20) + 123_456;
/// Maps a file and touches each of its pages; with a third argument it then waits.
const TOUCH: &str = "import mmap, sys\nwith open(sys.argv[1], 'rb') as file:\n \
     pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n \
     sum(pages[i] for i in range(0, len(pages), 4096))\n \
     print('touched', flush=True)\n \
     len(sys.argv) > 2 and sys.stdin.readline()";

/// A file system with a big file, and the pack of a program that maps it.
fn learned(kind: &'static str) -> Option<(LoopFs, std::path::PathBuf, String, tempfile::TempDir)> {
    let fs = LoopFs::new(kind)?;
    let (file, packs) = (fs.path().join("library"), disk_dir());
    write_synced(&file, &noise(BYTES));
    // What was just written is in large folios, of which the kernel reports no use.
    fs.remount();
    let pack = packs.path().join("pack").to_str().unwrap().to_owned();
    let command = ["python3", "-c", TOUCH, file.to_str().unwrap()];
    let output = headstart(&[&["record", "--pack", &pack, "--"], &command[..]].concat());
    assert!(output.status.success(), "{output:?}");
    Some((fs, file, pack, packs))
}

/// Where the files of the pack are: it also has some of python's own.
fn of_pack(fs: &LoopFs) -> [&Path; 2] {
    [fs.path(), Path::new("/usr")]
}

fn replay(pack: &str) -> Value {
    json(&["replay", "--wait", "--verify", "--json", "--large-folios", pack])
}

/// The result for parts of the pack, which also has some of python's own files.
fn parts(figures: &Value, what: &str) -> u64 {
    figures["large_folios"][what].as_u64().unwrap_or_else(|| panic!("{figures:#}"))
}

#[test]
fn what_was_read_page_by_page_is_in_large_folios_afterwards_and_stays_there() {
    for kind in ["ext4", "xfs"] {
        let Some((fs, file, pack, _packs)) = learned(kind) else { return };
        let (plain, first, large_at_first, second, large) = undisturbed(&of_pack(&fs), || {
            fs.remount();
            let plain = json(&["replay", "--wait", "--json", &pack]);
            let first = replay(&pack);
            let large_at_first = in_large_folios(&file);
            (plain, first, large_at_first, replay(&pack), in_large_folios(&file))
        });
        assert!(plain["large_folios"].is_null(), "{plain:#}");
        if parts(&first, "refused") > 0 {
            // Before Linux 6.16 ext4 has none, and memory can be in pieces.
            return skip(&format!("the kernel gave {kind} no large folios: {first:#}"));
        }
        assert!(parts(&first, "made") >= 1 && large_at_first, "{kind}: {first:#}");
        let verified = &first["verified"];
        assert_eq!(verified["planned_pages"], verified["resident_pages"], "{first:#}");
        // Of python's own files nothing can be said: others may have them mapped.
        assert!(parts(&second, "already") >= 3 && large, "{kind}: {second:#}");
    }
}

#[test]
fn a_cold_cache_is_filled_with_large_folios_at_once() {
    let Some((fs, file, pack, _packs)) = learned("xfs") else { return };
    let (figures, large) = undisturbed(&of_pack(&fs), || {
        fs.remount();
        (replay(&pack), in_large_folios(&file))
    });
    if parts(&figures, "refused") == 0 {
        assert!(parts(&figures, "made") >= 1 && large, "{figures:#}");
    }
    let verified = &figures["verified"];
    assert_eq!(verified["planned_pages"], verified["resident_pages"], "{figures:#}");
}

#[test]
fn what_a_process_has_mapped_stays_as_it_is_and_in_memory() {
    let Some((fs, file, pack, _packs)) = learned("ext4") else { return };
    let mut child = Command::new("python3")
        .args(["-c", TOUCH, file.to_str().unwrap(), "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "touched\n");
    let figures = undisturbed(&of_pack(&fs), || replay(&pack));
    let kept = parts(&figures, "in_use") + parts(&figures, "already");
    assert!(kept >= 4, "{figures:#}");
    let verified = &figures["verified"];
    assert_eq!(verified["planned_pages"], verified["resident_pages"], "{figures:#}");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn after_a_run_it_goes_on_in_the_background() {
    let Some((fs, file, pack, _packs)) = learned("xfs") else { return };
    let command = ["python3", "-c", TOUCH, file.to_str().unwrap()];
    let (output, large) = undisturbed(&of_pack(&fs), || {
        fs.remount();
        let run = ["run", "-v", "--large-folios", "--no-learn", "--pack", &pack, "--"];
        let output = headstart(&[&run[..], &command[..]].concat());
        // Looking at the file meanwhile would keep its pages in use.
        wait_until("end of the work", || (!is_an_argument(&pack)).then_some(()));
        (output, in_large_folios(&file))
    });
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"touched\n"[..]));
    assert!(large, "{output:?}");
}

#[test]
fn what_is_in_large_folios_is_not_forgotten_though_no_use_of_it_is_seen() {
    let Some((fs, file, pack, packs)) = learned("xfs") else { return };
    let figures_file = packs.path().join("figures");
    let figures_option = figures_file.to_str().unwrap();
    let command = ["python3", "-c", TOUCH, file.to_str().unwrap()];
    let learned = std::fs::read(&pack).unwrap();
    let (refilled, figures) = undisturbed(&of_pack(&fs), || {
        std::fs::write(&pack, &learned).unwrap();
        fs.remount();
        let refilled = replay(&pack);
        let run = ["run", "--pack", &pack, "--json", figures_option, "--always", "--"];
        let output = headstart(&[&run[..], &command[..]].concat());
        assert!(output.status.success(), "{output:?}");
        let figures = std::fs::read(&figures_file).unwrap();
        (refilled, serde_json::from_slice::<Value>(&figures).unwrap())
    });
    if parts(&refilled, "refused") > 0 {
        return skip(&format!("the kernel gave xfs no large folios: {refilled:#}"));
    }
    assert!(figures["learned"]["unseen_pages"].as_u64() >= Some(3 * 512), "{figures:#}");
    assert!(figures["touched"]["wasted_pages"].as_u64() < Some(512), "{figures:#}");
    let shown = json(&["show", "--json", &pack]);
    let files = shown["files"].as_array().unwrap();
    let big = files.iter().find(|f| f["path"] == file.to_str().unwrap()).unwrap();
    let ranges = big["ranges"].as_array().unwrap();
    assert!(ranges.iter().all(|r| !r["history"].as_str().unwrap().contains('.')), "{big:#}");
}

/// Whether a mapping of a file's first part has it by one entry of a page table.
fn in_large_folios(file: &Path) -> bool {
    let file = std::fs::File::open(file).unwrap();
    let found = headstart_sys::huge::bring_in(&file, 0, 2 << 20).unwrap();
    found == headstart_sys::huge::Folio::Large
}

#[test]
fn a_list_is_refused_since_it_does_not_know_what_is_mapped() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "/etc/passwd\n").unwrap();
    let output = headstart(&["replay", "--large-folios", list.path().to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("Large folios take a pack"), "{text}");
}
