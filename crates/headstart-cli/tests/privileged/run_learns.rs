//! The main job on real file systems: starts are learned and the next one
//! finds its files in memory.

use crate::command::{headstart, json};
use crate::common::{python, run_json};
use headstart_testing::{
    LoopFs, as_nobody, disk_dir, is_root, must, skip, undisturbed, undisturbed_with, wait_until,
    write_synced,
};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

/// `headstart VERB` with these packs and its figures.
fn start(packs: &Path, verb: &str, options: &[&str], command: &[&str]) -> (Output, Value) {
    let figures = packs.join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PACKS", packs)
        .args([verb, "--json", figures.to_str().unwrap()])
        // On a busy machine the threads that prefetch may be scheduled late.
        .args(if verb == "run" { &["-vv", "--max-delay", "2s"][..] } else { &[] })
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    let text = std::fs::read(&figures).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output, serde_json::from_slice(&text).unwrap())
}

fn run(packs: &Path, command: &[&str]) -> Value {
    let (output, figures) = start(packs, "run", &[], command);
    assert!(output.status.success(), "{output:?}");
    figures
}

/// The pack of a directory that has one.
fn pack_in(packs: &Path) -> String {
    let is_pack = |p: &Path| p.extension().is_some_and(|e| e == "pack");
    let found: Vec<_> = std::fs::read_dir(packs)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| is_pack(p))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].to_str().unwrap().to_owned()
}

fn python_starts_from_memory_on(kind: &'static str) {
    let Some(fs) = LoopFs::new(kind) else { return };
    if !python::install(&fs) {
        return;
    }
    let packs = disk_dir();
    let import = format!("import {}", python::MODULES);
    let command = ["chroot", fs.path().to_str().unwrap(), "/usr/bin/python3", "-c", &import];
    let cold = || fs.remount();
    cold();
    let (_, bare) = start(packs.path(), "run", &["--no-learn", "--no-replay"], &command);
    for _ in 0..2 {
        cold();
        run(packs.path(), &command);
    }
    let faults = |figures: &Value| figures["major_faults"].as_u64().unwrap();
    let before = faults(&bare);
    assert!(before >= 20, "{kind}: the bare start was not cold: {before} major faults");
    let third = undisturbed_with(&[fs.path()], packs.path(), || {
        cold();
        run(packs.path(), &command)
    });
    let (ready, after) = (third["ready_share"].as_f64().unwrap(), faults(&third));
    assert!(ready >= 0.98, "{kind}: only {ready} of the pages were ready: {third:#}");
    assert!(after * 20 <= before, "{kind}: major faults fell only from {before} to {after}");
    assert!(third["learned"]["starts"].as_u64().unwrap() >= 3, "{third:#}");
    assert_eq!(third["learned"]["lost_events"], 0);
}

#[test]
fn after_two_starts_a_third_finds_its_pages_in_memory_on_ext4() {
    python_starts_from_memory_on("ext4");
}

#[test]
fn after_two_starts_a_third_finds_its_pages_in_memory_on_xfs() {
    python_starts_from_memory_on("xfs");
}

#[test]
fn after_two_starts_a_third_finds_its_pages_in_memory_on_btrfs() {
    python_starts_from_memory_on("btrfs");
}

