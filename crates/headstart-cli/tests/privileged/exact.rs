//! `record --exact`: pages show without fault-around pages, and the program notices nothing.

use crate::command::{headstart, json};
use headstart_testing::{
    LoopFs, disk_dir, is_root, must, noise, python, skip, undisturbed, write_synced,
};
use rustix::fs::{Advice, fadvise};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maps each file and looks at three of its pages, all of which are in memory: one in a
/// thread, one after fork(2) in the child, one in a program that is executed.
const PROGRAM: &str = r#"
import mmap, os, sys, threading
def look(path, page):
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        pages[page * 4096]
if len(sys.argv) == 3:
    look(sys.argv[1], int(sys.argv[2]))
    sys.exit()
here, forked, executed = sys.argv[1].split(",")
thread = threading.Thread(target=lambda: look(here, 3))
thread.start()
thread.join()
look(here, 20)
child = os.fork()
if child == 0:
    look(forked, 40)
    os._exit(0)
os.waitpid(child, 0)
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[-1], executed, "41"])
os.wait()
sys.exit(7)
"#;

/// The pages of a file that a pack has, as `show --json` says.
fn pages_in(pack: &str, path: &Path) -> Vec<u64> {
    let shown = json(&["show", "--json", pack]);
    let files = shown["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == path.to_str().unwrap()).unwrap();
    let ranges = file["ranges"].as_array().unwrap();
    let mapped = ranges
        .iter()
        .filter(|range| range["how"].as_array().unwrap().iter().any(|how| how == "mapped"));
    mapped
        .flat_map(|range| {
            let from = range["offset"].as_u64().unwrap() / 4096;
            from..from + range["length"].as_u64().unwrap() / 4096
        })
        .collect()
}

/// Waits for what happens in another process.
fn until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not happen");
        std::thread::yield_now();
    }
}

fn each_page_shows(kind: &'static str) {
    let Some(python) = python() else { return };
    let Some(fs) = LoopFs::new(kind) else { return };
    let files = ["here", "forked", "executed"].map(|name| fs.path().join(name));
    for file in &files {
        write_synced(file, &noise(64 * 4096));
    }
    let script = fs.path().join("script.py");
    std::fs::write(&script, PROGRAM).unwrap();
    let list = files.each_ref().map(|file| file.to_str().unwrap()).join(",");
    let script = script.to_str().unwrap();
    let start = [python.as_str(), "-I", "-S", script, &list, "x", script];
    let packs = disk_dir();
    let pack = |name: &str| packs.path().join(name).to_str().unwrap().to_owned();
    let (exact, plain) = (pack("exact.pack"), pack("plain.pack"));
    // Page by page, which makes small folios: of a large one that is in use at the moment no
    // page at all is mapped beside another.
    let into_memory = || {
        for file in &files {
            let file = std::fs::File::open(file).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            fadvise(&file, 0, None, Advice::Random).unwrap();
            (0..64).for_each(|page| file.read_exact_at(&mut [0], page * 4096).unwrap());
        }
    };
    let learn = |options: &[&str], pack: &str| {
        let _ = std::fs::remove_file(pack);
        into_memory();
        let record = [&["record"], options, &["--pack", pack, "--"]].concat();
        let recorded = headstart(&[&record[..], &start].concat());
        assert_eq!(recorded.status.code(), Some(7), "{recorded:?}");
    };
    undisturbed(&[fs.path()], || learn(&["--exact"], &exact));
    undisturbed(&[fs.path()], || learn(&[], &plain));
    let expected = [vec![3, 20], vec![40], vec![41]];
    for (file, expected) in files.iter().zip(&expected) {
        assert_eq!(&pages_in(&exact, file), expected, "{}", file.display());
        let all = pages_in(&plain, file);
        assert!(all.len() >= expected.len() * 8, "{}: {all:?}", file.display());
    }
    // Later starts from memory, in which fault-around pages are mapped, leave it so.
    undisturbed(&[fs.path()], || {
        into_memory();
        let later = headstart(&[&["run", "-v", "--pack", &exact, "--"], &start[..]].concat());
        assert_eq!(later.status.code(), Some(7), "{later:?}");
    });
    for (file, expected) in files.iter().zip(&expected) {
        assert_eq!(&pages_in(&exact, file), expected, "{}", file.display());
    }
}

#[test]
fn only_pages_that_a_start_looked_at_are_learned_on_ext4() {
    each_page_shows("ext4");
}

#[test]
fn only_pages_that_a_start_looked_at_are_learned_on_xfs() {
    each_page_shows("xfs");
}

