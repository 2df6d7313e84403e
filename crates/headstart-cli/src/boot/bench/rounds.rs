//! Runs the rounds of boots: starts the commands, and keeps their figures.

use crate::output;
use anyhow::{Context, bail};
use headstart_bench::boots::{Boot, BootArm, Figures, figures};
use headstart_bench::stats::order::Order;
use headstart_sys::interrupt::Interrupt;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often it is looked whether a command has ended.
const TICK: Duration = Duration::from_millis(20);
/// How long a command may take to end when it is asked to, and its output to close.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a command's output that are kept, the last.
const KEPT: usize = 1 << 20;

/// A command that boots a machine.
#[derive(Clone, Debug)]
pub struct BootCommand {
    /// What the results call it.
    pub name: String,
    words: Vec<OsString>,
    shown: String,
}

impl BootCommand {
    /// Words, started as they are.
    pub fn words(name: &str, words: &[OsString]) -> Self {
        let shown: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        Self { name: name.into(), words: words.to_vec(), shown: shown.join(" ") }
    }

    /// A line for a shell.
    pub fn shell(name: &str, command: &str) -> Self {
        let words = ["sh", "-c", command].map(OsString::from).to_vec();
        Self { name: name.into(), words, shown: command.into() }
    }
}

/// All boots.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By arm.
    pub arms: Vec<BootArm>,
    /// Rounds that were completed.
    pub rounds: usize,
    /// Whether somebody ended it.
    pub interrupted: bool,
}

/// Measures. A command that fails in the first round ends it with an error; later on, a
/// failed boot is one without figures.
pub fn measure(
    arms: &[BootCommand],
    rounds: usize,
    seed: u64,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let interrupt = Interrupt::catch().context("Can't watch for signals")?;
    let arm = |arm: &BootCommand| BootArm {
        name: arm.name.clone(),
        command: arm.shown.clone(),
        boots: Vec::new(),
    };
    let mut measured =
        Measured { arms: arms.iter().map(arm).collect(), rounds: 0, interrupted: false };
    for (at, order) in Order::new(seed, arms.len()).take(rounds).enumerate() {
        let mut boots = Vec::new();
        for (place, index) in order.into_iter().enumerate() {
            let arm = &arms[index];
            progress(&format!("round {} of {rounds}: {}", at + 1, arm.name));
            let booted = boot(arm, limit, &interrupt)?;
            if interrupt.came() {
                measured.interrupted = true;
                break;
            }
            let (figures, failure) = match booted {
                Ok(figures) => (figures, None),
                Err(why) if at == 0 => bail!("The first boot failed ({}): {why}", arm.name),
                Err(why) => (Figures::new(), Some(why)),
            };
            boots.push((index, Boot { round: at + 1, place: place + 1, figures, failure }));
        }
        if measured.interrupted {
            break;
        }
        boots.into_iter().for_each(|(index, boot)| measured.arms[index].boots.push(boot));
        measured.rounds = at + 1;
    }
    progress("");
    if measured.rounds == 0 {
        bail!("Interrupted before a round was measured");
    }
    Ok(measured)
}

/// Boots once: the figures, or why there are none.
fn boot(
    arm: &BootCommand,
    limit: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<Result<Figures, String>> {
    let program = &arm.words[0];
    let mut child = Command::new(program)
        .args(&arm.words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What it leaves behind can be ended with it.
        .process_group(0)
        .spawn()
        .with_context(|| format!("Can't start {}", output::shown(program.as_ref())))?;
    let out = child.stdout.take().context("Can't read what the command says")?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = send.send(last_bytes(out));
    });
    let in_time = has_ended(&child, limit, &|| interrupt.wait(TICK))?;
    if !in_time {
        signal_group(&child, Signal::TERM);
        // A rig takes things down before it ends.
        has_ended(&child, GRACE, &|| {
            std::thread::sleep(TICK);
            false
        })?;
    }
    // As long as its end is not taken note of its number is no other's.
    signal_group(&child, Signal::KILL);
    let status = child.wait().context("Can't wait for the command")?;
    if !in_time {
        return Ok(Err(format!("it took longer than {}", humantime::format_duration(limit))));
    }
    if !status.success() {
        return Ok(Err(format!("its command ended with {status}")));
    }
    let Ok(said) = receive.recv_timeout(GRACE) else {
        return Ok(Err("something that its command left behind keeps its output open".into()));
    };
    let found = figures(&String::from_utf8_lossy(&said));
    Ok(found.ok_or_else(|| "its command printed no line with the seconds".into()))
}

/// Waits until a command has ended, which is not taken note of yet; whether it has
/// within this time. `tick` waits a little, and returns whether to give up.
fn has_ended(child: &Child, limit: Duration, tick: &dyn Fn() -> bool) -> anyhow::Result<bool> {
    let deadline = Instant::now().checked_add(limit);
    let Some(pid) = pid_of(child) else { return Ok(true) };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while waitid(WaitId::Pid(pid), options).context("Can't wait for the command")?.is_none() {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) || tick() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tells a command and all that it left.
fn signal_group(child: &Child, signal: Signal) {
    if let Some(pid) = pid_of(child) {
        // Nobody may be left.
        let _ = kill_process_group(pid, signal);
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn last_bytes(mut from: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 8192];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..n]);
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    kept
}

/// A line on a terminal that the next one replaces.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        output::progress(text);
    }
}
