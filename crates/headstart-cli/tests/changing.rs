//! Files that each start changes, in place or by putting another in their place, are
//! read ahead from the third start on.
#![allow(clippy::unwrap_used)] // Clippy does not see that this is test code.

mod common;

use common::{LoopFs, disk_dir, has, headstart, json, must, noise, skipped, undisturbed};
use serde_json::Value;
use std::path::Path;

/// Looks through a file that says how much of it is in use and adds to it, as a journal,
/// and saves its state as most programs do.
const PROGRAM: &str = r#"
import mmap, os, sys
os.chdir(sys.argv[1])
with open("journal", "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0)
    used = int.from_bytes(pages[:8], "little")
    sum(pages[page * 4096 + 8] for page in range(used))
    for page in range(used, used + 5):
        pages[page * 4096 + 8] = 1
    pages[:8] = (used + 5).to_bytes(8, "little")
state = open("state", "rb").read()
with open("state.new", "wb") as file:
    file.write(state)
os.rename("state.new", "state")
"#;

fn prepare(root: &Path) {
    let used: u64 = 120;
    let journal = [&used.to_le_bytes()[..], &noise(2 << 20)[8..]].concat();
    std::fs::write(root.join("journal"), journal).unwrap();
    std::fs::write(root.join("state"), noise(80 << 10)).unwrap();
    std::fs::write(root.join("upgraded"), noise(80 << 10)).unwrap();
    must("sync", &["-f", root.to_str().unwrap()]);
}

/// One cold start that is learned; its figures.
fn start(fs: &LoopFs, packs: &Path) -> Value {
    fs.remount();
    // Each time another one also when nothing of it is learned meanwhile.
    let journal = std::fs::File::options().append(true).open(fs.path.join("journal")).unwrap();
    journal.set_modified(std::time::SystemTime::now()).unwrap();
    let (pack, figures) = (packs.join("a.pack"), packs.join("figures"));
    let run = ["run", "-q", "--always", "--json", figures.to_str().unwrap(), "--pack"];
    let program = [pack.to_str().unwrap(), "--", "python3", "-I", "-S", "-c", PROGRAM];
    let output = headstart(&[&run[..], &program, &[fs.path.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap()
}

/// The pages of a file that the last start missed.
fn missing(packs: &Path, name: &str) -> u64 {
    let pack = packs.join("a.pack");
    let seen = json(&["show", "--last-run", "--json", pack.to_str().unwrap()]);
    let files = seen["files"].as_array().unwrap().iter();
    let of = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(name));
    files.filter(of).map(|file| file["missing"].as_u64().unwrap()).sum()
}

#[test]
fn files_that_each_start_changes_are_read_ahead_from_the_third_start_on() {
    if !has("python3") {
        return skipped("python3 is missing");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    undisturbed(|| {
        let packs = disk_dir();
        let packs = packs.path();
        prepare(&fs.path);
        for _ in 0..2 {
            assert_eq!(start(&fs, packs)["read_ahead"]["changing_files"].as_u64().unwrap_or(0), 0);
        }
        for _ in 0..3 {
            let figures = start(&fs, packs);
            assert_eq!(figures["read_ahead"]["changing_files"], 1, "{figures:#}");
            assert_eq!(figures["read_ahead"]["stale_files"], 0, "{figures:#}");
            // What is new in each start, and neighbours that the kernel maps with it.
            assert!(missing(packs, "/journal") < 40, "{}", missing(packs, "/journal"));
            assert_eq!(missing(packs, "/state"), 0);
        }
        let shown = json(&["show", "--json", packs.join("a.pack").to_str().unwrap()]);
        let files = shown["files"].as_array().unwrap().iter();
        let changing = files.filter(|file| file["changing"] == true).count();
        assert_eq!(changing, 2, "{shown:#}");
    });
}

#[test]
fn a_file_that_was_replaced_once_is_left_out_and_learned_anew() {
    if !has("python3") {
        return skipped("python3 is missing");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    undisturbed(|| {
        let packs = disk_dir();
        prepare(&fs.path);
        let (root, pack) = (fs.path.to_str().unwrap(), packs.path().join("a.pack"));
        let file = format!("{root}/upgraded");
        let start = || {
            fs.remount();
            let run = ["run", "-q", "--always", "--pack", pack.to_str().unwrap(), "--"];
            assert!(headstart(&[&run[..], &["cat", &file]].concat()).status.success());
        };
        (0..3).for_each(|_| start());
        std::fs::write(format!("{root}/new"), noise(70 << 10)).unwrap();
        std::fs::rename(format!("{root}/new"), &file).unwrap();
        fs.remount();
        let replayed = json(&["replay", "--wait", "--json", pack.to_str().unwrap()]);
        assert_eq!((&replayed["stale_files"], &replayed["changing_files"]), (&1.into(), &0.into()));
        start();
        fs.remount();
        let replayed = json(&["replay", "--wait", "--json", pack.to_str().unwrap()]);
        assert_eq!(replayed["stale_files"], 0, "{replayed:#}");
    });
}