#[test]
fn only_pages_that_a_start_looked_at_are_learned_on_btrfs() {
    each_page_shows("btrfs");
}

/// A shell that is followed, with its input and output.
fn recording(words: &[&str], script: &str) -> Option<Child> {
    if !is_root() {
        skip("recording needs root");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.args(["record", "--exact"]).args(words).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command.spawn().unwrap())
}

#[test]
fn a_followed_program_keeps_its_input_its_descriptors_and_its_status() {
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let program = "read line; echo $line; ls /proc/self/fd | wc -l; exit 5";
    let Some(mut run) = recording(&["--pack", pack.to_str().unwrap()], program) else { return };
    writeln!(run.stdin.take().unwrap(), "hello").unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let alone = Command::new("sh").args(["-c", program]).stdin(Stdio::piped()).output().unwrap();
    let descriptors = String::from_utf8_lossy(&alone.stdout).trim_start().to_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("hello\n{descriptors}"));
}

#[test]
fn a_followed_program_gets_signals_and_may_be_stopped_and_continued() {
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let beats = packs.path().join("beats");
    let program = format!(
        "trap 'echo caught; exit 3' TERM; echo $$; while :; do echo >>{}; done",
        beats.display()
    );
    let Some(mut run) = recording(&["--pack", pack.to_str().unwrap()], &program) else { return };
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let pid: i32 = lines.next().unwrap().unwrap().parse().unwrap();
    let beaten = || std::fs::metadata(&beats).map_or(0, |m| m.len());
    let send = |signal: &str| {
        assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
    };
    until(|| beaten() > 0);
    send("-STOP");
    // Stopped, it makes no progress in the time of a hundred looks at it; followed, it is
    // seen in the same state at each system call.
    until(|| {
        let before = beaten();
        (0..100).for_each(|_| drop(std::fs::read(format!("/proc/{pid}/stat")).unwrap()));
        Command::new("true").status().unwrap();
        beaten() == before
    });
    let stopped_at = beaten();
    send("-CONT");
    until(|| beaten() > stopped_at);
    send("-TERM");
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(run.wait().unwrap().code(), Some(3));
}

#[test]
fn a_program_is_let_go_when_its_start_is_over_and_is_not_known_exactly() {
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let program = "echo $$; read line; exit 4";
    let words = ["--for", "100ms", "--pack", pack.to_str().unwrap()];
    let Some(mut run) = recording(&words, program) else { return };
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let pid: i32 = lines.next().unwrap().unwrap().parse().unwrap();
    until(|| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|line| line.split_whitespace().eq(["TracerPid:", "0"])) && pack.exists()
    });
    writeln!(run.stdin.take().unwrap(), "go on").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(4));
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("; learned; "), "{said}");
    // What it looks at later would seem to be fault-around pages of this.
    assert!(said.contains("give it more with --for"), "{said}");
    let shown = json(&["show", "--json", pack.to_str().unwrap()]);
    assert!(!shown.to_string().contains("\"exact\""), "{shown}");
}

#[test]
fn threads_that_wait_for_each_other_in_a_loop_of_system_calls_go_on() {
    let Some(python) = python() else { return };
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    // Two spin until the third has had its turn a hundred times.
    let program = "import os, threading, sys
turns = 0
def spin():
    while turns < 100:
        os.sched_yield()
def work():
    global turns
    while turns < 100:
        os.getppid()
        turns += 1
threads = [threading.Thread(target=t) for t in (spin, spin, work)]
[t.start() for t in threads]
[t.join() for t in threads]
sys.exit(6)";
    let script = format!("exec {python} -I -S -c '{program}'");
    let Some(mut run) = recording(&["--pack", pack.to_str().unwrap()], &script) else { return };
    assert_eq!(run.wait().unwrap().code(), Some(6));
}

#[test]
fn a_program_that_can_not_be_executed_is_reported_as_ever() {
    if !is_root() {
        return skip("recording needs root");
    }
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let words = ["record", "--exact", "--pack", pack.to_str().unwrap(), "--", "/no/such/program"];
    let output = headstart(&words);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Can't run /no/such/program") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_program_outlives_a_killed_headstart_and_a_killed_helper() {
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    for victim in ["headstart", "helper"] {
        let end = packs.path().join(victim);
        let script = format!("echo $$; echo $PPID; read line; echo ended >{}", end.display());
        // Without headstart the helper goes on recording until then.
        let options = ["--for", "1s", "--pack", pack.to_str().unwrap()];
        let Some(mut run) = recording(&options, &script) else { return };
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
        let pid: i32 = lines.next().unwrap().unwrap().parse().unwrap();
        let headstart = lines.next().unwrap().unwrap();
        let tracer = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("TracerPid:")).unwrap();
            line.trim().to_owned()
        };
        let killed = if victim == "headstart" { headstart } else { tracer() };
        assert!(Command::new("kill").args(["-9", &killed]).status().unwrap().success());
        until(|| tracer() == "0");
        writeln!(run.stdin.take().unwrap(), "go on").unwrap();
        until(|| std::fs::read_to_string(&end).is_ok_and(|text| text == "ended\n"));
        run.wait().unwrap();
    }
}

