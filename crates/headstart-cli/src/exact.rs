//! `record --exact`: a helper of its own process follows the program, since what follows
//! a program hears of all its stops, and headstart has its own children to wait for. The
//! helper is this program again, by a word that is no verb.

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

/// What this program is told to be the helper.
const WORD: &str = "follow-pages";

/// A helper that waits to be told whom to follow, or follows.
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

    /// Has it follow a program that waits to be let go.
    pub fn attach(&mut self, pid: i32) -> anyhow::Result<()> {
        let told = self.helper.stdin.as_mut().context("The helper has no pipe")?;
        writeln!(told, "{pid}").context("Can't tell the helper")?;
        let mut answer = String::new();
        self.says.read_line(&mut answer).context("Can't hear the helper")?;
        match answer.trim() {
            WORKS => Ok(()),
            "" => bail!("The helper died"),
            why => bail!("{why}"),
        }
    }

    /// Lets the program go on unfollowed, if it still is; of how many of its processes
    /// pages showed by themselves. `None` when it is not known, as when somebody killed the
    /// helper.
    pub fn end(mut self) -> Option<Processes> {
        drop(self.helper.stdin.take());
        let said = String::from_utf8(contents::rest_of(&mut self.says).ok()?).ok()?;
        let (registered, failed) = said.trim().split_once(' ')?;
        Some(Processes { registered: registered.parse().ok()?, failed: failed.parse().ok()? })
    }
}

impl Drop for Follower {
    /// Lets the program go on unfollowed.
    fn drop(&mut self) {
        drop(self.helper.stdin.take());
        // It waits for nobody then.
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
    signals::hold_back();
    // What the program closes must not stay open here. Without /proc nothing works anyway.
    let _ = descriptors::close_others();
    let mut told = BufReader::new(std::io::stdin());
    let mut line = String::new();
    told.read_line(&mut line).context("Can't read whom to follow")?;
    if line.is_empty() {
        // There is nobody to follow after all.
        return Ok(ExitStatus::Done);
    }
    let Ok(pid) = line.trim().parse() else {
        bail!("{WORD} is for headstart itself: use `headstart record --exact -- CMD`");
    };
    let enough = Arc::new(AtomicBool::new(false));
    let is_enough = Arc::clone(&enough);
    let listen = move || {
        // Nothing more is said: this waits for the end.
        let _ = contents::rest_of(told);
        is_enough.store(true, Ordering::Relaxed);
        // As if the program had stopped: that is looked at.
        let _ = kill_process(getpid(), Signal::CHILD);
    };
    thread::Builder::new().name("told".into()).spawn(listen).context("Can't start a thread")?;
    // Whoever does not hear us is gone.
    let say = |text: &str| drop(writeln!(std::io::stdout(), "{text}"));
    let Processes { registered, failed } = follow(pid, &enough, |begun| match begun {
        Ok(()) => say(WORKS),
        Err(error) => say(&format!("the program can't be followed by ptrace: {error}")),
    });
    say(&format!("{registered} {failed}"));
    Ok(ExitStatus::Done)
}
