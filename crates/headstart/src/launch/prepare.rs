//! Prepares a start: finds and decodes its pack, estimates the benefit, makes the plan and begins
//! the replay. With a large pack this goes on in parallel with the start, which waits for it only
//! for its longest delay: a pack of 100,000 files takes 30 ms.

use super::found_pack::FoundPack;
use super::policy::{Bounds, FREQUENT, Purpose, WELL_KNOWN};
use super::prefetch;
use super::turn::Turn;
use crate::host::error::causes;
use crate::host::memory;
use crate::host::mounts::Mounts;
use crate::host::user::User;
use crate::pack::Pack;
use crate::pack::store::{self, StoreError};
use crate::profile::seen;
use crate::replay::benefit::Expected;
use crate::replay::engine::Replay;
use crate::replay::frequency::Choice;
use crate::replay::models::Models;
use crate::replay::sample;
use std::mem;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// If tracing costs more than prefetching gains, a well known program is traced once in this time,
/// in case that it has changed.
const LEARN_AGAIN: Duration = Duration::from_secs(24 * 60 * 60);
/// A pack up to this size, some 10,000 files, is prepared without another thread, in bytes.
const SMALL: u64 = 256 << 10;

/// One large pack is prepared at a time: decoded it takes several times what is left of it.
static LARGE: Turn = Turn::new();
/// So long does it wait for others, each of which mostly takes some 10 ms.
const PATIENCE: Duration = Duration::from_millis(200);

/// The note for a hot start that is not learned.
const HOT: &str = "in memory and well known, so not traced";
/// The note for a start whose recording would cost more than prefetching gains.
const COSTLY: &str = "well known, so not traced, which would cost more than it gains";
/// The note for a start that lacks memory, so that it is not learned.
const CROWDED: &str = "its files need more memory than the control group leaves, so not traced";

/// What a launch needs.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// For whom.
    pub user: User,
    /// The pack, if it is not the program's own.
    pub explicit: Option<PathBuf>,
    /// The names that the program's own pack may have, for [`store::find`].
    pub file_names: Vec<String>,
    /// How it is prefetched, if it is.
    pub prefetch: Option<PrefetchOptions>,
    /// Whether the start is learned.
    pub learn: bool,
    /// Whether the pack is set aside from the release on: that takes time, of which a service has more than of
    /// memory.
    pub set_aside: bool,
    /// When the process began.
    pub began: Instant,
    /// How long the program waits for the first pages to be requested.
    pub max_delay: Duration,
}

impl LaunchSpec {
    /// Whether the pack is so large that its preparation takes a while.
    fn is_large(&self) -> bool {
        let User { variable, .. } = self.user;
        let dirs = store::search_path(self.user.is_root(), variable).unwrap_or_default();
        let own =
            self.file_names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
        let mut paths = self.explicit.clone().into_iter().chain(own);
        paths.find_map(|path| path.metadata().ok()).is_some_and(|meta| meta.len() > SMALL)
    }
}

/// How a pack is prefetched.
#[derive(Clone, Copy, Default, Debug)]
pub struct PrefetchOptions {
    /// What the user limits.
    pub bounds: Bounds,
    /// Whether that is done even without an expected benefit.
    pub always: bool,
    /// Whether it is kept what was requested, and when, also of a start that is not learned.
    pub log: bool,
}

/// A prepared launch.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The pack, if there is one.
    pub pack: FoundPack,
    /// Where it is learned.
    pub path: PathBuf,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The replay, if it has begun.
    pub replay: Option<Replay>,
    /// Whether there is a model of the pack's device that need not be measured again.
    pub device_known: bool,
    /// What was expected of prefetching, if the device is known.
    pub expected: Option<Expected>,
    /// Whether this start is not recorded.
    pub skip_recording: bool,
    /// The spec of a replay that begins after the release, because a sample was resident.
    later: Option<LaunchSpec>,
    /// Whether the pack is set aside at the release.
    sets_aside: bool,
    /// Whether the start is to be learned.
    learns: bool,
}

/// The preparation of a launch.
#[derive(Debug)]
pub enum Preparation {
    /// It is ready.
    Ready(Box<Prepared>),
    /// A thread prepares it.
    Coming(Receiver<Box<Prepared>>),
}

impl Preparation {
    /// Begins, in a thread if it takes a while.
    pub fn begin(spec: LaunchSpec) -> Self {
        if spec.prefetch.is_none() || !spec.is_large() {
            return Self::now(&spec);
        }
        let (send, coming) = channel();
        let theirs = spec.clone();
        let work = move || {
            let _turn = LARGE.wait(PATIENCE);
            let mut prepared = Prepared::of(&theirs);
            prepared.begin_late();
            drop(send.send(Box::new(prepared)));
        };
        match thread::Builder::new().name("prepare".into()).spawn(work) {
            Ok(_) => Self::Coming(coming),
            Err(_) => Self::now(&spec),
        }
    }