#[test]
fn a_warm_start_learns_the_same_pages_as_a_cold_one() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    if !python::install(&fs) {
        return;
    }
    let import = format!("import {}", python::MODULES);
    // Which pages around a fault the kernel maps depends on where the
    // file lies in memory; without -R two cold starts differ by that as well.
    let program = ["chroot", fs.path().to_str().unwrap(), "/usr/bin/python3", "-c", &import];
    let command: Vec<&str> = ["setarch", "-R"].into_iter().chain(program).collect();
    let packs = disk_dir();
    let learn = |name: &str| {
        let pack = packs.path().join(name);
        let options = ["--pack", pack.to_str().unwrap()];
        let (output, figures) = start(packs.path(), "record", &options, &command);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(figures["learned"]["lost_events"], 0);
        pack.to_str().unwrap().to_owned()
    };
    // The first remount empties the cache, the second start finds it full.
    fs.remount();
    let (cold, warm) = (learn("cold.pack"), learn("warm.pack"));
    let pages = |pack: &str| {
        let shown = json(&["show", "--json", pack]);
        let ranges = |f: &Value| f["ranges"].as_array().unwrap().clone();
        let lengths = shown["files"].as_array().unwrap().iter().flat_map(ranges);
        lengths.map(|r| r["length"].as_u64().unwrap() / 4096).sum::<u64>()
    };
    let diff = json(&["pack", "diff", "--json", &cold, &warm]);
    let side = |name: &str| -> u64 {
        diff["files"].as_array().unwrap().iter().map(|f| f[name].as_u64().unwrap()).sum()
    };
    let (all, differ) = (pages(&cold), side("removed_pages") + side("added_pages"));
    assert!(all > 2000, "{all} pages are too few to compare");
    assert!(differ * 50 <= all, "{differ} of {all} pages differ: {diff:#}");
}

#[test]
fn of_a_program_in_memory_only_a_sample_is_looked_at() {
    const TRIALS: u32 = 5;
    // All that is touched in the first 5 ms is looked at: some 300 of them.
    const FILES: usize = 1000;
    let Some(fs) = LoopFs::new("ext4") else { return };
    for i in 0..FILES {
        std::fs::write(fs.path().join(format!("{i:03}")), [7; 4096]).unwrap();
    }
    must("sync", &["-f", fs.path().to_str().unwrap()]);
    let packs = disk_dir();
    let script = format!("exec cat {}/??? >/dev/null", fs.path().display());
    let command = ["sh", "-c", &script];
    run(packs.path(), &command);
    let bytes = |figures: &Value, of: &str| figures["prefetch"][of].as_u64().unwrap();
    // The shell and its libraries are of the start, too, and pages of them that not every start
    // touches.
    let places = [fs.path(), Path::new("/")];
    let hot = || {
        undisturbed(&places, || {
            json(&["replay", "--wait", "--json", &pack_in(packs.path())]);
            // Starts after the third learned one need not be recorded, and the cold one has to be.
            start(packs.path(), "run", &["--no-learn"], &command).1
        })
    };
    // Nothing waits for a replay of what is in memory: on a busy machine it may come when the program has ended.
    let is_assumed = |hot: &Value| {
        assert_eq!(bytes(hot, "bytes"), 0, "{hot:#}");
        bytes(hot, "assumed_bytes") > FILES as u64 / 2 * 4096
    };
    assert!((0..TRIALS).any(|_| is_assumed(&hot())));
    fs.remount();
    let cold = run(packs.path(), &command);
    assert_eq!(bytes(&cold, "assumed_bytes"), 0, "{cold:#}");
    // The program itself reads what it reaches before the replay.
    let late = cold["touched"]["late_pages"].as_u64().unwrap() * 4096;
    assert!(bytes(&cold, "bytes") + late >= FILES as u64 * 4096, "{cold:#}");
    // As when the program is in memory and its data, on another disk, is not.
    let mixed = undisturbed(&[fs.path()], || {
        fs.remount();
        let half = format!("cat {}/[012]?? >/dev/null", fs.path().display());
        must("sh", &["-c", &half]);
        run(packs.path(), &command)
    });
    assert_eq!(bytes(&mixed, "assumed_bytes"), 0, "{mixed:#}");
    assert!(bytes(&mixed, "bytes") >= FILES as u64 / 4 * 4096, "{mixed:#}");
}

