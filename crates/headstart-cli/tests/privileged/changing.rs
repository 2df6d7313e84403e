//! Files that each start changes, in place, at their end, or by putting another in their place, are
//! prefetched from the third start on.

use crate::command::{headstart, json};
use headstart::cache::residency::resident_count;
use headstart::host::range::PageRange;
use headstart_testing::{LoopFs, disk_dir, has, must, noise, skip, undisturbed};
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

/// A cold start that is learned into `pack` after something else changed the journal.
fn learn(fs: &LoopFs, pack: &Path) {
    fs.remount();
    let journal = std::fs::File::options().append(true).open(fs.path().join("journal")).unwrap();
    journal.set_modified(std::time::SystemTime::now()).unwrap();
    let record = ["record", "-q", "--pack", pack.to_str().unwrap(), "--"];
    let program = ["python3", "-I", "-S", "-c", PROGRAM, fs.path().to_str().unwrap()];
    let output = headstart(&[&record[..], &program].concat());
    assert!(output.status.success(), "{output:?}");
}

/// The pages of a file that a start still read itself, of which `pack` says.
fn missing(pack: &Path, name: &str) -> u64 {
    let seen = json(&["show", "--last-run", "--json", pack.to_str().unwrap()]);
    let files = seen["files"].as_array().unwrap().iter();
    let of = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(name));
    files.filter(of).map(|file| file["missing"].as_u64().unwrap()).sum()
}

/// Prefetches a pack into an empty cache; its report.
fn replay(fs: &LoopFs, pack: &Path) -> Value {
    fs.remount();
    json(&["replay", "--wait", "--json", pack.to_str().unwrap()])["report"].clone()
}

