//! The recordings of starts, in one trace instance for all. A thread empties its buffers while there
//! are some.

use headstart::host::proc::{self, threads_of};
use headstart::trace::capture::CaptureError;
use headstart::trace::file::Capture;
use headstart::trace::forks::{Forks, keep_only, tree};
use headstart::trace::standing::{Mark, Recording, Standing};
use headstart::trace::tracefs::Tracefs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What the instance is called among ours.
const LABEL: &str = "starts";
/// The buffer of each CPU, in KiB: 30,000 events.
const BUFFER_KB: u32 = 1408;
/// How often the buffers are emptied at least, which tells whether reading has died down.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// After lost events nothing is recorded for this time.
const PAUSE: Duration = Duration::from_secs(60);
/// Once recordings have gone on for so long without a gap, no other is added until there is one: only
/// then the threads of ended recordings are dropped.
const LONGEST: Duration = Duration::from_secs(60);
/// Packs of the starts that are recorded at once take no more, in bytes, unless it is one start: with its pack,
/// 20,000 files, grows what its replay and its recording take in memory.
const MOST_PACK_BYTES: u64 = 1 << 20;

/// A recording.
#[derive(Debug)]
pub(super) struct Ticket {
    recording: Recording,
    from: Mark,
    /// When it was stopped.
    until: Option<Mark>,
    roots: Vec<i32>,
    /// Of its pack.
    pack_bytes: u64,
    /// Our thread that has files read for it.
    reader: Option<i32>,
}

/// Records starts.
#[derive(Clone, Debug)]
pub(super) struct Tracer(Arc<(Mutex<Inner>, Condvar)>);

#[derive(Debug)]
struct Inner {
    /// None after the end.
    standing: Option<Standing>,
    /// What empties its buffers.
    thread: Option<JoinHandle<()>>,
    /// Recordings that were not handed out.
    open: usize,
    /// Of those, the ones that were stopped, and wait to be handed out.
    stopped: usize,
    /// Bytes of the packs of the open ones.
    pack_bytes: u64,
    most: usize,
    since: Instant,
    not_before: Instant,
}

