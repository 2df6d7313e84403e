//! Getting a start's pack ready: it is found, decoded, judged, planned, and its replay
//! begun. With a large pack that happens beside the start, which does not wait for it
//! longer than it was told to: a pack of 100,000 files takes 30 ms.

use super::policy::{Bounds, FREQUENT, read_strategy};
use crate::host::error::causes;
use crate::host::memory;
use crate::host::mounts::Mounts;
use crate::pack::Pack;
use crate::pack::store::{self, StoreError};
use crate::profile::seen;
use crate::replay::benefit::Expected;
use crate::replay::engine::{Options, Replay};
use crate::replay::frequency::Choice;
use crate::replay::model::Model;
use crate::replay::models::Models;
use crate::replay::plan::Plan;
use crate::replay::sample;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// From this many learned starts on, one start more teaches little.
pub const WELL_KNOWN: u32 = 3;
/// Where tracing costs more than there is to gain, a well known program is traced once
/// in this time, should it have become another.
const LEARN_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
/// A pack up to this size, which holds some 10,000 files, is ready sooner than another
/// thread would be worth, in bytes.
const SMALL: u64 = 256 << 10;

/// Said of a start from memory that is not learned.
const HOT: &str = "in memory and well known, so not traced";
/// Said of a start that is prefetched in part and not learned.
const CROWDED: &str = "its files need more memory than the control group leaves, so not traced";

/// What is to be got ready.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The pack, if it is not the program's own.
    pub explicit: Option<PathBuf>,
    /// The names that the program's own may have, as [`store::find`] takes them.
    pub file_names: Vec<String>,
    /// How it is prefetched, if it is.
    pub replay: Option<Ahead>,
}

impl Wanted {
    /// Whether the pack is so large that it takes a while to be ready.
    fn is_large(&self) -> bool {
        let dirs = || store::search_path(is_root(), variable).into_iter().flatten();
        let own = self.file_names.iter().flat_map(|name| dirs().map(move |dir| dir.join(name)));
        let mut paths = self.explicit.clone().into_iter().chain(own);
        paths.find_map(|path| path.metadata().ok()).is_some_and(|meta| meta.len() > SMALL)
    }
}

/// How a pack is prefetched.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// What the user limits.
    pub bounds: Bounds,
    /// Whether that is done even if it is not worth it.
    pub always: bool,
    /// Whether the start is learned.
    pub learn: bool,
    /// When the process began.
    pub began: Instant,
    /// How long the program waits for us.
    pub max_delay: Duration,
}

/// What is ready.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The pack, if there is one.
    pub pack: Option<Pack>,
    /// Where it is learned.
    pub path: PathBuf,
    /// What the user is told.
    pub notes: Vec<String>,
    /// What prefetches.
    pub replay: Option<Replay>,
    /// Whether it was measured how the device of the pack behaves.
    pub device_known: bool,
    /// What was expected of prefetching, if the device is known.
    pub expected: Option<Expected>,
    /// Whether learning from this start is not worth it.
    pub skip_recording: bool,
    /// Whether a sample was in memory.
    hot: bool,
    /// How it is prefetched once the program is under way, if that is still to begin.
    later: Option<Ahead>,
}

/// Something that gets ready, or is.
#[derive(Debug)]
pub struct Preparation {
    ready: Option<Box<Prepared>>,
    coming: Option<Receiver<Box<Prepared>>>,
}

impl Preparation {
    /// Does it at once.
    pub fn now(wanted: &Wanted) -> Self {
        Self { ready: Some(Box::new(Prepared::of(wanted))), coming: None }
    }

    /// Does it in a thread, if that is worth it.
    pub fn beside(wanted: Wanted) -> Self {
        if !wanted.is_large() {
            return Self::now(&wanted);
        }
        let (tell, coming) = channel();
        let theirs = wanted.clone();
        let work = move || {
            let mut prepared = Prepared::of(&theirs);
            prepared.begin_late();
            drop(tell.send(Box::new(prepared)));
        };
        match thread::Builder::new().name("prepare".into()).spawn(work) {
            Ok(_) => Self { ready: None, coming: Some(coming) },
            Err(_) => Self::now(&wanted),
        }
    }

    /// What is ready within this time.
    pub fn within(&mut self, limit: Duration) -> Option<&mut Prepared> {
        if self.ready.is_none() {
            self.ready = self.coming.as_ref()?.recv_timeout(limit).ok();
        }
        self.ready.as_deref_mut()
    }

    /// Begins what was left for when the program is under way.
    pub fn begin_late(&mut self) {
        if let Some(prepared) = &mut self.ready {
            prepared.begin_late();
        }
    }