    fn now(spec: &LaunchSpec) -> Self {
        Self::Ready(Box::new(Prepared::of(spec)))
    }

    /// The prepared launch, if it is ready within this time.
    pub fn within(&mut self, limit: Duration) -> Option<&mut Prepared> {
        if let Self::Coming(coming) = self {
            *self = Self::Ready(coming.recv_timeout(limit).ok()?);
        }
        match self {
            Self::Ready(prepared) => Some(prepared),
            Self::Coming(_) => None,
        }
    }

    /// Begins a postponed replay.
    pub fn begin_late(&mut self) {
        if let Self::Ready(prepared) = self {
            prepared.begin_late();
        }
    }

    /// Whether the replay has ended, or there is none.
    pub fn is_finished(&mut self) -> bool {
        let has_ended = |prepared: &mut Prepared| {
            prepared.later.is_none() && prepared.replay.as_ref().is_none_or(Replay::is_finished)
        };
        self.within(Duration::ZERO).is_some_and(has_ended)
    }

    /// Waits for the prepared launch; an empty one if it failed.
    pub fn finish(self) -> Prepared {
        match self {
            Self::Ready(prepared) => *prepared,
            Self::Coming(coming) => *coming.recv().unwrap_or_default(),
        }
    }
}

impl Prepared {
    fn of(spec: &LaunchSpec) -> Self {
        let from = Instant::now();
        let mut prepared =
            Self { sets_aside: spec.set_aside, learns: spec.learn, ..Self::default() };
        let found = found_pack(spec);
        let pack;
        (prepared.path, pack) = found.unwrap_or_else(|failure| {
            let (path, error) = *failure;
            // There is no place for what would be learned.
            prepared.skip_recording = match &error {
                StoreError::RelativeDirectory(_) => true,
                StoreError::UntrustedDirectory { path: dir, .. } => path.parent() == Some(dir),
                _ => false,
            };
            prepared.notes.push(causes(&error));
            (path, None)
        });
        if let (Some(options), Some(pack)) = (spec.prefetch, &pack) {
            let choice = FREQUENT.choice(pack);
            let may_wait = !options.always && (!spec.learn || is_known_lately(pack));
            if may_wait && sample::is_in_memory(pack, &choice, spec.user.uid) {
                prepared.leave_for_later(spec);
            } else {
                prepared.prefetch(pack, &choice, spec, options, from);
            }
        }
        prepared.pack = FoundPack::of(pack);
        prepared
    }

    /// Lets a program with resident files start immediately and untraced, since the rest would only
    /// cost time.
    fn leave_for_later(&mut self, spec: &LaunchSpec) {
        if spec.learn {
            self.skip_recording(HOT);
        }
        self.later = Some(LaunchSpec { learn: false, ..spec.clone() });
    }

    /// Begins the postponed replay, and sets the pack aside.
    fn begin_late(&mut self) {
        if let Some(spec) = self.later.take() {
            let known = mem::take(&mut self.pack);
            let options = spec.prefetch.unwrap_or_default();
            let bounds = options.bounds;
            let purpose = Purpose::Start { bounds, log: options.log, sampled: true };
            if let Some(pack) = known.at_hand() {
                self.begin(pack, &FREQUENT.choice(pack), &spec, options, &purpose);
            }
            self.pack = known;
        }
        if self.sets_aside {
            self.pack.set_aside(self.learns);
        }
    }

    /// Begins to prefetch a pack, and decides whether the start is still to be recorded.
    fn prefetch(
        &mut self,
        pack: &Pack,
        choice: &Choice,
        spec: &LaunchSpec,
        options: PrefetchOptions,
        from: Instant,
    ) {
        let PrefetchOptions { bounds, log, .. } = options;
        let purpose = Purpose::Start { bounds, log: log || spec.learn, sampled: false };
        self.begin(pack, choice, spec, options, &purpose);
        let Some(replay) = self.replay.as_ref().filter(|_| spec.learn && !options.always) else {
            return;
        };
        let is_crowded = is_learned_lately(pack) && is_crowded(replay);
        // Tracing would only cost then. The wait costs nothing: the program would wait anyway.
        let left = spec.max_delay.saturating_sub(from.elapsed());
        let is_hot = is_known_lately(pack) && replay.finds_all_in_memory(left);
        for note in [is_crowded.then_some(CROWDED), is_hot.then_some(HOT)].into_iter().flatten() {
            self.skip_recording(note);
        }
    }

