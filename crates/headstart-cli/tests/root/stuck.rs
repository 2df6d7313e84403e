//! A file system whose server does not answer keeps neither the program nor its exit status,
//! nor the command that prints the run summary, and one process waits for it at most.

use crate::common::packs::write;
use headstart_testing::fuse::Fuse;
use headstart_testing::{LoopFs, disk_dir, skip, wait_until, write_synced};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// More than any of our limits but that of learning.
const LONG: Duration = Duration::from_secs(20);

fn headstart() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a process said, which has to end by itself.
fn end_of(mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LONG {
            child.kill().unwrap();
            panic!("it waits for the file");
        }
        std::thread::yield_now();
    }
    child.wait_with_output().unwrap()
}

/// A pack in `packs` with a file at `path`; its content is that of one in `fs`.
fn pack_of(fs: &LoopFs, packs: &Path, path: &Path) -> String {
    let file = fs.path().join("file");
    write_synced(&file, &[7; 8192]);
    let pack = packs.join("a.pack");
    write(fs, &pack, &[(path, &file, 2)]);
    pack.to_str().unwrap().into()
}

fn silent(dir: &Path) -> Option<Fuse> {
    let fuse = Fuse::at(dir, vec![7; 8192]);
    match &fuse {
        Some(fuse) => fuse.go_silent(),
        None => skip("there is no /dev/fuse"),
    }
    fuse
}

/// Said of files whose server an earlier start still waits for.
const SKIPPED: &str = "1 file not prefetched: another process still waits for the file server";

/// A start of a program that is prefetched and not learned. The program goes on when `reached` returns.
fn prefetched(pack: &str, limit: &str, reached: impl FnOnce()) -> Output {
    let run = ["run", "-v", "--no-learn", "--always", "--pack", pack, "--for", limit, "--"];
    let mut start = headstart().args(run).args(["sh", "-c", "read x; exit 7"]).spawn().unwrap();
    reached();
    drop(start.stdin.take());
    end_of(start)
}

/// Processes but this one with a thread that sees the mounts that this thread sees.
fn processes_left() -> usize {
    let mounts = fs::read_link("/proc/thread-self/ns/mnt").unwrap();
    let own = std::process::id().to_string();
    let is_here = |pid: &String| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut mounts_of = tasks.map(|task| fs::read_link(task.path().join("ns/mnt")));
        *pid != own && mounts_of.any(|of| of.is_ok_and(|of| of == mounts))
    };
    // Not `self`, which is this one.
    let is_number = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(is_number).filter(is_here).count()
}

/// Waits until one process waits for the server, and all others have ended.
fn one_is_left() {
    wait_until("end of all processes but one", || (processes_left() == 1).then_some(()));
}

#[test]
fn a_server_that_took_a_request_and_is_silent_keeps_neither_the_program_nor_its_status() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let (dir, packs) = (disk_dir(), disk_dir());
    let pack = pack_of(&fs, packs.path(), &dir.path().join("file"));
    let Some(fuse) = silent(dir.path()) else { return };
    // A replay that ends before it comes to the file has nothing to say of it.
    let until_asked = || wait_until("a request", || (fuse.unanswered() > 0).then_some(()));
    // Also where it goes on when its start is over.
    for (limit, expected) in [
        ("10s", "gave up on a file whose server does not answer"),
        ("1ms", SKIPPED),
        ("10s", SKIPPED),
    ] {
        let output = prefetched(&pack, limit, until_asked);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
        assert!(said.contains(expected), "{said}");
        one_is_left();
    }
    drop(fuse);
    wait_until("end of the process that waited", || (processes_left() == 0).then_some(()));
    // Another server on the same place answers.
    let Some(_fuse) = Fuse::at(dir.path(), vec![7; 8192]) else { return };
    let said = prefetched(&pack, "10s", || ()).stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains("server"), "{said}");
}

#[test]
fn a_replay_ends_when_a_server_is_silent_and_reads_what_is_local() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let (dir, lists) = (disk_dir(), disk_dir());
    let local = fs.path().join("local");
    write_synced(&local, &[7; 100 << 12]);
    fs.remount();
    let Some(fuse) = silent(dir.path()) else { return };
    let list = lists.path().join("list");
    let words = ["replay", "--json", "--", list.to_str().unwrap()];
    // More of them than there are threads.
    let served = format!("{} 0:4096\n", fuse.file().display()).repeat(200);
    fs::write(&list, format!("{served}{} 0:{}\n", local.display(), 100 << 12)).unwrap();
    let output = end_of(headstart().args(words).spawn().unwrap());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["report"]["stuck"], true, "{told}");
    assert_eq!(told["report"]["bytes"], 100 << 12, "{told}");
    assert_eq!(output.status.code(), Some(1), "a server was left behind: {told}");
    let output = end_of(headstart().args(words).spawn().unwrap());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["report"]["unserved_files"], 200, "it is not asked again: {told}");
    assert_eq!(output.status.code(), Some(1), "{told}");
    one_is_left();
}