#[test]
fn files_that_were_replaced_cut_or_deleted_are_skipped_and_counted() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let at = |name: &str| fs.path().join(name).to_str().unwrap().to_owned();
    let names = ["same", "replaced", "cut", "deleted"];
    for name in names {
        write_synced(Path::new(&at(name)), &headstart_testing::noise(256 << 10));
    }
    let packs = disk_dir();
    let files: Vec<String> = names.iter().map(|n| at(n)).collect();
    let command: Vec<&str> = ["cat"].into_iter().chain(files.iter().map(String::as_str)).collect();
    fs.remount();
    run(packs.path(), &command);
    let pack = pack_in(packs.path());

    // The same name, size and times, but another inode.
    let stamp = at("stamp");
    must("cp", &["-p", &at("replaced"), &stamp]);
    must("mv", &[&stamp, &at("replaced")]);
    must("truncate", &["-s", "8192", &at("cut")]);
    must("rm", &[&at("deleted")]);
    fs.remount();
    let replayed = json(&["replay", "--json", "--verify", &pack]);
    let report = &replayed["report"];
    assert_eq!(report["stale_files"], 2, "{replayed:#}");
    assert_eq!(report["missing_files"], 1, "{replayed:#}");
    let resident = |name: &str| {
        let shown = json(&["pages", "--json", &at(name)]);
        shown["files"][0]["cached"].as_u64().unwrap_or_else(|| panic!("{shown:#}"))
    };
    let same = undisturbed(&[fs.path()], || {
        json(&["replay", "--json", "--wait", pack.as_str()]);
        resident("same")
    });
    assert_eq!(same, 64);
    assert_eq!(resident("replaced"), 0);
    assert_eq!(resident("cut"), 0);
    assert_eq!(headstart(&["replay", "-q", &pack]).status.code(), Some(0));

    // The next start drops them, and learns the new ones.
    fs.remount();
    let (output, figures) = start(packs.path(), "run", &[], &command);
    assert_eq!(output.status.code(), Some(1), "cat misses a file");
    assert_eq!(figures["prefetch"]["stale_files"], 2);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("2 files changed since"), "{line}");
    let verdict = headstart(&["pack", "verify", &pack]);
    assert_eq!(verdict.status.code(), Some(3), "the deleted file is still in the history");
}

#[test]
fn a_start_that_is_cut_off_says_so_and_what_the_next_one_adds_is_no_alarm() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let packs = disk_dir();
    let file = |name: &str| fs.path().join(name).to_str().unwrap().to_owned();
    for name in ["early", "late"] {
        write_synced(Path::new(&file(name)), &headstart_testing::noise(1 << 20));
    }
    std::fs::write(file("go"), "").unwrap();
    // It goes on when its pack was written, and at once when it is not told to wait.
    let script = format!(
        "cat {}; while [ -e {} ] && ! ls {} | grep -q last; do sleep 0.1; done; cat {}",
        file("early"),
        file("go"),
        packs.path().display(),
        file("late")
    );
    let command = ["sh", "-c", &script];
    let options = ["--name", "a", "--for", "200ms"];
    let (first, figures) = start(packs.path(), "run", &options, &command);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("its end is not learned"), "{said}");
    assert_eq!(figures["learned"]["after_cut_off"], false, "{figures:#}");
    std::fs::remove_file(file("go")).unwrap();
    fs.remount();
    let (second, figures) = start(packs.path(), "run", &["--name", "a"], &command);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let verdict = said.lines().next().unwrap();
    assert!(verdict.contains("pages are new") && !verdict.contains("missing"), "{said}");
    assert!(figures["touched"]["missing_pages"].as_u64().unwrap() >= 256, "{figures:#}");
    fs.remount();
    let (third, _) = start(packs.path(), "run", &["--name", "a"], &command);
    let said = String::from_utf8_lossy(&third.stderr).into_owned();
    assert!(!said.contains("are new") && !said.contains("not learned"), "{said}");
}

