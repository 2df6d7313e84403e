//! Runs systemctl(1): finds it at an absolute path, and kills it if it does not answer. The only
//! place that starts it.

use super::super::machine::Machine;
use crate::host::contents;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Its path. `$PATH` may lead to another user's.
const PATHS: [&str; 3] =
    ["/usr/bin/systemctl", "/bin/systemctl", "/run/current-system/sw/bin/systemctl"];
/// How long it may take: systemd itself may hang.
const LIMIT: Duration = Duration::from_secs(5);

/// The systemctl of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Systemctl {
    program: PathBuf,
}

impl Systemctl {
    /// That of a machine; the usual one where there is none.
    pub fn of(machine: &Machine) -> Self {
        let mut paths = PATHS.iter().map(|path| machine.place(path));
        let found = paths.find(|path| path.exists());
        Self { program: found.unwrap_or_else(|| machine.place(PATHS[0])) }
    }

    /// That of this machine.
    pub fn here() -> Self {
        Self::of(&Machine::at("/"))
    }

    /// What it says, asked with these arguments, in five seconds at most. `askers` gets the
    /// number of its process.
    ///
    /// # Errors
    /// It can't be started, fails, or does not answer.
    pub fn call(&self, args: &[&str], askers: &mut Vec<i32>) -> io::Result<String> {
        call(&self.program, args, LIMIT, askers)
    }
}

fn call(
    program: &Path,
    args: &[&str],
    limit: Duration,
    askers: &mut Vec<i32>,
) -> io::Result<String> {
    // Files, not pipes: a pipe that another process keeps open would never end.
    let file = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let (mut said, mut why) = (file("stdout")?, file("stderr")?);
    let mut child = Command::new(program)
        .args(args)
        .env("SYSTEMD_PAGER", "")
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(why.try_clone()?)
        .spawn()?;
    askers.extend(i32::try_from(child.id()));
    let verb = args.first().copied().unwrap_or_default();
    let failed = |why: &str| io::Error::other(format!("systemctl {verb}: {why}"));
    if !ends(&child, limit)? {
        // A process that can't be killed is not waited for.
        child.kill()?;
        let _ = ends(&child, limit)?.then(|| child.wait());
        return Err(failed(&format!("it did not answer in {} s", limit.as_secs_f64())));
    }
    if !child.wait()?.success() {
        let why = text(&mut why)?;
        return Err(failed(why.lines().next().unwrap_or("it did not say why")));
    }
    text(&mut said)
}

/// Waits for the end of a process; whether it came in time.
fn ends(child: &Child, limit: Duration) -> io::Result<bool> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(ready) => return Ok(ready > 0),
            Err(error) => return Err(error.into()),
        }
    }
}

fn text(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    Ok(String::from_utf8_lossy(&contents::rest_of(file)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> (io::Result<String>, Vec<i32>) {
        let mut askers = Vec::new();
        let said = call(Path::new("/bin/sh"), &["-c", script], limit, &mut askers);
        (said, askers)
    }

    #[test]
    fn what_it_says_is_reported_and_why_it_fails() {
        let long = Duration::from_secs(60);
        let (said, askers) = sh("echo a; echo b", long);
        assert_eq!((said.unwrap().as_str(), askers.len()), ("a\nb\n", 1));
        let (said, _) = sh("echo a; echo no >&2; echo more >&2; exit 1", long);
        assert_eq!(said.unwrap_err().to_string(), "systemctl -c: no");
        assert!(call(Path::new("/nonexistent"), &[], long, &mut Vec::new()).is_err());
    }

    #[test]
    fn one_that_does_not_answer_is_ended_also_if_somebody_holds_its_output() {
        let began = Instant::now();
        let (said, askers) = sh("sleep 600 & exec sleep 600", Duration::from_millis(100));
        assert!(said.unwrap_err().to_string().ends_with("it did not answer in 0.1 s"));
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(!Path::new(&format!("/proc/{}", askers[0])).exists(), "it is gone");
    }

    #[test]
    fn it_is_found_by_absolute_paths_on_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let machine = Machine::at(root.path());
        assert_eq!(Systemctl::of(&machine).program, machine.place("/usr/bin/systemctl"));
        std::fs::create_dir(machine.place("/bin")).unwrap();
        std::fs::write(machine.place("/bin/systemctl"), "").unwrap();
        assert_eq!(Systemctl::of(&machine).program, machine.place("/bin/systemctl"));
        assert!(Systemctl::here().program.is_absolute());
    }
}