#[test]
fn a_replay_that_is_killed_keeps_nobody_from_reading_to_the_end_what_it_said() {
    let (dir, lists) = (disk_dir(), disk_dir());
    let Some(fuse) = silent(dir.path()) else { return };
    let list = lists.path().join("list");
    fs::write(&list, format!("{} 0:4096\n", fuse.file().display())).unwrap();
    let words = ["replay", "--json", "--", list.to_str().unwrap()];
    let mut killed = headstart().args(words).spawn().unwrap();
    wait_until("a request of it", || (fuse.unanswered() > 0).then_some(()));
    killed.kill().unwrap();
    assert_eq!(end_of(killed).status.signal(), Some(9));
}

#[test]
fn sizes_of_files_that_a_server_does_not_tell_are_waited_for_once() {
    let (dir, lists) = (disk_dir(), disk_dir());
    let Some(fuse) = silent(dir.path()) else { return };
    let list = lists.path().join("list");
    fs::write(&list, format!("{}\n", fuse.file().display())).unwrap();
    for expected in ["their file server does not answer", SKIPPED] {
        let words = ["replay", "--", list.to_str().unwrap()];
        let output = end_of(headstart().args(words).spawn().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
        one_is_left();
    }
}

#[test]
fn what_a_silent_server_keeps_from_being_named_costs_a_start_little_time() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let dir = disk_dir();
    let Some(fuse) = Fuse::at(dir.path(), vec![7; 100_000]) else {
        return skip("there is no /dev/fuse");
    };
    let local = fs.path().join("local");
    write_synced(&local, &[7; 100_000]);
    let pack = fs.path().join("a.pack");
    let file = fuse.file();
    let words = ["run", "-v", "--pack", pack.to_str().unwrap(), "--", "sh", "-c"];
    let read = format!("cat {} {}; echo read; read line; exit 7", file.display(), local.display());
    let listed = || {
        let list = ["show", "--list", pack.to_str().unwrap()];
        let listed = headstart().args(list).output().unwrap().stdout;
        let listed = String::from_utf8(listed).unwrap();
        [&file, &local].map(|path| listed.contains(path.to_str().unwrap()))
    };
    for is_silent in [false, true] {
        let mut start = headstart().args(words).arg(&read).spawn().unwrap();
        let mut said = start.stdout.take().unwrap();
        let mut bytes = vec![0; 200_000 + "read\n".len()];
        std::io::Read::read_exact(&mut said, &mut bytes).unwrap();
        if is_silent {
            fuse.go_silent();
        }
        start.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let output = end_of(start);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{said}");
        assert_eq!(listed(), [true; 2], "silent: {is_silent}; {said}");
    }
    wait_until("a request without an answer", || (fuse.unanswered() > 0).then_some(()));
    // Who waited for the name waits on, and the next does not begin to.
    let output = prefetched(pack.to_str().unwrap(), "10s", || ());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(SKIPPED), "{said}");
    one_is_left();
}

#[test]
fn page_faults_and_waits_of_files_of_a_silent_server_are_told_without_it() {
    let (dir, files) = (disk_dir(), disk_dir());
    let Some(fuse) = Fuse::at(dir.path(), vec![7; 100_000]) else {
        return skip("there is no /dev/fuse");
    };
    let json = files.path().join("faults.json");
    let read = format!("cat {} >&2; echo read; read line; exit 7", fuse.file().display());
    let words = ["faults", "--waits", "--json", json.to_str().unwrap(), "--", "sh", "-c", &read];
    let mut start = headstart().args(words).spawn().unwrap();
    let mut said = [0; 5];
    let mut content = vec![0; 100_000];
    std::io::Read::read_exact(start.stderr.as_mut().unwrap(), &mut content).unwrap();
    std::io::Read::read_exact(start.stdout.as_mut().unwrap(), &mut said).unwrap();
    fuse.go_silent();
    start.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let output = end_of(start);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("A file server does not answer"), "{said}");
    assert!(fs::read_to_string(&json).unwrap().contains("main_thread"));
}

#[test]
fn files_of_a_silent_server_are_missing_in_an_import() {
    let (dir, files) = (disk_dir(), disk_dir());
    let Some(fuse) = silent(dir.path()) else { return };
    let (list, pack, local) =
        (files.path().join("list"), files.path().join("a.pack"), files.path().join("local"));
    write_synced(&local, &[7; 8192]);
    fs::write(&list, format!("{}\n{}\n", fuse.file().display(), local.display())).unwrap();
    let words = ["pack", "import", list.to_str().unwrap(), "-o", pack.to_str().unwrap()];
    let output = end_of(headstart().args(words).spawn().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("A file server does not answer"), "{said}");
    assert!(said.contains(&format!("missing here: {}", fuse.file().display())), "{said}");
}
