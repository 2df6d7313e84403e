//! One program started in several invocations that must not differ: bare, and
//! through headstart, which learns, prefetches, or may do neither.

use headstart_testing::{is_root, must};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

/// Nothing here takes a second; this is for a machine that is busy.
pub const DEADLINE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// Who owns no process and no file, on every distribution.
const NOBODY: &str = "65534";

/// A copy of headstart that every user may execute, and packs of its own.
pub struct Invocations {
    dir: tempfile::TempDir,
}

/// An invocation through headstart: its name, and the words before the program.
pub type ReadStrategy = (&'static str, Vec<OsString>);

/// What came out of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Came {
    /// Its exit status as a shell tells it.
    pub status: i32,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it wrote there.
    pub stderr: Vec<u8>,
}

impl Invocations {
    /// A new copy, without packs.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        open(dir.path());
        install(Path::new(env!("CARGO_BIN_EXE_headstart")), &dir.path().join("headstart"));
        let scratch = dir.path().join("scratch");
        for own in [scratch.clone(), dir.path().join("packs")] {
            std::fs::create_dir(&own).unwrap();
            open(&own);
        }
        std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o1777)).unwrap();
        Self { dir }
    }

    /// The copy.
    pub fn headstart(&self) -> PathBuf {
        self.dir.path().join("headstart")
    }

    /// A directory where every user may write.
    pub fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    /// Where the packs are.
    pub fn packs(&self) -> PathBuf {
        self.dir.path().join("packs")
    }

    /// For each user that can be had the words before the bare command, and
    /// the invocations through headstart with the words between.
    pub fn users(&self) -> Vec<(Vec<OsString>, Vec<ReadStrategy>)> {
        let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let through = |list: &[&str]| [vec![self.headstart().into()], words(list)].concat();
        let run = through(&["run", "--no-walk", "--"]);
        let here = vec![
            ("first run", run.clone()),
            ("second run", run.clone()),
            ("run that does nothing", through(&["run", "--no-learn", "--no-replay", "--"])),
        ];
        if !is_root() {
            return vec![(Vec::new(), here)];
        }
        let nobody = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"];
        let nobody = [words(&["setpriv"]), words(&nobody)].concat();
        vec![(Vec::new(), here), (nobody, vec![("run without root", run)])]
    }

    /// Starts `prefix` and then `program` bare and in every other invocation, and
    /// compares what `view` makes of what came.
    pub fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        name: &str,
        prefix: &[&OsStr],
        program: &[&OsStr],
        stdin: &[u8],
        view: impl Fn(Came) -> T,
    ) {
        for (user, invocations) in self.users() {
            let start = |through: &[OsString]| {
                let words = user.iter().map(OsString::as_os_str).chain(prefix.iter().copied());
                let words = words.chain(through.iter().map(OsString::as_os_str));
                view(self.start(&words.chain(program.iter().copied()).collect::<Vec<_>>(), stdin))
            };
            let bare = start(&[]);
            for (invocation, through) in invocations {
                assert_eq!(start(&through), bare, "{name}, {invocation}, user {user:?}");
            }
        }
    }

    /// Starts a command with the packs and waits for its end.
    pub fn start(&self, words: &[&OsStr], stdin: &[u8]) -> Came {
        let mut child = self.command(words).spawn().unwrap();
        let (mut to, mut from, mut err) = (
            child.stdin.take().unwrap(),
            child.stdout.take().unwrap(),
            child.stderr.take().unwrap(),
        );
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = thread::scope(|scope| {
            scope.spawn(move || {
                // Programs need not read it.
                let _ = to.write_all(stdin);
            });
            scope.spawn(|| from.read_to_end(&mut stdout).unwrap());
            scope.spawn(|| err.read_to_end(&mut stderr).unwrap());
            end_of(&mut child)
        });
        Came { status: told(status), stdout, stderr }
    }

    /// The same, not yet started.
    pub fn command(&self, words: &[&OsStr]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("HEADSTART_PACKS", self.packs()).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Copies a program. Not in this process: a child that another test starts at
/// this moment would keep it open for writing for a while, and busy.
pub fn install(from: &Path, to: &Path) {
    must("install", &["-m", "755", from.to_str().unwrap(), to.to_str().unwrap()]);
}

/// Waits for a child's end, but not for ever.
pub fn end_of(child: &mut Child) -> ExitStatus {
    let pid = Pid::from_child(child);
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&DEADLINE)).unwrap() == 0 {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        child.kill().unwrap();
        panic!("it hangs: {state}");
    }
    child.wait().unwrap()
}

/// An exit status as a shell tells it.
pub fn told(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Words as the commands above take them.
pub fn words<'a>(list: &[&'a str]) -> Vec<&'a OsStr> {
    list.iter().map(|word| OsStr::new(*word)).collect()
}

/// The state of a process: `S` sleeps, `T` is stopped (proc(5)).
pub fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}
