//! One start: a program from its exec to its end, or until it is ready; all of its processes are
//! ended afterwards.

use crate::output;
use headstart::host::contents;
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use headstart::host::proc;
use headstart_sys::interrupt::Interrupt;
use headstart_sys::process::{Change, Usage, look};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, set_child_subreaper,
};

use super::ready::{Ready, Watcher};

/// How long a program may take to end after SIGTERM, and again after SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// How much of a program's messages is kept in memory, about.
const KEPT: u64 = 64 << 10;
/// How often the rest is freed.
const TIDY: Duration = Duration::from_millis(250);
/// Looks that take in all that a pipe or a socket holds.
const LOOKS: u32 = 16;

/// How programs are started and waited for.
#[derive(Debug)]
pub struct Starter {
    /// When a start is over.
    pub ready: Ready,
    /// How long one may take.
    pub timeout: Duration,
    /// Whether the programs' output goes to standard error.
    pub show_output: bool,
    /// Whether a status other than 0 is as good.
    pub any_status: bool,
    /// Tells when to stop everything.
    pub interrupt: Interrupt,
    /// Children that are no program's: see [`Starter::keep_children`].
    pub others: RefCell<Vec<i32>>,
}

/// A program under way.
#[derive(Debug)]
pub struct Running {
    pid: Pid,
    end: OwnedFd,
    watcher: Watcher,
    messages: Option<File>,
}

/// How waiting for a start came to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitEnd {
    /// The program ended.
    Ended,
    /// It is ready.
    Ready,
    /// It took too long.
    TimedOut,
    /// We are to stop.
    Interrupted,
}

/// What is done with the processes that an ended one left running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leftovers {
    /// They are ended: they would keep files in memory, and file systems busy.
    End,
    /// They go on.
    Keep,
}

/// A start that is over.
#[derive(Debug)]
pub struct Finished {
    /// What it cost, with all processes that it left behind and were ended.
    pub usage: Usage,
    /// Its exit status, unless a signal ended it.
    pub exit_code: Option<i32>,
    /// Why it doesn't count.
    pub failure: Option<String>,
    /// Processes it left behind, which were ended.
    pub left_behind: u64,
}

impl Running {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> anyhow::Result<bool> {
        has_ended(&self.end, Duration::ZERO)
    }
}

impl Starter {
    /// Makes this process the one that gets the orphans of those it starts.
    pub fn adopt_orphans() -> anyhow::Result<()> {
        set_child_subreaper(Some(rustix::process::getpid()))
            .context("Can't look after the programs' processes")
    }

    /// Does not end present children with the next program: they existed before us, or a preparing
    /// command left them, such as the server of a mount.
    pub fn keep_children(&self) {
        *self.others.borrow_mut() = our_children();
    }

    /// Looks out for the condition; before the cache is prepared, since that
    /// may start something.
    pub fn watch(&self) -> anyhow::Result<Watcher> {
        Watcher::new(&self.ready, self.show_output)
    }

    /// Starts a program.
    pub fn spawn(&self, words: &[OsString], mut watcher: Watcher) -> anyhow::Result<Running> {
        let (program, arguments) = words.split_first().context("There is no program to start")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).process_group(0);
        let mut messages = None;
        if self.show_output {
            let ours = || io::stderr().as_fd().try_clone_to_owned();
            command.stdout(ours().context("Can't pass on the output")?);
        } else {
            let file = messages_file()?;
            command.stdout(Stdio::null()).stderr(file.try_clone()?);
            messages = Some(file);
        }
        watcher.prepare(&mut command)?;
        let child = command
            .spawn()
            .with_context(|| format!("Can't run {}", output::shown(program.as_ref())))?;
        let pid = Pid::from_child(&child);
        let end = pidfd_open(pid, PidfdFlags::empty()).context("Can't watch the program")?;
        Ok(Running { pid, end, watcher, messages })
    }

    /// Waits until the start is over; also returns when.
    pub fn wait(&self, running: &mut Running) -> anyhow::Result<(WaitEnd, Instant)> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let nap = running.watcher.tick().unwrap_or(TIDY).min(left);
            let ended = {
                let watched = running.watcher.descriptor();
                let mut fds = vec![
                    PollFd::new(&running.end, PollFlags::IN),
                    PollFd::new(&self.interrupt, PollFlags::IN),
                ];
                fds.extend(watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
                wait_for(&mut fds, nap)?;
                !fds[0].revents().is_empty()
            };
            let now = Instant::now();
            running.messages.iter().for_each(forget_most);
            // The last output of an ended program is complete, and may take several reads.
            let looks = if ended { LOOKS } else { 1 };
            for _ in 0..looks {
                if running.watcher.check(running.pid)? {
                    return Ok((WaitEnd::Ready, now));
                }
            }
            if ended {
                return Ok((WaitEnd::Ended, now));
            }
            if self.interrupt.came() {
                return Ok((WaitEnd::Interrupted, now));
            }
            if now >= deadline {
                return Ok((WaitEnd::TimedOut, now));
            }
        }
    }

    /// Ends the program, unless it has ended, and tells what it cost.
    pub fn finish(
        &self,
        running: Running,
        over: WaitEnd,
        rest: Leftovers,
    ) -> anyhow::Result<Finished> {
        let Running { pid, end, mut watcher, messages } = running;
        let until_end = matches!(watcher, Watcher::End);
        if over != WaitEnd::Ended {
            end_group(pid, &end, &mut watcher)?;
        }
        // A watcher of the bus is a child too.
        drop(watcher);
        let (change, mut usage) = reap(pid)?;
        let mut left_behind = 0;
        if rest == Leftovers::End {
            left_behind = end_children(&mut usage, &self.others.borrow())?;
        }
        if over != WaitEnd::Ended {
            // It was not left to end its processes by itself.
            left_behind = 0;
        }
        let exit_code = match change {
            Change::Exited(status) => Some(status),
            Change::Killed(_) | Change::Stopped(_) => None,
        };
        let why = self.judge(over, change, until_end);
        let failure = why.map(|why| match messages.as_ref().and_then(last_line) {
            Some(line) => format!("{why}; its last message: {line}"),
            None => why,
        });
        Ok(Finished { usage, exit_code, failure, left_behind })
    }

    /// Why a start doesn't count.
    fn judge(&self, over: WaitEnd, change: Change, until_end: bool) -> Option<String> {
        let ended = match change {
            Change::Exited(status) => format!("it ended with status {status}"),
            Change::Killed(signal) | Change::Stopped(signal) => {
                format!("signal {signal} ended it")
            }
        };
        match over {
            WaitEnd::Ready => None,
            WaitEnd::Interrupted => Some("interrupted".into()),
            WaitEnd::TimedOut => Some(format!(
                "it took longer than {}{}",
                humantime::format_duration(self.timeout),
                if until_end {
                    "; when it isn't meant to end, say when it is ready: --ready"
                } else {
                    " to be ready; allow more: --timeout"
                }
            )),
            WaitEnd::Ended if !until_end => {
                Some(format!("{ended} before {}; it must stay in the foreground", self.ready))
            }
            WaitEnd::Ended => match change {
                Change::Exited(0) => None,
                Change::Exited(_) if self.any_status => None,
                Change::Exited(_) => Some(format!("{ended}; --ignore-failure takes that as good")),
                _ => Some(ended),
            },
        }
    }
}

