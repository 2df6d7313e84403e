//! A terminal with a job in it, as a shell with job control runs one.

use super::invocations::{DEADLINE, Invocations};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Child;

/// The shell: leads a session at the terminal it is given, puts a job in the
/// foreground, tells how it fares and continues it when told to.
const SHELL: &str = r#"
import os, signal, sys
name, how, job = sys.argv[1], sys.argv[2], sys.argv[3:]
# Python's own handler would swallow one before the exec.
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.setsid()
tty = os.open(name, os.O_RDWR)

def run():
    for fd in range(3):
        os.dup2(tty, fd)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTOU):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(job[0], job)

if how == "leader":
    run()
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    if how == "foreground":
        os.tcsetpgrp(tty, os.getpid())
    run()
try:
    os.setpgid(pid, pid)
except PermissionError:
    pass  # It has done so itself, and more.
if how == "foreground":
    os.tcsetpgrp(tty, pid)
print("job", pid, flush=True)
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFEXITED(status):
        sys.exit(print("exited", os.WEXITSTATUS(status), flush=True))
    if os.WIFSIGNALED(status):
        sys.exit(print("killed", os.WTERMSIG(status), flush=True))
    os.tcsetpgrp(tty, os.getpgrp())
    print("stopped", os.WSTOPSIG(status), flush=True)
    order = sys.stdin.readline()
    os.tcsetpgrp(tty, pid)
    os.kill(-pid if order == "fg\n" else pid, signal.SIGCONT)
"#;

/// A terminal, its shell and the job.
pub struct Terminal {
    master: Option<File>,
    /// Always open, or reading from the master would end between jobs.
    other_end: File,
    shown: Vec<u8>,
    shell: Child,
    said: Vec<u8>,
}

impl Terminal {
    /// Runs a job in the `foreground`, in the `background`, or as the `leader`
    /// of its session, without a shell.
    pub fn new(invocations: &Invocations, how: &str, job: &[OsString]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let other_end = File::options().read(true).write(true).open(&name).unwrap();
        let line = ["python3", "-c", SHELL, &name, how].map(OsStr::new);
        let line = line.into_iter().chain(job.iter().map(OsString::as_os_str));
        let mut command = invocations.command(&line.collect::<Vec<_>>());
        Self {
            master: Some(File::from(master)),
            other_end,
            shown: Vec::new(),
            shell: command.env("PERL_SIGNALS", "unsafe").spawn().unwrap(),
            said: Vec::new(),
        }
    }

    /// Takes the terminal away.
    pub fn hang_up(&mut self) {
        self.master = None;
    }

    /// The terminal itself.
    pub fn master(&mut self) -> &mut File {
        self.master.as_mut().unwrap()
    }

    /// What the shell says next.
    pub fn told(&mut self) -> String {
        let from = self.shell.stdout.as_mut().unwrap();
        let line = read_up_to("\n", &mut self.said, from);
        line.trim_end().to_owned()
    }

    /// The number of the job's leader, which the shell says first.
    pub fn job(&mut self) -> i32 {
        self.told().strip_prefix("job ").unwrap().parse().unwrap()
    }

    /// Types something.
    pub fn type_in(&mut self, keys: &str) {
        self.master().write_all(keys.as_bytes()).unwrap();
    }

    /// Tells the shell to continue its job: `fg` for all of it, else its
    /// leader only.
    pub fn order(&mut self, order: &str) {
        writeln!(self.shell.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Waits until `text` is shown and returns what was shown up to then and
    /// not returned before.
    pub fn shows(&mut self, text: &str) -> String {
        read_up_to(text, &mut self.shown, self.master.as_mut().unwrap())
    }

    /// What was shown and not returned before.
    pub fn rest(&mut self) -> String {
        // Nobody else writes any more.
        writeln!(&self.other_end, "<the end>").unwrap();
        self.shows("<the end>")
    }
}

/// Reads until there is this text; what came up to its end. Not for ever.
fn read_up_to(text: &str, before: &mut Vec<u8>, from: &mut (impl Read + AsFd)) -> String {
    loop {
        let found = before.windows(text.len()).position(|w| w == text.as_bytes());
        if let Some(at) = found {
            let came: Vec<u8> = before.drain(..at + text.len()).collect();
            return String::from_utf8_lossy(&came).into_owned();
        }
        let so_far = String::from_utf8_lossy(before);
        let ready = poll(&mut [PollFd::new(&*from, PollFlags::IN)], Some(&DEADLINE)).unwrap();
        assert!(ready == 1, "no {text:?} came, but {so_far:?}");
        let mut buffer = [0; 4096];
        let length = from.read(&mut buffer).unwrap();
        assert!(length > 0, "no {text:?} came before the end, but {so_far:?}");
        before.extend(&buffer[..length]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.shell.kill();
        self.shell.wait().unwrap();
    }
}
