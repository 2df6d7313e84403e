//! Sees execs by one of three kernel interfaces, and says what that cost. The development tool of
//! `bench/exec-sources.py`; the product has the trace instance only.
//!
//! Usage: `exec_sources SOURCE CHECK PAUSE FILE [MARK…]`
//!
//! SOURCE is `trace`, `connector`, `connector-all` (without the kernel's filter), `fanotify`
//! (file handles) or `fanotify-fd`. CHECK is what is done for each exec: `none`, `stat` (which
//! executable is it?) or `read` (all of `Started`). PAUSE is how many microseconds it sleeps
//! after it was woken, so that execs gather. For fanotify, MARKs are `+PATH` for file systems and
//! `-FILE` for files that are ignored.
//!
//! Writes `ready`, goes on until its standard input ends, then writes PID, time of the exec and
//! time seen of each into FILE, as 64-bit numbers, and a summary as JSON.

mod connector;
mod fanotify;

use headstart::trace::tracefs::Tracefs;
use headstart_daemon::execs::forks::Forkers;
use headstart_daemon::execs::reads::Again;
use headstart_daemon::execs::traced::Traced;
use headstart_daemon::execs::{Exec, Source};
use headstart_daemon::started::Started;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--version"] {
        println!("exec_sources {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    let [source, check, pause, file, marks @ ..] = &words[..] else {
        return Err("usage: exec_sources SOURCE CHECK PAUSE FILE [MARK…]".into());
    };
    let pause = Duration::from_micros(pause.parse()?);
    let mut source: Box<dyn Source> = match &source[..] {
        "trace" => {
            Box::new(Traced::start(&Tracefs::locate()?, Forkers::default(), Again::default())?)
        }
        "connector" => Box::new(connector::Connector::listen(true)?),
        "connector-all" => Box::new(connector::Connector::listen(false)?),
        "fanotify" => Box::new(fanotify::Fanotify::mark(true, marks)?),
        "fanotify-fd" => Box::new(fanotify::Fanotify::mark(false, marks)?),
        other => return Err(format!("there is no source {other}").into()),
    };
    println!("ready");
    io::stdout().flush()?;
    let (mut seen, mut wakes, mut lost, mut gone) = (Vec::new(), 0u64, 0u64, 0u64);
    let mut execs = Vec::new();
    let stdin = io::stdin();
    let began = now(ClockId::ProcessCPUTime);
    loop {
        let ended = {
            let source = source.fd();
            let mut fds = [
                PollFd::new(&stdin, PollFlags::IN),
                PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            ];
            poll(&mut fds, None)?;
            !fds[0].revents().is_empty()
        };
        wakes += 1;
        execs.clear();
        lost += source.read(&mut execs)?.0;
        let at = now(ClockId::Monotonic);
        for Exec { pid, at: called, .. } in &execs {
            seen.extend([u64::from(*pid), *called, at]);
            gone += u64::from(!is_there(check, *pid)?);
        }
        if ended {
            break;
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let cpu_ns = now(ClockId::ProcessCPUTime) - began;
    let bytes: Vec<u8> = seen.iter().flat_map(|number| number.to_ne_bytes()).collect();
    std::fs::write(file, bytes)?;
    let execs = seen.len() / 3;
    println!(
        "{}",
        serde_json::json!({ "execs": execs, "lost": lost, "gone": gone, "wakes": wakes, "cpu_ns": cpu_ns })
    );
    Ok(())
}

/// Makes the check of an exec; false when the process was gone.
fn is_there(check: &str, pid: u32) -> Result<bool, Box<dyn Error>> {
    match check {
        "none" => Ok(true),
        "stat" => Ok(rustix::fs::stat(format!("/proc/{pid}/exe")).is_ok()),
        "read" => Ok(Started::read(pid).is_some()),
        other => Err(format!("there is no check {other}").into()),
    }
}

/// A clock, in nanoseconds.
fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