impl Tracer {
    /// Makes the instance, for so many recordings at once and so many bytes.
    ///
    /// # Errors
    /// Nothing can be traced here.
    pub(super) fn start(
        tracefs: &Tracefs,
        most: usize,
        bytes: usize,
    ) -> Result<Self, CaptureError> {
        let standing = Standing::create(tracefs, LABEL, BUFFER_KB, bytes)?;
        let wakes = standing.wakes().map_err(CaptureError::Read)?;
        let now = Instant::now();
        let inner = Inner {
            standing: Some(standing),
            thread: None,
            open: 0,
            stopped: 0,
            pack_bytes: 0,
            most,
            since: now,
            not_before: now,
        };
        let tracer = Self(Arc::new((Mutex::new(inner), Condvar::new())));
        let theirs = tracer.clone();
        let thread = thread::Builder::new()
            .name("trace".into())
            .spawn(move || theirs.empty_buffers(&wakes))
            .map_err(CaptureError::Read)?;
        tracer.lock().thread = Some(thread);
        Ok(tracer)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records processes from now on, of a start with a pack of so many bytes; `None` if too many are, or too
    /// large ones, or events were lost lately.
    pub(super) fn add(&self, pids: &[u32], pack_bytes: u64) -> Option<Ticket> {
        let roots: Vec<_> = pids.iter().flat_map(|pid| threads_of(pid.cast_signed())).collect();
        let mut inner = self.lock();
        let now = Instant::now();
        if inner.open == 0 {
            inner.since = now;
        }
        let is_crowded = inner.going_on() >= inner.most
            || now - inner.since >= LONGEST
            || !have_room(inner.pack_bytes, pack_bytes);
        if roots.is_empty() || is_crowded || now < inner.not_before {
            return None;
        }
        let standing = inner.standing.as_mut().filter(|standing| !standing.is_full())?;
        let begun = standing.begin(&roots);
        let Ok((recording, from)) = begun else {
            // A thread that has ended meanwhile is no trouble.
            let is_there = |tid: &i32| proc::start_time(*tid).is_some();
            if roots.iter().all(is_there) {
                inner.not_before = now + PAUSE;
            }
            inner.clear_if_idle();
            return None;
        };
        inner.open += 1;
        inner.pack_bytes = inner.pack_bytes.saturating_add(pack_bytes);
        self.0.1.notify_all();
        Some(Ticket { recording, from, until: None, roots, pack_bytes, reader: None })
    }

    /// Whether a start can be recorded now, as far as that is known before.
    pub(super) fn may_add(&self) -> bool {
        let inner = self.lock();
        inner.standing.is_some()
            && inner.going_on() < inner.most
            && Instant::now() >= inner.not_before
    }

    /// How many recordings go on.
    pub(super) fn open(&self) -> usize {
        self.lock().open
    }

    /// For how long a recorded program has read nothing, and whether no more is kept.
    pub(super) fn activity(&self, ticket: &Ticket) -> (Duration, bool) {
        let inner = self.lock();
        let of = |standing: &Standing| {
            (standing.idle_for(ticket.recording).unwrap_or(Duration::MAX), standing.is_full())
        };
        inner.standing.as_ref().map_or((Duration::MAX, true), of)
    }

    /// From now on metadata that threads read which the calling one makes counts as read by the program:
    /// they look up its files before it does.
    pub(super) fn follow_own_reads(&self, ticket: &mut Ticket) {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut inner = self.lock();
        let joined =
            inner.standing.as_mut().map(|standing| standing.join(ticket.recording, &[own]));
        ticket.reader = joined.is_some_and(|joined| joined.is_ok()).then_some(own);
    }

    /// Stops a recording, which is handed out later: what comes now is none of it.
    pub(super) fn stop(&self, ticket: &mut Ticket) {
        let mut inner = self.lock();
        // If this fails, handing it out does so as well, and says it.
        ticket.until = inner.standing.as_mut().and_then(|standing| {
            standing.end(ticket.recording);
            standing.collect().ok()?;
            standing.mark().ok()
        });
        inner.stopped += usize::from(ticket.until.is_some());
    }

    /// Ends a recording and hands it out.
    ///
    /// # Errors
    /// It can't be read or decoded.
    pub(super) fn finish(&self, ticket: &Ticket) -> Result<Capture, CaptureError> {
        let mut inner = self.lock();
        let taken = inner.take(ticket);
        let lost = taken.as_ref().is_ok_and(|(capture, _)| capture.description.lost > 0);
        if lost || taken.is_err() {
            inner.not_before = Instant::now() + PAUSE;
        }
        inner.close(ticket);
        // Others may begin while this is decoded.
        drop(inner);
        let (mut capture, forks) = taken?;
        let forks = forks.of(&capture.pages);
        let readers = ticket.reader.map(|own| tree(&[own], &forks));
        capture.description.metadata_tids = readers.into_iter().flatten().collect();
        let tids = tree(&ticket.roots, &forks);
        keep_only(&mut capture, &tids)?;
        Ok(capture)
    }

    /// Ends a recording without a result.
    pub(super) fn drop(&self, ticket: Ticket) {
        self.lock().close(&ticket);
    }

    /// Removes the instance. Nothing is recorded any more.
    pub(super) fn end(&self) {
        let (standing, thread) = {
            let mut inner = self.lock();
            (inner.standing.take(), inner.thread.take())
        };
        self.0.1.notify_all();
        // The kernel removes no instance while a descriptor of its buffers is open, which that thread has.
        let _ = thread.map(JoinHandle::join);
        standing.into_iter().for_each(Standing::remove);
    }

    fn empty_buffers(&self, wakes: &[OwnedFd]) {
        loop {
            let mut inner = self.lock();
            while inner.open == 0 && inner.standing.is_some() {
                inner = self.0.1.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(standing) = &mut inner.standing else { return };
            // What can't be read now is lost, and counted.
            let _ = standing.collect();
            let is_full = standing.is_full();
            drop(inner);
            wait(if is_full { &[] } else { wakes });
        }
    }
}

impl Inner {
    fn take(&mut self, ticket: &Ticket) -> Result<(Capture, Forks), CaptureError> {
        let ended = || CaptureError::Read(io::ErrorKind::NotConnected.into());
        let standing = self.standing.as_mut().ok_or_else(ended)?;
        let until = match ticket.until {
            Some(until) => until,
            None => {
                standing.collect().map_err(CaptureError::Read)?;
                standing.mark()?
            }
        };
        let capture = standing.between(ticket.from, until);
        Ok((capture, standing.forks().clone()))
    }

    /// Recordings that were not stopped.
    fn going_on(&self) -> usize {
        self.open.saturating_sub(self.stopped)
    }

    fn close(&mut self, ticket: &Ticket) {
        self.open = self.open.saturating_sub(1);
        self.pack_bytes = self.pack_bytes.saturating_sub(ticket.pack_bytes);
        self.stopped = self.stopped.saturating_sub(usize::from(ticket.until.is_some()));
        self.standing.iter_mut().for_each(|standing| standing.end(ticket.recording));
        self.clear_if_idle();
    }

    fn clear_if_idle(&mut self) {
        if let (0, Some(standing)) = (self.open, &mut self.standing)
            && standing.clear().is_err()
        {
            self.not_before = Instant::now() + PAUSE;
        }
    }
}

/// Whether a start with a pack of so many bytes is recorded beside others.
fn have_room(of_others: u64, bytes: u64) -> bool {
    of_others == 0 || of_others.saturating_add(bytes) <= MOST_PACK_BYTES
}

fn wait(wakes: &[OwnedFd]) {
    let mut fds: Vec<_> = wakes.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // An error is a wake-up.
    let _ = poll(&mut fds, Some(&LOOK));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_start_is_recorded_alone_and_small_ones_together() {
        for (of_others, bytes, expected) in [
            (0, 0, true),
            (0, 10 * MOST_PACK_BYTES, true),
            (1, MOST_PACK_BYTES - 1, true),
            (1, MOST_PACK_BYTES, false),
            (10 * MOST_PACK_BYTES, 0, false),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(have_room(of_others, bytes), expected, "{of_others} {bytes}");
        }
    }
}