#[test]
fn names_of_every_kind_are_learned_and_prefetched() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let deep = "d/".repeat(1990);
    let names = ["a b", "new\nline", "back\\slash", "trailing ", &format!("{deep}file")];
    must("sh", &["-c", &format!("cd {} && mkdir -p {deep}", fs.path().display())]);
    for name in names {
        // Relative to the mount: the absolute name of the deep one nears the
        // longest that the kernel takes.
        let script = format!("cd {} && head -c 65536 /dev/urandom > \"$0\"", fs.path().display());
        must("sh", &["-c", &script, name]);
    }
    let strange = std::ffi::OsString::from("bytes\u{fffd}");
    std::fs::write(fs.path().join(&strange), headstart_testing::noise(65536)).unwrap();
    std::fs::hard_link(fs.path().join("a b"), fs.path().join("hard link")).unwrap();
    let packs = disk_dir();
    let script =
        format!("cd {} && find . -type f -exec cat {{}} + > /dev/null", fs.path().display());
    fs.remount();
    let first = run(packs.path(), &["sh", "-c", &script]);
    assert_eq!(first["learned"]["dropped"]["not_found"], 0, "{first:#}");
    fs.remount();
    let second = run(packs.path(), &["sh", "-c", &script]);
    assert_eq!(second["prefetch"]["failed"], 0, "{second:#}");
    assert_eq!(second["prefetch"]["missing_files"], 0, "{second:#}");
    assert!(second["ready_share"].as_f64().unwrap() > 0.95, "{second:#}");
}

