//! Begins and ends the service. This thread reads execs and feeds the watchdog.

use super::arrival::Arrival;
use super::handle::Handled;
use super::pool::Pool;
pub use super::shared::{Places, Tell};
use super::shared::{Shared, Watching};
use super::tracer::Tracer;
use super::{early, folios, found, keeper, socket, watcher};
use crate::config::Config;
use crate::execs::forks::Forkers;
use crate::execs::pace::Pace;
use crate::execs::reads::Again;
use crate::execs::traced::Traced;
use crate::execs::{Exec, Seen, Source};
use headstart::boot::machine::Machine;
use headstart::boot::record::remove_orphans;
use headstart::host::clock::monotonic_ns;
use headstart::host::error::causes;
use headstart::host::proc;
use headstart::service::notify;
use headstart::trace::tracefs::{TraceError, Tracefs};
use headstart_sys::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Threads that look at execs, execs that one of them gets at once at most, and how many such batches
/// may wait.
const LOOKERS: usize = 2;
const BATCH: usize = 8;
const WAITING_BATCHES: usize = 512;
/// Starts that may wait for a replay.
const WAITING_STARTS: usize = 32;
/// How often it is checked whether the service ends, and the watchdog is fed.
const LOOK: Duration = Duration::from_millis(500);
/// How often the watchdog is fed.
const FEED: Duration = Duration::from_secs(1);
/// How long threads may take to end: one may wait for a file server.
const END: Duration = Duration::from_secs(5);
const LOOK_AT_END: Duration = Duration::from_millis(10);