    /// Begins to prefetch a pack, if a benefit is expected or `always` is set.
    fn begin(
        &mut self,
        pack: &Pack,
        choice: &Choice,
        spec: &LaunchSpec,
        options: PrefetchOptions,
        purpose: &Purpose,
    ) {
        let mounts = Mounts::default();
        let kept = Models::here().kept_of_pack(pack, &mounts);
        let model = kept.map(|kept| kept.model);
        mounts.table().into_iter().for_each(memory::find_our_groups);
        self.device_known = kept.is_some_and(|kept| !kept.is_disturbed);
        self.expected = model.map(|model| Expected::of(pack, choice, &model));
        if let Some(expected) = self.expected.filter(|_| !options.always) {
            if spec.learn && is_known_lately(pack) && !expected.should_record() {
                self.skip_recording(COSTLY);
            }
            if !expected.has_benefit() {
                return self.notes.push(no_benefit(&expected));
            }
        }
        let strategy = purpose.strategy(model, pack);
        let plan = prefetch::plan_chosen(pack, choice, strategy, purpose);
        match prefetch::start(plan, purpose, mounts, spec.began) {
            Ok(replay) => self.replay = Some(replay),
            Err(error) => self.notes.push(format!("nothing was prefetched: {error}")),
        }
    }

    /// Does not record this start, for this reason.
    fn skip_recording(&mut self, why: &str) {
        self.skip_recording = true;
        self.notes.push(why.into());
    }
}

/// The note for a program that gains less than a replay costs.
fn no_benefit(expected: &Expected) -> String {
    let ms = |us: u64| us as f64 / 1e3;
    let (gain, cost) = (ms(expected.gain_us().1), ms(expected.cost_us));
    format!(
        "no expected benefit here: prefetching gains at most {gain:.1} ms and costs {cost:.1} ms"
    )
}

/// A pack, if there is one, and the path where it is learned.
type Found = Result<(PathBuf, Option<Pack>), Box<(PathBuf, StoreError)>>;

/// The pack that was named, or the program's own.
fn found_pack(spec: &LaunchSpec) -> Found {
    let User { uid, variable } = spec.user;
    if let Some(path) = &spec.explicit {
        return match store::read(path, uid) {
            Ok(pack) => Ok((path.into(), Some(pack))),
            Err(StoreError::Missing(_)) => Ok((path.into(), None)),
            Err(error) => Err(Box::new((path.into(), error))),
        };
    }
    store::find(&spec.file_names, uid, variable)
}

/// Whether the files of a start take more memory than a replay may fill in its control group. The
/// kernel reclaims pages then, and the start reads them again, more so with more prefetching.
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
    // A time in the future comes from a wrong clock.
    let age = now.checked_sub(pack.origin.learned_at).map(Duration::from_secs);
    age.is_some_and(|age| age < LEARN_AGAIN)
}

#[cfg(test)]
impl LaunchSpec {
    /// Of a program with this pack, if there is one.
    pub(super) fn of_pack(explicit: Option<PathBuf>) -> Self {
        Self {
            user: User::own(),
            explicit,
            file_names: Vec::new(),
            prefetch: Some(PrefetchOptions::default()),
            learn: true,
            set_aside: false,
            began: Instant::now(),
            max_delay: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_for_later_begins_once() {
        let mut prepared =
            Prepared { pack: FoundPack::of(Some(Pack::default())), ..Prepared::default() };
        prepared.leave_for_later(&LaunchSpec::of_pack(None));
        assert!(prepared.skip_recording && prepared.replay.is_none());
        prepared.begin_late();
        assert!(prepared.replay.take().is_some());
        prepared.begin_late();
        assert!(prepared.replay.is_none() && prepared.pack.at_hand().is_some());
    }

    #[test]
    fn a_start_goes_on_without_a_pack_that_is_not_ready_in_time_and_has_it_later() {
        let (send, coming) = channel();
        let mut preparation = Preparation::Coming(coming);
        assert!(preparation.within(Duration::from_millis(1)).is_none());
        let skip_recording = true;
        send.send(Box::new(Prepared { skip_recording, ..Prepared::default() })).unwrap();
        assert!(preparation.within(Duration::ZERO).is_some_and(|p| p.skip_recording));
        assert!(preparation.finish().skip_recording);
    }

    #[test]
    fn a_preparation_that_failed_leaves_a_start_without_a_pack() {
        let (send, coming) = channel();
        drop(send);
        let mut preparation = Preparation::Coming(coming);
        assert!(preparation.within(Duration::MAX).is_none());
        assert!(preparation.finish().pack.starts().is_none());
    }

    #[test]
    fn only_a_large_pack_is_got_ready_in_parallel_with_the_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let spec = LaunchSpec::of_pack(Some(file.path().into()));
        for (bytes, is_large) in [(SMALL, false), (SMALL + 1, true)] {
            file.as_file().set_len(bytes).unwrap();
            assert_eq!(spec.is_large(), is_large, "{bytes}");
        }
    }
}