    /// Whether there is nothing more to do for it.
    pub fn is_finished(&mut self) -> bool {
        let has_ended = |prepared: &mut Prepared| {
            prepared.later.is_none() && prepared.replay.as_ref().is_none_or(Replay::is_finished)
        };
        self.within(Duration::ZERO).is_some_and(has_ended)
    }

    /// What is ready at last; nothing, if that failed.
    pub fn finish(self) -> Prepared {
        let come = || self.coming.and_then(|coming| coming.recv().ok());
        *self.ready.or_else(come).unwrap_or_default()
    }
}

impl Prepared {
    fn of(wanted: &Wanted) -> Self {
        let from = Instant::now();
        let mut prepared = Self::default();
        let found = known_pack(wanted.explicit.as_deref(), &wanted.file_names);
        (prepared.path, prepared.pack) = found.unwrap_or_else(|failure| {
            let (path, error) = *failure;
            // There is no place for what would be learned.
            prepared.skip_recording = matches!(error, StoreError::RelativeDirectory(_));
            prepared.notes.push(causes(&error));
            (path, None)
        });
        if let (Some(ahead), Some(pack)) = (&wanted.replay, prepared.pack.take()) {
            let choice = FREQUENT.choice(&pack);
            if may_begin_late(&pack, ahead) && sample::is_in_memory(&pack, &choice, uid()) {
                prepared.leave_for_later(ahead);
            } else {
                prepared.replay(&pack, &choice, ahead, from);
            }
            prepared.pack = Some(pack);
        }
        prepared
    }

    /// Lets a program that finds its files in memory start at once and untraced: all else
    /// would only cost.
    fn leave_for_later(&mut self, ahead: &Ahead) {
        if ahead.learn {
            self.skip_recording = true;
            self.notes.push(HOT.into());
        }
        self.hot = true;
        self.later = Some(Ahead { learn: false, ..*ahead });
    }

    /// Begins what was left for later.
    fn begin_late(&mut self) {
        if let Some(ahead) = self.later.take()
            && let Some(pack) = self.pack.take()
        {
            self.replay(&pack, &FREQUENT.choice(&pack), &ahead, Instant::now());
            self.pack = Some(pack);
        }
    }

    /// Begins to read a pack ahead, if that is worth it or is wanted always.
    fn replay(&mut self, pack: &Pack, choice: &Choice, ahead: &Ahead, from: Instant) {
        let mounts = Mounts::default();
        let model = Models::here().of_pack(pack, &mounts);
        self.device_known = model.is_some();
        let expected = model.map(|model| Expected::of(pack, choice, &model));
        self.expected = expected;
        if let Some(expected) = expected.filter(|_| !ahead.always) {
            self.skip_recording(pack, ahead, &expected);
            if !expected.has_benefit() {
                return self.leave_alone(&expected);
            }
        }
        match begin(pack, choice, (model, mounts), ahead, self.hot) {
            Ok(replay) => {
                let may_spare = ahead.learn && !ahead.always && is_known_lately(pack);
                let left = ahead.max_delay.saturating_sub(from.elapsed());
                if ahead.learn && !ahead.always && is_learned_lately(pack) && is_crowded(&replay) {
                    self.skip_recording = true;
                    self.notes.push(CROWDED.into());
                }
                // Tracing would only cost then. The program would wait for the same later.
                if may_spare && replay.finds_all_in_memory(left) {
                    self.skip_recording = true;
                    self.notes.push(HOT.into());
                }
                self.replay = Some(replay);
            }
            Err(error) => self.notes.push(format!("nothing was prefetched: {error}")),
        }
    }

    /// Leaves a program alone that gains less than a replay costs.
    fn leave_alone(&mut self, expected: &Expected) {
        let ms = |us: u64| us as f64 / 1e3;
        let (gain, cost) = (ms(expected.gain_us().1), ms(expected.cost_us));
        self.notes.push(format!(
            "no expected benefit here: prefetching gains at most {gain:.1} ms and costs {cost:.1} ms"
        ));
    }

    /// Does not learn from a start that would be slower for it than without us, if
    /// enough others taught us.
    fn skip_recording(&mut self, pack: &Pack, ahead: &Ahead, expected: &Expected) {
        if ahead.learn && is_known_lately(pack) && !expected.should_record() {
            self.skip_recording = true;
            self.notes
                .push("well known, so not traced, which would cost more than it gains".into());
        }
    }
}

