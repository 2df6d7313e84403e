//! `kill -9` at any moment: packs stay whole, programs start, and the next
//! start cleans up.

use crate::command::headstart;
use crate::common::instances;
use crate::common::process::helpers;
use headstart_sys::signals::kill;
use headstart_testing::{LoopFs, disk_dir, is_root, noise, skip, write_synced};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Helpers that are killed, each at a moment of its own.
const KILLS: usize = 25;

/// Trace instances that belong to one of these processes.
fn instances_of(pids: &BTreeSet<u32>) -> Vec<String> {
    let is_ours = |name: &str| {
        let pid = name.strip_prefix("headstart-").and_then(|rest| rest.split('-').next());
        pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid: u32| pids.contains(&pid))
    };
    instances().into_iter().filter(|name| is_ours(name)).collect()
}

fn temporary_files(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".headstart-tmp")).count()
}

#[test]
fn a_helper_that_is_killed_leaves_the_program_alone_the_pack_whole_and_the_next_cleans_up() {
    if !is_root() {
        return skip("recording needs root");
    }
    let Some(fs) = LoopFs::new("ext4") else { return };
    let file = fs.path().join("file");
    write_synced(&file, &noise(512 << 10));
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let pack = pack.to_str().unwrap();
    let program = format!("cat {}; exit 7", file.display());
    let arguments = ["run", "--pack", pack, "--", "sh", "-c", &program];
    let learned = [&["run", "-v"], &arguments[1..]].concat();
    assert_eq!(headstart(&learned).status.code(), Some(7));

    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command.args(arguments).stdout(Stdio::null()).spawn().unwrap()
    };

    let mut pids = BTreeSet::new();
    // Moments are drawn from this time after the helper is seen. A helper that has ended by then
    // shortens it, one that is hit makes it longer: it follows how long helpers live here.
    let mut span = Duration::from_millis(50);
    // Seeded, so that a failure can be met again.
    let mut moments = noise(40 * KILLS).into_iter();
    while pids.len() < KILLS {
        let part = moments.next().expect("enough helpers live to be killed");
        let moment = span * u32::from(part) / u32::from(u8::MAX);
        let mut child = start();
        while helpers(pack, child.id()).is_empty() && child.try_wait().unwrap().is_none() {}
        let seen = Instant::now();
        // A busy wait hits the moment.
        while seen.elapsed() < moment {}
        let found = helpers(pack, child.id());
        span = if found.is_empty() { moment } else { span * 5 / 4 };
        for pid in found {
            // It may have ended.
            let _ = kill(pid.cast_signed(), 9);
            pids.insert(pid);
        }
        assert_eq!(child.wait().unwrap().code(), Some(7), "after {moment:?}");
        let shown = headstart(&["show", "--list", pack]);
        assert!(shown.status.success(), "after {moment:?}: {shown:?}");
        assert!(String::from_utf8_lossy(&shown.stdout).contains("/mount/file 0:"), "{shown:?}");
    }

    // The next start removes what they left, the instances in the background, even if the
    // program is found in memory and not traced.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !instances_of(&pids).is_empty() {
        assert_eq!(headstart(&learned).status.code(), Some(7));
        assert!(Instant::now() < deadline, "{:?}", instances_of(&pids));
    }
    // The next that learns removes the files.
    assert!(headstart(&["record", "-q", "--pack", pack, "--", "true"]).status.success());
    assert_eq!(temporary_files(packs.path()), 0);
}

#[test]
fn a_start_that_is_not_traced_removes_what_a_killed_one_left_in_the_kernel() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let pack = dir.path().join("a.pack");
    let pack = pack.to_str().unwrap();
    // This mounts tracefs, where nobody has.
    assert!(headstart(&["record", "-q", "--pack", pack, "--", "true"]).status.success());
    // No process has begun in the first tick of the machine, whatever its number.
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let left = format!("headstart-{}-1-{namespace}", std::process::id());
    let path = Path::new("/sys/kernel/tracing/instances").join(&left);
    std::fs::create_dir(path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    assert!(headstart(&["run", "--no-learn", "--pack", pack, "true"]).status.success());
    while instances().contains(&left) {
        assert!(Instant::now() < deadline, "{left} is still there");
    }
}

#[test]
fn a_program_that_waits_to_be_traced_starts_when_headstart_is_killed() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let pack = dir.path().join("a.pack");
    // Killed before, in and after the time in which exec is delayed.
    for delay in 0..24 {
        let mark = dir.path().join(format!("mark{delay}"));
        let begin = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .args(["record", "-q", "--pack", pack.to_str().unwrap(), "--", "touch"])
            .arg(&mark)
            .spawn()
            .unwrap();
        let has_child = || {
            let path = format!("/proc/{0}/task/{0}/children", child.id());
            std::fs::read_to_string(path).is_ok_and(|text| !text.trim().is_empty())
        };
        // Before the fork there is no program that could start.
        while !has_child() && !mark.exists() {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        let forked = Instant::now();
        while forked.elapsed() < Duration::from_micros(delay * 400) {}
        child.kill().unwrap();
        child.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !mark.exists() {
            assert!(
                Instant::now() < deadline,
                "not started when killed {delay} × 0.4 ms after the fork"
            );
        }
    }
}

#[test]
fn the_instance_of_a_live_recording_stays() {
    if !is_root() {
        return skip("recording needs root");
    }
    let dir = disk_dir();
    let pack = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let end = dir.path().join("end");
    let wait = format!("until [ -e {} ]; do :; done", end.display());
    let mut live = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .args([
            "record",
            "-q",
            "--for",
            "60s",
            "--pack",
            &pack("live.pack"),
            "--",
            "sh",
            "-c",
            &wait,
        ])
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let recorders = || BTreeSet::from_iter(helpers(&pack("live.pack"), live.id()));
    while instances_of(&recorders()).is_empty() {
        if Instant::now() >= deadline {
            std::fs::write(&end, "").unwrap();
            panic!("it does not record");
        }
    }
    for _ in 0..3 {
        assert!(
            headstart(&["record", "-q", "--pack", &pack("other.pack"), "--", "true"])
                .status
                .success()
        );
        assert_eq!(instances_of(&recorders()).len(), 1);
    }
    std::fs::write(&end, "").unwrap();
    assert!(live.wait().unwrap().success());
    assert!(headstart(&["show", &pack("live.pack")]).status.success());
}