#[test]
fn files_that_each_start_changes_are_prefetched_from_the_third_start_on() {
    if !has("python3") {
        return skip("python3 is missing");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    let packs = disk_dir();
    let (replayed, look, pack) = undisturbed(&[fs.path()], || {
        let pack = |name: &str| packs.path().join(name);
        let (pack, look) = (pack("a.pack"), pack("look.pack"));
        // Of a measurement before.
        let _ = std::fs::remove_file(&pack);
        prepare(fs.path());
        (0..3).for_each(|_| learn(&fs, &pack));
        let journal = fs.path().join("journal");
        let journal = std::fs::File::options().append(true).open(journal).unwrap();
        journal.set_modified(std::time::SystemTime::now()).unwrap();
        drop(journal);
        let replayed = replay(&fs, &pack);
        let record = ["record", "-q", "--pack", look.to_str().unwrap(), "--"];
        let program = ["python3", "-I", "-S", "-c", PROGRAM, fs.path().to_str().unwrap()];
        assert!(headstart(&[&record[..], &program].concat()).status.success());
        (replayed, look, pack)
    });
    assert_eq!(replayed["changing_files"], 1, "{replayed:#}");
    assert_eq!(replayed["stale_files"], 0, "{replayed:#}");
    // What is new in each start, and fault-around pages that the kernel maps with it.
    assert!(missing(&look, "/journal") < 40, "{}", missing(&look, "/journal"));
    assert_eq!(missing(&look, "/state"), 0);
    let shown = json(&["show", "--json", pack.to_str().unwrap()]);
    let files = shown["files"].as_array().unwrap().iter();
    let changing = files.filter(|file| file["changing"] == true).count();
    assert_eq!(changing, 2, "{shown:#}");
}

#[test]
fn a_file_that_was_replaced_once_is_skipped_and_learned_again() {
    if !has("python3") {
        return skip("python3 is missing");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    let packs = disk_dir();
    prepare(fs.path());
    let (root, pack) = (fs.path().to_str().unwrap(), packs.path().join("a.pack"));
    let file = format!("{root}/upgraded");
    let start = || {
        fs.remount();
        let record = ["record", "-q", "--pack", pack.to_str().unwrap(), "--", "cat", &file];
        assert!(headstart(&record).status.success());
    };
    (0..3).for_each(|_| start());
    std::fs::write(format!("{root}/new"), noise(70 << 10)).unwrap();
    std::fs::rename(format!("{root}/new"), &file).unwrap();
    let replayed = replay(&fs, &pack);
    assert_eq!(replayed["stale_files"], 1, "{replayed:#}");
    assert_eq!(replayed["changing_files"], 0, "{replayed:#}");
    start();
    let replayed = replay(&fs, &pack);
    assert_eq!(replayed["stale_files"], 0, "{replayed:#}");
}

/// Reads its state and saves it, and a time stamp, which gets the inode that the earlier state had; reads a list and
/// saves it, and keeps the earlier one as a backup; adds a line to a log.
const APPENDING: &str = r#"
import os, sys, time
os.chdir(sys.argv[1])
time.sleep(0.2)
state = open("state", "rb").read()
jobs = open("jobs", "rb").read()
time.sleep(0.05)
for name in ("state", "stamp"):
    with open("new", "wb") as file:
        file.write(state)
    os.rename("new", name)
with open("new", "wb") as file:
    file.write(jobs)
os.rename("jobs", "jobs.old")
os.rename("new", "jobs")
with open("log", "ab") as file:
    file.write(b"started" * 400)
"#;

#[test]
fn the_last_page_of_a_log_and_what_a_start_replaces_are_prefetched_though_others_change_them_too() {
    if !has("python3") {
        return skip("python3 is missing");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    let packs = disk_dir();
    let at = |name: &str| fs.path().join(name);
    for name in ["state", "stamp", "jobs", "log"] {
        std::fs::write(at(name), noise(5000)).unwrap();
    }
    let pack = packs.path().join("a.pack");
    let changed_by_others = || {
        std::fs::write(at("other"), noise(5000)).unwrap();
        std::fs::rename(at("other"), at("state")).unwrap();
        std::fs::write(at("other"), noise(5000)).unwrap();
        std::fs::rename(at("jobs"), at("jobs.old")).unwrap();
        std::fs::rename(at("other"), at("jobs")).unwrap();
        let log = std::fs::File::options().append(true).open(at("log")).unwrap();
        std::io::Write::write_all(&mut &log, &noise(50_001)).unwrap();
        drop(log);
        must("sync", &["-f", fs.path().to_str().unwrap()]);
        fs.remount();
    };
    let resident = |name: &str| {
        let file = std::fs::File::open(at(name)).unwrap();
        let last = (file.metadata().unwrap().len() - 1) / 4096;
        [0, last].map(|page| resident_count(&file, PageRange::of(page, 1)).unwrap())
    };
    let (replayed, found) = undisturbed(&[fs.path()], || {
        // The first ones give what was read of the state to the stamp, and four later ones forget that.
        for start in 1..=8 {
            changed_by_others();
            let run = ["run", "--always", "--pack", pack.to_str().unwrap(), "-v", "--"];
            let program = ["python3", "-I", "-S", "-c", APPENDING, fs.path().to_str().unwrap()];
            let output = headstart(&[&run[..], &program].concat());
            assert!(output.status.success(), "start {start}: {output:?}");
        }
        changed_by_others();
        let replayed = json(&["replay", "--wait", "--json", pack.to_str().unwrap()]);
        (replayed, ["log", "state", "stamp", "jobs", "jobs.old"].map(resident))
    });
    let shown = json(&["show", "--json", pack.to_str().unwrap()]);
    let [log, state, stamp, jobs, backup] = found;
    assert_eq!(log, [0, 1], "the last page only: {shown:#}");
    assert_eq!(state, [1, 1], "{shown:#}");
    assert_eq!(stamp, [0, 0], "nothing reads it: {shown:#}");
    assert_eq!((jobs, backup), ([1, 1], [0, 0]), "{shown:#}");
    assert_eq!(replayed["report"]["stale_files"], 0, "{replayed:#}");
}