/// Begins to read a pack ahead, by the model of its device; `sampled`: a sample of it was in
/// memory.
///
/// # Errors
/// No thread can be had.
fn begin(
    pack: &Pack,
    choice: &Choice,
    (model, mounts): (Option<Model>, Mounts),
    ahead: &Ahead,
    sampled: bool,
) -> io::Result<Replay> {
    let strategy = read_strategy(model, pack, ahead.bounds);
    let plan = Plan::of_pack(pack, choice, ahead.bounds.limits(), strategy);
    let options = Options { log: ahead.learn, sampled, ..Options::default() };
    Replay::start(plan, options, mounts, ahead.began)
}

/// Begins to read a pack ahead as a program's start does, worth it or not, and returns when the
/// program may start: what a benchmark measures.
///
/// # Errors
/// No thread can be had.
pub fn read_ahead(pack: &Pack, ahead: &Ahead) -> io::Result<Replay> {
    let mounts = Mounts::default();
    let model = Models::here().of_pack(pack, &mounts);
    let replay = begin(pack, &FREQUENT.choice(pack), (model, mounts), ahead, false)?;
    replay.wait_for_head(ahead.max_delay);
    Ok(replay)
}

/// A pack, if there is one, and the path where it is learned.
type Found = Result<(PathBuf, Option<Pack>), Box<(PathBuf, StoreError)>>;

/// The pack `explicit`, or the program's own.
fn known_pack(explicit: Option<&Path>, file_names: &[String]) -> Found {
    if let Some(path) = explicit {
        return match store::read(path, uid()) {
            Ok(pack) => Ok((path.into(), Some(pack))),
            Err(StoreError::Missing(_)) => Ok((path.into(), None)),
            Err(error) => Err(Box::new((path.into(), error))),
        };
    }
    store::find(file_names, uid(), variable)
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn is_root() -> bool {
    uid() == 0
}

/// Whether a program may start before its pack was looked at as a whole: nothing is to be
/// learned from this start if its files are in memory.
fn may_begin_late(pack: &Pack, ahead: &Ahead) -> bool {
    !ahead.always && (!ahead.learn || is_known_lately(pack))
}

/// Whether the files of a start take more memory than a replay may fill of what a control group
/// leaves: the start reads again what the kernel dropped, and the more so the more we take.
fn is_crowded(replay: &Replay) -> bool {
    memory::group_headroom().is_some_and(|left| replay.wanted_bytes() > memory::budget_within(left))
}

/// Whether enough starts of a program were learned, and the last not long ago.
fn is_known_lately(pack: &Pack) -> bool {
    pack.origin.starts >= WELL_KNOWN && is_learned_lately(pack)
}

/// Whether a start of a program was learned not long ago.
fn is_learned_lately(pack: &Pack) -> bool {
    let now = u64::try_from(seen::now_ns() / 1_000_000_000).unwrap_or(0);
    // Of one that was learned in the future the clock says nothing.
    let age = now.checked_sub(pack.origin.learned_at).map(Duration::from_secs);
    age.is_some_and(|age| age < LEARN_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_for_later_begins_once() {
        let ahead = Ahead {
            bounds: Bounds::default(),
            always: false,
            learn: true,
            began: Instant::now(),
            max_delay: Duration::ZERO,
        };
        let mut prepared = Prepared { pack: Some(Pack::default()), ..Prepared::default() };
        prepared.leave_for_later(&ahead);
        assert!(prepared.skip_recording && prepared.replay.is_none());
        prepared.begin_late();
        assert!(prepared.replay.take().is_some());
        prepared.begin_late();
        assert!(prepared.replay.is_none() && prepared.pack.is_some());
    }

    #[test]
    fn a_start_goes_on_without_a_pack_that_is_not_ready_in_time_and_has_it_later() {
        let (tell, coming) = channel();
        let mut preparation = Preparation { ready: None, coming: Some(coming) };
        assert!(preparation.within(Duration::from_millis(1)).is_none());
        let skip_recording = true;
        tell.send(Box::new(Prepared { skip_recording, ..Prepared::default() })).unwrap();
        assert!(preparation.within(Duration::ZERO).is_some_and(|p| p.skip_recording));
        assert!(preparation.finish().skip_recording);
    }

    #[test]
    fn a_preparation_that_failed_leaves_a_start_without_a_pack() {
        let (tell, coming) = channel();
        drop(tell);
        let mut preparation = Preparation { ready: None, coming: Some(coming) };
        assert!(preparation.within(Duration::MAX).is_none());
        assert!(preparation.finish().pack.is_none());
    }

    #[test]
    fn only_a_large_pack_is_got_ready_beside_the_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let wanted = Wanted { explicit: Some(file.path().into()), ..Wanted::default() };
        for (bytes, is_large) in [(SMALL, false), (SMALL + 1, true)] {
            file.as_file().set_len(bytes).unwrap();
            assert_eq!(wanted.is_large(), is_large, "{bytes}");
        }
    }
}
