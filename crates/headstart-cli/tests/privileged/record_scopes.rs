//! What a recording covers, when it ends, and what it needs.

use crate::command::json;
use headstart_testing::{LoopFs, disk_dir, is_root, must, noise, skip, write_synced};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// `headstart record --pack PACK OPTIONS -- CMD` and the pack as JSON.
fn record(pack: &Path, options: &[&str], command: &[&str]) -> (Output, Value) {
    let pack = pack.to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["record", "--pack", pack])
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(Path::new(pack).exists(), "{output:?}");
    (output, json(&["show", "--json", pack]))
}

/// The pages of a file that a shown pack has.
fn pages_of(shown: &Value, path: &Path) -> u64 {
    let files = shown["files"].as_array().unwrap();
    let file = files.iter().find(|f| f["path"] == path.to_str().unwrap());
    let length = |r: &Value| r["length"].as_u64().unwrap();
    file.map_or(0, |f| f["ranges"].as_array().unwrap().iter().map(length).sum::<u64>() / 4096)
}

fn file_on(fs: &LoopFs, name: &str, kib: usize) -> std::path::PathBuf {
    let path = fs.path().join(name);
    write_synced(&path, &noise(kib << 10));
    path
}

#[test]
fn exactly_the_pages_that_were_read_are_learned_by_children_too() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 1024);
    fs.remount();
    let packs = disk_dir();
    // 4 pages from page 16 on, by a grandchild.
    let dd = format!("(dd if={} bs=4096 skip=16 count=4 of=/dev/null); true", file.display());
    let (_, shown) = record(&packs.path().join("a.pack"), &[], &["sh", "-c", &dd]);
    assert_eq!(pages_of(&shown, &file), 4, "{shown:#}");
    let ranges =
        &shown["files"].as_array().unwrap().iter().find(|f| f["path"] == file.to_str().unwrap());
    assert_eq!(ranges.unwrap()["ranges"][0]["offset"], 16 * 4096);
    assert_eq!(ranges.unwrap()["ranges"][0]["how"], serde_json::json!(["read"]));
    assert!(!shown["metadata"].as_array().unwrap().is_empty(), "metadata came in: {shown:#}");
}

#[test]
fn other_programs_are_recorded_with_system_only() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let (mine, other) = (file_on(&fs, "mine", 64), file_on(&fs, "other", 64));
    let packs = disk_dir();
    for (options, expected) in [(&[][..], 0), (&["--system"][..], 16)] {
        fs.remount();
        // The other program reads when the recorded one has begun, and the
        // recorded one ends when the other has read.
        let (begun, done) = (packs.path().join("begun"), packs.path().join("done"));
        let _ = std::fs::remove_file(&begun);
        let _ = std::fs::remove_file(&done);
        let wait = |path: &Path| format!("until [ -e {} ]; do :; done", path.display());
        let script = format!(
            "{}; cat {} > {}; touch {}",
            wait(&begun),
            other.display(),
            "/dev/null",
            done.display()
        );
        let mut reader = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let program = format!(
            "cat {} >/dev/null; touch {}; {}",
            mine.display(),
            begun.display(),
            wait(&done)
        );
        let pack = packs.path().join(format!("{}.pack", options.len()));
        let (_, shown) = record(&pack, options, &["sh", "-c", &program]);
        reader.wait().unwrap();
        assert_eq!(pages_of(&shown, &mine), 16, "{options:?}");
        assert_eq!(pages_of(&shown, &other), expected, "{options:?}");
    }
}

#[test]
fn a_start_ends_when_reading_has_died_down_and_the_program_lives_on() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 256);
    fs.remount();
    let packs = disk_dir();
    let pack = packs.path().join("idle.pack");
    // It ends by itself only when the pack is there.
    let program = format!(
        "cat {} >/dev/null; until [ -e {} ]; do :; done; exit 3",
        file.display(),
        pack.display()
    );
    let (output, shown) =
        record(&pack, &["--until", "idle", "--for", "60s"], &["sh", "-c", &program]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(pages_of(&shown, &file), 64);
}