/// Is killed at the system call with which pages are made to show, and then is another program.
const FILTERED: &str = r#"
import ctypes, os, struct
USERFAULTFD, KILL, ALLOW = 323, 0x80000000, 0x7fff0000
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
code = b"".join(struct.pack("HBBI", *step) for step in (
    (LOAD_NUMBER, 0, 0, 0), (IF_EQUAL, 0, 1, USERFAULTFD), (RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)))
kept = ctypes.create_string_buffer(code)
class Filter(ctypes.Structure):
    _fields_ = ("steps", ctypes.c_ushort), ("at", ctypes.c_void_p)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
libc = ctypes.CDLL(None)
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
made = Filter(4, ctypes.addressof(kept))
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(made)) == 0
os.execv("/bin/sh", ["sh", "-c", "exit 9"])
"#;

#[test]
fn a_program_under_a_seccomp_filter_makes_no_system_call_of_headstart() {
    let Some(python) = python() else { return };
    let packs = disk_dir();
    let pack = packs.path().join("a.pack");
    let script = format!("exec {python} -I -S -c '{FILTERED}'");
    let Some(run) = recording(&["--pack", pack.to_str().unwrap()], &script) else { return };
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
}

#[test]
fn a_followed_program_gets_the_rights_of_a_set_uid_file() {
    let dir = disk_dir();
    let (id, pack) = (dir.path().join("id"), dir.path().join("a.pack"));
    let found = must("sh", &["-c", "command -v id"]);
    std::fs::copy(found.trim(), &id).unwrap();
    std::fs::set_permissions(&id, std::fs::Permissions::from_mode(0o4755)).unwrap();
    // By its descriptor, since others may not look into the directory.
    let script = format!(
        "exec 3<{}; exec setpriv --reuid 65534 --clear-groups /proc/self/fd/3 -u",
        id.display()
    );
    let Some(run) = recording(&["--pack", pack.to_str().unwrap()], &script) else { return };
    let output = run.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
}

/// A program for 32 bits that ends with status 9: ELF header, one segment, and
/// `mov eax, 1; mov ebx, 9; int 0x80` (elf(5), Intel SDM volume 2).
fn program_of_32_bits() -> Vec<u8> {
    const AT: u32 = 0x0804_8000;
    let half = |n: u16| n.to_le_bytes().to_vec();
    let word = |n: u32| n.to_le_bytes().to_vec();
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 9, 0, 0, 0, 0xcd, 0x80];
    let headers = 52 + 32;
    let bytes = headers + code.len() as u32;
    [
        b"\x7fELF\x01\x01\x01".to_vec(),
        vec![0; 9],
        // ET_EXEC, EM_386, version, entry, where the segment is told, no sections, flags.
        [half(2), half(3), word(1), word(AT + headers), word(52), word(0), word(0)].concat(),
        [half(52), half(32), half(1), half(0), half(0), half(0)].concat(),
        // PT_LOAD: all of the file, to be read and executed.
        [word(1), word(0), word(AT), word(AT), word(bytes), word(bytes), word(5), word(4096)]
            .concat(),
        code.to_vec(),
    ]
    .concat()
}

#[test]
fn a_program_for_32_bits_runs_on_beside_those_that_are_followed() {
    let dir = disk_dir();
    let (program, pack) = (dir.path().join("program"), dir.path().join("a.pack"));
    std::fs::write(&program, program_of_32_bits()).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let by_itself = Command::new("sh").args(["-c", program.to_str().unwrap()]).status().unwrap();
    // 126 and a message where the kernel runs no such programs.
    let expected = by_itself.code();
    let script = format!("{}; status=$?; cat $0 >/dev/null; exit $status", program.display());
    let Some(run) = recording(&["--pack", pack.to_str().unwrap()], &script) else { return };
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), expected, "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    if expected == Some(9) {
        assert!(said.contains("1 processes could not be learned exactly"), "{said}");
    }
}