#[test]
fn without_root_the_program_runs_and_one_line_says_what_recording_needs() {
    if !is_root() {
        return skip("only root can become another user");
    }
    let dir = tempfile::tempdir().unwrap();
    must("chmod", &["755", dir.path().to_str().unwrap()]);
    let binary = dir.path().join("headstart");
    std::fs::copy(env!("CARGO_BIN_EXE_headstart"), &binary).unwrap();
    let output = as_nobody(&binary)
        .args(["run", "-v", "--", "sh", "-c", "echo out; exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains("recording needs root"), "{line}");
}

#[test]
fn a_bad_pack_is_refused_in_one_sentence_and_the_program_starts_all_the_same() {
    let packs = disk_dir();
    let good = packs.path().join("good.pack");
    let (_, _) = start(packs.path(), "record", &["--pack", good.to_str().unwrap()], &["true"]);
    if !is_root() {
        return skip("only root can record a pack");
    }
    let bytes = std::fs::read(&good).unwrap();
    let newer = [&bytes[..8], &[9, 0], &bytes[10..]].concat();
    let cases: [(&str, Vec<u8>, &str, &str); 6] = [
        ("corrupt", [&bytes[..40], b"xx", &bytes[42..]].concat(), "600", "checksum"),
        ("cut", bytes[..bytes.len() - 1].to_vec(), "600", "cut off"),
        ("text", b"no pack\0".to_vec(), "600", "headstart pack"),
        ("newer", newer, "600", "version 9"),
        ("writable", bytes.clone(), "666", "may be written by others"),
        ("empty", b"HEADSTRT".to_vec(), "600", "cut off"),
    ];
    for (name, content, mode, why) in cases {
        let path = packs.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        must("chmod", &[mode, path]);
        for arguments in [&["show", path][..], &["replay", path], &["pack", "verify", path]] {
            let output = headstart(arguments);
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
            assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
            assert!(message.contains(why), "{arguments:?}: {message}");
        }
        let output =
            headstart(&["run", "-v", "--no-learn", "--pack", path, "--", "sh", "-c", "exit 5"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{name}: {message}");
        assert!(message.contains(why), "{name}: {message}");
    }
    let link = packs.path().join("link");
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let output = headstart(&["show", link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    must("chown", &["65534", good.to_str().unwrap()]);
    let output = headstart(&["show", good.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_pack_path_that_is_not_utf8_is_in_the_figures_byte_for_byte() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let pack = packs.path().join(OsStr::from_bytes(b"a\xff.pack"));
    let figures = packs.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["run", "--always", "--json"])
        .arg(&figures)
        .arg("--pack")
        .arg(&pack)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert!(output.status.success() && pack.exists(), "{output:?}");
    let figures: Value = serde_json::from_slice(&std::fs::read(&figures).unwrap()).unwrap();
    let path = &figures["learned"]["pack"]["path_bytes"];
    let path: Vec<u8> = serde_json::from_value(path.clone()).unwrap();
    assert_eq!(path, pack.as_os_str().as_bytes());
}

#[test]
fn the_figures_of_a_server_can_be_seen_while_it_runs() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let file = dir.path().join("file");
    write_synced(&file, &[7; 100 << 12]);
    let pack = dir.path().join("a.pack");
    let mut server = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args(["run", "--for", "500ms", "--pack", pack.to_str().unwrap(), "--"])
        .args(["sh", "-c", "cat \"$0\" >/dev/null; read line", file.to_str().unwrap()])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let shown = ["show", "--last-run", "--json", pack.to_str().unwrap()];
    let figures = wait_until("figures of the start", || {
        let output = headstart(&shown);
        output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap())
    });
    assert!(server.try_wait().unwrap().is_none(), "it runs");
    assert_eq!((&figures["name"], &figures["starts"]), (&"sh-code".into(), &1.into()));
    assert!(figures["totals"]["touched"].as_u64().unwrap() >= 100, "{figures:#}");
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// The names of the files in a pack below a directory, in their order.
fn order(pack: &str, below: &Path) -> Vec<String> {
    let shown = json(&["show", "--json", pack]);
    let paths = shown["files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str());
    paths
        .filter_map(|path| {
            Some(path.strip_prefix(below.to_str()?)?.trim_start_matches('/').to_owned())
        })
        .collect()
}

#[test]
fn a_well_known_pack_keeps_its_order_also_when_all_is_in_memory() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    for name in ["a", "b"] {
        write_synced(&fs.path().join(name), &[7; 1 << 16]);
    }
    let packs = disk_dir();
    let pack = packs.path().join("order.pack");
    let pack = pack.to_str().unwrap();
    let learn = |program: &str| {
        let program = format!("cd {} && {program}", fs.path().display());
        let options = ["--always", "--max-delay", "1s", "--pack", pack];
        run_json(packs.path(), &options, &["sh", "-c", &program])
    };
    for _ in 0..3 {
        fs.remount();
        learn("cat a b");
    }
    let (figures, order) = undisturbed_with(&[fs.path()], packs.path(), || {
        // Brings all of it in.
        learn("cat a b && sleep 1");
        let figures = learn("cat b a && sleep 1");
        (figures, order(pack, fs.path()))
    });
    assert_eq!(figures["prefetch"]["bytes"], 0, "{figures:#}");
    assert!(figures["learned"]["starts"].as_u64() > Some(3), "{figures:#}");
    assert_eq!(order, ["a", "b"]);
}

#[test]
fn in_a_well_known_pack_only_what_is_read_much_earlier_or_later_changes_its_place() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    for name in ["a", "b", "c", "d"] {
        write_synced(&fs.path().join(name), &[7; 1 << 16]);
    }
    let packs = disk_dir();
    let pack = packs.path().join("order.pack");
    let pack = pack.to_str().unwrap();
    let starts = |program: &str| {
        let program = format!("cd {} && {program}", fs.path().display());
        fs.remount();
        // A program that is well known waits for tracing for 20 ms, so the last recording has ended here.
        let options = ["--always", "--max-delay", "2s", "--pack", pack];
        run_json(packs.path(), &options, &["sh", "-c", &program])
    };
    for _ in 0..3 {
        starts("cat a b c d");
    }
    let (figures, order) = undisturbed_with(&[fs.path()], packs.path(), || {
        // The first three are read at almost the same time, by the measure of a start that takes so long.
        let figures = starts("cat d b a && sleep 2 && cat c");
        (figures, order(pack, fs.path()))
    });
    assert_eq!(figures["prefetch"]["in_touch_order"], true, "{figures:#}");
    assert!(figures["learned"]["starts"].as_u64() > Some(3), "{figures:#}");
    let place = |name: &str| order.iter().position(|known| known == name).unwrap();
    assert!(place("a") < place("b"), "b was read before a by chance: {order:?}");
    assert!(place("d") < place("c") && place("b") < place("c"), "{order:?}");
}
