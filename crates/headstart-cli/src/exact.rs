//! `record --exact`: a process of its own follows the program by ptrace, since a tracer gets the
//! stops of all traced processes, and the helper has children of its own to wait for. It is this
//! program again, with an argument that is no verb.

use crate::exit::ExitStatus;
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart::trace::exact::{Processes, follow};
use headstart_sys::{descriptors, signals};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The argument with which this program is the helper.
const WORD: &str = "follow-pages";

/// A helper that waits for a process number, or follows that process.
pub struct Follower {
    helper: Child,
    says: BufReader<ChildStdout>,
}

impl Follower {
    /// Starts it. What is recorded from the calling thread on must not be armed yet.
    pub fn start() -> anyhow::Result<Self> {
        let mut helper = Command::new("/proc/self/exe")
            .arg(WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("Can't start a helper")?;
        let says = helper.stdout.take().map(BufReader::new).context("The helper has no pipe")?;
        Ok(Self { helper, says })
    }

    /// Makes it follow a program that waits to be released.
    pub fn attach(&mut self, pid: i32) -> anyhow::Result<()> {
        let input = self.helper.stdin.as_mut().context("The helper has no pipe")?;
        writeln!(input, "{pid}").context("Can't write to the helper")?;
        let mut answer = String::new();
        self.says.read_line(&mut answer).context("Can't read from the helper")?;
        match answer.trim() {
            WORKS => Ok(()),
            "" => bail!("The helper died"),
            why => bail!("{why}"),
        }
    }

    /// Ends the tracing; the program goes on. Returns how many of its processes were recorded
    /// exactly; `None` if the helper was killed.
    pub fn end(mut self) -> Option<Processes> {
        drop(self.helper.stdin.take());
        let said = String::from_utf8(contents::rest_of(&mut self.says).ok()?).ok()?;
        let (registered, failed) = said.trim().split_once(' ')?;
        Some(Processes { registered: registered.parse().ok()?, failed: failed.parse().ok()? })
    }
}

impl Drop for Follower {
    /// Ends the tracing; the program goes on.
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        // It ends then.
        let _ = self.helper.wait();
    }
}

/// What the helper says when it follows.
const WORKS: &str = "ok";

/// Whether this process is the helper.
pub fn is_helper() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// The helper: reads a process number, follows that, and ends with it or when its
/// standard input does.
pub fn help() -> anyhow::Result<ExitStatus> {
    signals::block();
    // What the program closes must not stay open here. Without /proc nothing works anyway.
    let _ = descriptors::close_others();
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).context("Can't read a process number")?;
    if line.is_empty() {
        // There is no program to follow.
        return Ok(ExitStatus::Done);
    }
    let Ok(pid) = line.trim().parse() else {
        bail!("{WORD} is for headstart itself: use `headstart record --exact -- CMD`");
    };
    let enough = Arc::new(AtomicBool::new(false));
    let is_enough = Arc::clone(&enough);
    let listen = move || {
        // Nothing more is said: this waits for the end.
        let _ = contents::rest_of(input);
        is_enough.store(true, Ordering::Relaxed);
        // A signal as from a stop of the program wakes the loop.
        let _ = kill_process(getpid(), Signal::CHILD);
    };
    thread::Builder::new().name("input".into()).spawn(listen).context("Can't start a thread")?;
    // A parent that does not read this is gone.
    let say = |text: &str| drop(writeln!(std::io::stdout(), "{text}"));
    let Processes { registered, failed } = follow(pid, &enough, |begun| match begun {
        Ok(()) => say(WORKS),
        Err(error) => say(&format!("the program can't be followed by ptrace: {error}")),
    });
    say(&format!("{registered} {failed}"));
    Ok(ExitStatus::Done)
}