/// Why the service can't run.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// Execs can't be seen here.
    #[error("Can't see which programs start")]
    Source(#[source] io::Error),
    /// Nothing can be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It sees the numbers of another namespace.
    #[error("The service needs the first PID namespace: run it outside of containers")]
    Container,
    /// The socket can't be made.
    #[error("Can't listen at {path}")]
    Socket {
        /// Where it should be.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// There are no threads.
    #[error("Can't start a thread")]
    Thread(#[source] io::Error),
}

/// Runs the service until a signal, or `off`.
///
/// # Errors
/// It can't begin.
pub fn run(config: Config, places: Places, tell: Tell) -> Result<(), ServiceError> {
    if !proc::in_first_pid_namespace() {
        return Err(ServiceError::Container);
    }
    let interrupt = Interrupt::catch().map_err(ServiceError::Source)?;
    let at = |source| ServiceError::Socket {
        path: headstart::host::names::path(&places.socket).to_string(),
        source,
    };
    let listener = socket::listen(&places).map_err(at)?;
    // What a killed service left.
    remove_orphans(&Machine::at("/"));
    let tracefs = Tracefs::locate()?;
    let (forkers, again) = (Forkers::default(), Again::default());
    let source = Traced::start(&tracefs, forkers.clone(), again.clone());
    let mut source = source.map_err(ServiceError::Source)?;
    let tracer = match config.learn {
        true => Tracer::start(&tracefs, config.recordings, config.trace_memory)
            .map_err(|error| causes(&error)),
        false => Err("it is switched off".into()),
    };
    if let (Err(why), true) = (&tracer, config.learn) {
        tell(&format!("nothing is learned: {why}"));
    }
    let (mut state, damage) = keeper::read(&places.state);
    damage.iter().for_each(|why| tell(why));
    found::add(&mut state.table, &places);
    let replays = config.replays;
    state.table.iter().for_each(|(_, program)| forkers.add(&program.forker));
    let watching = Watching { events: source.events(), forkers, again };
    let shared = Arc::new(Shared::new(config, places, tell, watching, tracer, state));
    let threads = begin(&shared, listener, replays).map_err(ServiceError::Thread)?;
    notify(notify::READY);
    let ended = read_execs(&shared, &mut source, &interrupt, &threads.execs);
    notify(notify::STOPPING);
    shared.stop();
    // Before the threads: their end may take a while, and nothing shall be traced any more.
    drop(source);
    threads.end(&shared);
    ended.map_err(ServiceError::Source)
}

/// The threads of the service.
struct Threads {
    execs: Pool<Vec<Exec>>,
    starts: Arc<Pool<Handled>>,
    others: Vec<JoinHandle<()>>,
}

fn begin(
    shared: &Arc<Shared>,
    listener: std::os::unix::net::UnixListener,
    replays: usize,
) -> io::Result<Threads> {
    let theirs = Arc::clone(shared);
    let handle = move |start: Handled| start.run(&theirs);
    let starts = Arc::new(Pool::start("start", replays, WAITING_STARTS, handle)?);
    let (watcher, watcher_thread) = watcher::start(Arc::clone(shared), Arc::clone(&starts))?;
    let (early, early_thread) = early::start(Arc::clone(shared))?;
    let arrival = Arrival::new(Arc::clone(shared), Arc::clone(&starts), watcher, early);
    let look = move |batch: Vec<Exec>| batch.into_iter().for_each(|exec| arrival.exec(exec));
    let execs = Pool::start("exec", LOOKERS, WAITING_BATCHES, look)?;
    let control = socket::serve(Arc::clone(shared), listener)?;
    let (keeper, folios) = (keeper::start(Arc::clone(shared))?, folios::start(Arc::clone(shared))?);
    let others = vec![watcher_thread, control, keeper, early_thread, folios];
    Ok(Threads { execs, starts, others })
}

impl Threads {
    fn end(self, shared: &Shared) {
        let Self { execs, starts, others } = self;
        let mut left = execs.end();
        left.extend(others);
        wait_for(&mut left);
        // The watcher and the threads of `execs` have given their share back, unless one is stuck.
        let mut left = Arc::into_inner(starts).map(Pool::end).unwrap_or_default();
        wait_for(&mut left);
        shared.tracer.iter().for_each(Tracer::end);
        keeper::keep_last(shared);
    }
}

/// Waits until threads have ended, for a while.
fn wait_for(threads: &mut Vec<JoinHandle<()>>) {
    let until = Instant::now() + END;
    while !threads.is_empty() && Instant::now() < until {
        threads.retain(|thread| !thread.is_finished());
        std::thread::sleep(LOOK_AT_END);
    }
}

/// Reads execs until the service ends, and feeds the watchdog.
fn read_execs(
    shared: &Shared,
    source: &mut dyn Source,
    interrupt: &Interrupt,
    pool: &Pool<Vec<Exec>>,
) -> io::Result<()> {
    let mut execs = Vec::new();
    let mut pace = Pace::default();
    let mut fed = Instant::now();
    while !shared.stops() {
        let mut fds = [
            PollFd::from_borrowed_fd(source.fd(), PollFlags::IN),
            PollFd::new(interrupt, PollFlags::IN),
        ];
        let wait = until_due(source).map_or(LOOK, |due| due.min(LOOK));
        // An error is a wake-up.
        let _ = poll(&mut fds, Timespec::try_from(wait).ok().as_ref());
        if interrupt.came() {
            break;
        }
        if fed.elapsed() >= FEED {
            notify(notify::WATCHDOG);
            fed = Instant::now();
        }
        execs.clear();
        let lost = source.read(&mut execs)?.0;
        let all = execs.len() as u64;
        execs.retain(|exec| exec.seen != Seen::Exec || is_there(exec.pid));
        let gone = all - execs.len() as u64;
        let give =
            |batch: &[Exec]| pool.give(batch.to_vec()).map_or_else(|batch| batch.len(), |()| 0);
        let missed = execs.chunks(BATCH).map(give).sum::<usize>() as u64;
        shared.count(|counters| {
            counters.execs += all;
            counters.gone += gone;
            counters.lost_execs += lost;
            counters.missed_execs += missed;
        });
        if let Some(pause) = pace.after(all, monotonic_ns()) {
            gather(source, interrupt, pause);
        }
    }
    Ok(())
}

/// Waits for this time while execs gather, or until something does not wait for more.
fn gather(source: &dyn Source, interrupt: &Interrupt, pause: Duration) {
    let urgent = source.urgent().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut fds: Vec<_> = urgent.into_iter().collect();
    fds.push(PollFd::new(interrupt, PollFlags::IN));
    let wait = until_due(source).map_or(pause, |due| due.min(pause));
    let _ = poll(&mut fds, Timespec::try_from(wait).ok().as_ref());
}

fn until_due(source: &dyn Source) -> Option<Duration> {
    source.due().map(|at| Duration::from_nanos(at.saturating_sub(monotonic_ns())))
}

/// Whether a process is there, by a call that opens nothing. Most of a machine that executes many programs
/// have ended by now, and need wake no thread.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

fn notify(what: &str) {
    let socket: Option<OsString> = std::env::var_os("NOTIFY_SOCKET");
    // systemd restarts what it does not hear of.
    let _ = notify::tell(socket.as_deref(), what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_its_parent_has_seen_its_end() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(is_there(std::process::id()) && is_there(child.id()));
        child.wait().unwrap();
        assert!(!is_there(child.id()));
    }
}
