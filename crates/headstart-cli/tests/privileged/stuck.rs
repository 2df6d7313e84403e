//! A file system whose server does not answer keeps neither the program nor its exit status,
//! nor the command that prints what became of the start.

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

#[test]
fn a_server_that_took_a_request_and_is_silent_keeps_neither_the_program_nor_its_status() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    let (dir, packs) = (disk_dir(), disk_dir());
    let pack = pack_of(&fs, packs.path(), &dir.path().join("file"));
    let Some(fuse) = silent(dir.path()) else { return };
    let run = ["run", "-v", "--no-learn", "--always", "--pack", &pack];
    // Also where it goes on when its start is over.
    for limit in ["10s", "1ms"] {
        let mut start = headstart();
        start.args(run).args(["--for", limit, "--", "sh", "-c", "exit 7"]);
        let output = end_of(start.spawn().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
        assert!(said.contains("left behind at a file that does not answer"), "{said}");
    }
    assert!(fuse.unanswered() > 0, "the server took requests");
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
    // One that is killed keeps nobody from reading to the end what it said.
    fs::write(&list, format!("{} 0:4096\n", fuse.file().display())).unwrap();
    let mut killed = headstart().args(words).spawn().unwrap();
    wait_until("a request of it", || (fuse.unanswered() > 0).then_some(()));
    killed.kill().unwrap();
    assert_eq!(end_of(killed).status.signal(), Some(9));
    // More of them than there are threads.
    let served = format!("{} 0:4096\n", fuse.file().display()).repeat(200);
    fs::write(&list, format!("{served}{} 0:{}\n", local.display(), 100 << 12)).unwrap();
    let output = end_of(headstart().args(words).spawn().unwrap());
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["report"]["stuck"], true, "{told}");
    assert_eq!(told["report"]["bytes"], 100 << 12, "{told}");
    // Whole files, whose sizes it asks for.
    fs::write(&list, format!("{}\n", fuse.file().display())).unwrap();
    let output = end_of(headstart().args(words).spawn().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("their file server does not answer"), "{said}");
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
}