#[test]
fn a_start_goes_on_for_its_time_when_the_program_leaves_children_behind() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 256);
    fs.remount();
    let packs = disk_dir();
    let program = format!(
        "(while kill -0 $$ 2>/dev/null; do :; done; cat {} >/dev/null) & exit 0",
        file.display()
    );
    let options = ["--until", "time", "--for", "3s"];
    let (_, shown) = record(&packs.path().join("time.pack"), &options, &["sh", "-c", &program]);
    assert_eq!(pages_of(&shown, &file), 64);
}

#[test]
fn tracefs_is_mounted_where_it_is_not_and_that_is_said() {
    if !is_root() {
        return skip("only root can unmount tracefs");
    }
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    // In a mount namespace of its own, so that nobody else misses it.
    let script = format!(
        "umount /sys/kernel/tracing 2>/dev/null; umount /sys/kernel/debug 2>/dev/null; \
         exec {} record --pack {} -- cat /etc/passwd",
        env!("CARGO_BIN_EXE_headstart"),
        pack.display()
    );
    let output = Command::new("unshare").args(["-m", "--", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("mounted tracefs"), "{said}");
    assert!(pack.exists(), "{said}");
}

#[test]
fn a_pack_that_cannot_be_written_leaves_the_old_one_and_the_program_alone() {
    if !is_root() {
        return skip("only root can mount file systems");
    }
    let dir = disk_dir();
    let mount = dir.path().to_str().unwrap();
    must("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", mount]);
    let pack = dir.path().join("a.pack");
    let (_, before) = record(&pack, &[], &["true"]);
    // Fills it to the last byte.
    let _ = Command::new("sh").args(["-c", &format!("cat /dev/zero > {mount}/zeros")]).output();
    let (output, after) = record(&pack, &[], &["sh", "-c", "exit 9"]);
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    must("umount", &[mount]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(before, after);
    // The pack, the record of its last start, and what fills the disk.
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn files_in_memory_anyway_are_skipped() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("in-memory");
    std::fs::write(&file, noise(64 << 10)).unwrap();
    let program = ["cat", file.to_str().unwrap()];
    let (_, shown) = record(&packs.path().join("a.pack"), &[], &program);
    assert_eq!(pages_of(&shown, &file), 0);
}

#[test]
fn files_of_an_overlay_are_learned_by_their_lower_names() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(fs.path().join(name)).unwrap();
    }
    let lower = file_on(&fs, "lower/file", 256);
    fs.remount();
    let at = |name: &str| fs.path().join(name).to_str().unwrap().to_owned();
    let dirs = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    must("mount", &["-t", "overlay", "overlay", "-o", &dirs, &at("merged")]);
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let merged = format!("{}/file", at("merged"));
    let (_, shown) = record(&pack, &[], &["cat", &merged]);
    must("umount", &[&at("merged")]);
    assert_eq!(pages_of(&shown, &lower), 64, "{shown:#}");
}

#[test]
fn the_first_request_is_sent_within_five_milliseconds() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 1024);
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let (_, shown) = record(&pack, &[], &["cat", file.to_str().unwrap()]);
    assert_eq!(pages_of(&shown, &file), 256);
    let figures = packs.path().join("figures");
    let mut times: Vec<u64> = (0..9)
        .map(|_| {
            fs.remount();
            // Nothing else on the machine gets the CPU first.
            let output = Command::new("chrt")
                .args(["--fifo", "1", env!("CARGO_BIN_EXE_headstart")])
                .args(["run", "--no-learn", "--pack", pack.to_str().unwrap()])
                .args(["--json", figures.to_str().unwrap(), "--", "true"])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let figures: Value = serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap();
            figures["prefetch"]["first_request_us"].as_u64().unwrap_or(u64::MAX)
        })
        .collect();
    times.sort_unstable();
    assert!(times[times.len() / 2] < 5000, "{times:?} µs");
}

#[test]
fn a_program_in_a_pid_namespace_is_followed_by_its_real_number() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = file_on(&fs, "file", 256);
    fs.remount();
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--", "sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(env!("CARGO_BIN_EXE_headstart"))
        .args(["record", "--pack", pack.to_str().unwrap(), "--", "sh", "-c"])
        .arg(format!("(cat {} >/dev/null); exit 3", file.display()))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let shown = json(&["show", "--json", pack.to_str().unwrap()]);
    assert_eq!(pages_of(&shown, &file), 64, "{output:?}");
}