/// Polls, whatever signals come in between.
fn wait_for(fds: &mut [PollFd<'_>], time: Duration) -> anyhow::Result<()> {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    match poll(fds, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e).context("Can't wait"),
    }
}

/// Asks a program and its process group to end, and makes it after a while.
fn end_group(pid: Pid, end: &OwnedFd, watcher: &mut Watcher) -> anyhow::Result<()> {
    // Who has ended already needs no signal.
    let _ = kill_process_group(pid, Signal::TERM);
    let begin = Instant::now();
    while !has_ended(end, Duration::from_millis(10))? {
        // It may block until its output is read.
        watcher.read_lines()?;
        if begin.elapsed() >= 2 * GRACE {
            return cannot_end(pid);
        }
        if begin.elapsed() >= GRACE {
            let _ = kill_process_group(pid, Signal::KILL);
            // It may have left its group.
            let _ = pidfd_send_signal(end, Signal::KILL);
        }
    }
    Ok(())
}

/// The failure of a process that survives all signals.
fn cannot_end(pid: Pid) -> anyhow::Result<()> {
    let pid = pid.as_raw_nonzero();
    bail!(
        "Process {pid} can't be ended; if it is another user's, run the benchmark as that user, \
           and end it by hand"
    )
}

fn has_ended(end: &OwnedFd, within: Duration) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(end, PollFlags::IN)];
    wait_for(&mut fds, within)?;
    Ok(!fds[0].revents().is_empty())
}

/// The status and resource usage of an ended process.
fn reap(pid: Pid) -> anyhow::Result<(Change, Usage)> {
    let seen = look(pid.as_raw_nonzero().get()).context("Can't look after a process")?;
    seen.context("A process that had ended goes on")
}

/// The processes whose parent this one is.
pub(super) fn our_children() -> Vec<i32> {
    proc::children(rustix::process::getpid().as_raw_nonzero().get())
}

/// Ends the processes that a program left behind; how many of them were running.
fn end_children(usage: &mut Usage, others: &[i32]) -> anyhow::Result<u64> {
    let mut running = 0;
    // Those that end leave their own children to us.
    loop {
        let children = our_children().into_iter().filter(|pid| !others.contains(pid));
        let children: Vec<Pid> = children.filter_map(Pid::from_raw).collect();
        if children.is_empty() {
            return Ok(running);
        }
        for pid in children {
            let end = pidfd_open(pid, PidfdFlags::empty()).context("Can't watch a process")?;
            // Who has ended was only not waited for.
            running += u64::from(!has_ended(&end, Duration::ZERO)?);
            for signal in [Signal::TERM, Signal::KILL] {
                let _ = pidfd_send_signal(&end, signal);
                if has_ended(&end, GRACE)? {
                    break;
                }
            }
            if !has_ended(&end, Duration::ZERO)? {
                cannot_end(pid)?;
            }
            let (_, more) = reap(pid)?;
            usage.major_faults += more.major_faults;
            usage.minor_faults += more.minor_faults;
            usage.user_us += more.user_us;
            usage.system_us += more.system_us;
        }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // An error may have left a program or a peer behind.
        let _ = end_children(&mut Usage::default(), self.others.get_mut());
    }
}

/// A file in memory for a program's standard error.
pub(super) fn messages_file() -> anyhow::Result<File> {
    let file = memfd_create("messages", MemfdFlags::CLOEXEC);
    Ok(File::from(file.context("Can't make a file for the program's messages")?))
}

/// Frees the memory of all but the end of a program's messages.
fn forget_most(messages: &File) {
    let old = messages.metadata().map_or(0, |meta| meta.len()).saturating_sub(KEPT);
    if old > 0 {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Memory that can't be freed is freed when the start is over.
        let _ = fallocate(messages, flags, 0, old);
    }
}

/// The last line of a program's messages, if there is one.
pub(super) fn last_line(mut messages: &File) -> Option<String> {
    const ENOUGH: u64 = 4096;
    let length = messages.seek(SeekFrom::End(0)).ok()?;
    messages.seek(SeekFrom::Start(length.saturating_sub(ENOUGH))).ok()?;
    let text = contents::rest_of(messages).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
