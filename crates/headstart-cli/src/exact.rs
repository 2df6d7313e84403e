//! `record --exact`: a helper of its own process follows the program, since what follows
//! a program hears of all its stops, and headstart has its own children to wait for. The
//! helper is this program again, by a word that is no verb.

use crate::exit::ExitStatus;
use anyhow::{Context, bail};
use headstart::trace::exact::follow;
use headstart_sys::signals;
use rustix::process::{Signal, getpid, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What this program is told to be the helper.
const WORD: &str = "follow-pages";

/// A helper that waits to be told whom to follow, or follows.
pub struct Follower(Child);

impl Follower {
    /// Starts it. What is recorded from the calling thread on must not be armed yet.
    pub fn start() -> anyhow::Result<Self> {
        Command::new("/proc/self/exe")
            .arg(WORD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map(Self)
            .context("Can't start a helper")
    }

    /// Has it follow a program that waits to be let go.
    pub fn attach(&mut self, pid: i32) -> anyhow::Result<()> {
        let (Some(told), Some(tells)) = (&mut self.0.stdin, &mut self.0.stdout) else {
            bail!("The helper has no pipes");
        };
        writeln!(told, "{pid}").context("Can't tell the helper")?;
        let mut answer = String::new();
        BufReader::new(tells).read_line(&mut answer).context("Can't hear the helper")?;
        match answer.trim() {
            WORKS => Ok(()),
            "" => bail!("The helper died"),
            why => bail!("{why}"),
        }
    }
}

impl Drop for Follower {
    /// Lets the program go on unfollowed.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends as soon as all threads of the program were let go.
        let _ = self.0.wait();
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
    let mut told = BufReader::new(std::io::stdin());
    let mut line = String::new();
    told.read_line(&mut line).context("Can't read whom to follow")?;
    let Ok(pid) = line.trim().parse() else {
        bail!("{WORD} is for headstart itself: use `headstart record --exact -- CMD`");
    };
    let enough = Arc::new(AtomicBool::new(false));
    let is_enough = Arc::clone(&enough);
    let listen = move || {
        // Nothing more is said: this waits for the end.
        let _ = told.read_to_end(&mut Vec::new());
        is_enough.store(true, Ordering::Relaxed);
        // As if the program had stopped: that is looked at.
        let _ = kill_process(getpid(), Signal::CHILD);
    };
    thread::Builder::new().name("told".into()).spawn(listen).context("Can't start a thread")?;
    follow(pid, &enough, |begun| {
        let answer = match begun {
            Ok(()) => WORKS.to_owned(),
            Err(error) => format!("the program can't be followed: {error}"),
        };
        // Whoever does not hear it is gone.
        let _ = writeln!(std::io::stdout(), "{answer}");
    });
    Ok(ExitStatus::Done)
}
