//! Reads ahead what boots touch: the packs of the phases in order, file system by file
//! system as these appear.
//!
//! The driver. It never waits for a phase and nothing waits for it: it ends with its
//! packs, with its time, or when told. What is left of a phase when that is over, as the
//! recorder notes, is left out.

use super::choose::{chosen, file_systems, one_after_another};
use super::machine::Machine;
use super::mounted::{Changes, Mounted};
use super::origin::Match;
use super::replayed::{self, Replayed};
use crate::error::causes;
use crate::pack::store::{self, StoreError};
use crate::pack::{File, FileSystem, Pack};
use crate::profile::mounts::Mounts;
use crate::replay::engine::{Options, Replay, identity_of};
use crate::replay::models::Models;
use crate::replay::often::Often;
use crate::replay::plan::{Limits, Plan};
use crate::replay::report::Report;
use crate::replay::way::{Order, Way};
use crate::replay::{budget, model};
use crate::trace::kernel_tids::KernelTids;
use rustix::fs::{AtFlags, CWD};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a replay is over or cancelled.
const TICK: Duration = Duration::from_millis(20);
/// The same while it only waits for file systems.
const WAITING: Duration = Duration::from_millis(200);

/// What is to be read ahead.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The phases, in order.
    pub phases: Vec<String>,
    /// Which ranges.
    pub often: Often,
    /// Whether to wait until the data is there.
    pub wait: bool,
    /// When to end.
    pub limit: Duration,
    /// Whether this is the initramfs, where no more file systems will appear.
    pub in_initramfs: bool,
    /// Whether what is left of a phase that is over is still read.
    pub over_too: bool,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Each phase that was read ahead.
    pub phases: Vec<Replayed>,
    /// Phases of which a pack was found.
    pub known: Vec<String>,
    /// What could not be used.
    pub problems: Vec<String>,
    /// Phases of which a part was left out, for they were over.
    pub over: Vec<String>,
    /// Phases of which nothing was read, because no file system of their packs is mounted.
    pub elsewhere: Vec<String>,
    /// Why it ended before its packs did.
    pub cut_short: Option<&'static str>,
}

/// A pack and how far it was read.
struct Known {
    phase: usize,
    path: PathBuf,
    /// Whether it was learned here, and did not come with the image.
    is_own: bool,
    pack: Pack,
    /// File systems that are still to be read.
    left: Vec<FileSystem>,
    /// Whether it has file systems and none of them was mounted yet.
    never_there: bool,
}

/// What of a pack is read at once.
struct Part {
    phase: usize,
    path: PathBuf,
    pack: Pack,
}

struct Session<'a> {
    machine: &'a Machine,
    wanted: &'a Wanted,
    models: Models,
    tids: KernelTids,
    began: Instant,
    known: Vec<Known>,
    /// Packs that are no good.
    refused: Vec<PathBuf>,
    replayed: Vec<Option<Replayed>>,
    out: Outcome,
}

/// Reads ahead. What fails is among the problems of the outcome.
pub fn replay(machine: &Machine, wanted: &Wanted, began: Instant) -> Outcome {
    let mut session = Session {
        machine,
        wanted,
        models: Models::here(),
        tids: KernelTids::here(),
        began,
        known: Vec::new(),
        refused: Vec::new(),
        replayed: wanted.phases.iter().map(|_| None).collect(),
        out: Outcome::default(),
    };
    if let Err(error) = session.go() {
        session.out.problems.push(error.to_string());
    }
    session.note_elsewhere();
    let known = session.known.iter().map(|known| wanted.phases[known.phase].clone());
    session.out.known = known.collect();
    session.out.phases = session.replayed.into_iter().flatten().collect();
    session.out
}

impl Session<'_> {
    fn go(&mut self) -> io::Result<()> {
        let mut mounted = Mounted::default();
        let mut changes = Changes::watch()?;
        loop {
            // What is mounted now may have another pack at the same place.
            self.refused.clear();
            self.find_packs();
            mounted.look().map_err(io::Error::other)?;
            loop {
                let mounts = Mounts::default();
                let Some((parts, way)) = self.next(&mut mounted, &mounts) else { break };
                self.read(&parts, way, mounts)?;
                if self.is_over() {
                    return Ok(());
                }
                if changes.wait(Duration::ZERO)? {
                    self.find_packs();
                    mounted.look().map_err(io::Error::other)?;
                }
            }
            if self.wanted.in_initramfs || !self.expects_more(&mounted) {
                return Ok(());
            }
            while !changes.wait(WAITING)? {
                self.leave_out();
                if self.is_over() || !self.expects_more(&mounted) {
                    return Ok(());
                }
            }
        }
    }

    /// Looks for packs that were not there before: they may be on a file system of their
    /// own.
    fn find_packs(&mut self) {
        let wanted = self.wanted;
        for (phase, name) in wanted.phases.iter().enumerate() {
            for path in self.machine.packs(name) {
                let is_known = self.known.iter().any(|known| known.path == path);
                if is_known || self.refused.contains(&path) {
                    continue;
                }
                match store::read(&path, 0) {
                    Ok(pack) => {
                        let read = chosen(&pack, self.wanted.often, |_| true);
                        let left = self.left_of(name, &read);
                        let never_there = !left.is_empty();
                        let is_own = path == self.machine.pack(name);
                        let pack = read;
                        self.known.push(Known { phase, path, is_own, pack, left, never_there });
                    }
                    Err(StoreError::Missing(_)) => {}
                    Err(error) => {
                        self.note(causes(&error));
                        self.refused.push(path);
                    }
                }
            }
        }
        self.known.sort_by_key(|known| (known.phase, !known.is_own));
    }

    /// The file systems of a pack that the initramfs has not read.
    fn left_of(&self, phase: &str, pack: &Pack) -> Vec<FileSystem> {
        let before = replayed::read_before(self.machine, phase);
        let was_read = |fs: &&FileSystem| fs.uuid.is_some_and(|uuid| before.contains(&uuid));
        file_systems(pack).into_iter().filter(|fs| !was_read(fs)).cloned().collect()
    }

    /// What of the next packs is to be read now, together. Where an arm moves that is all
    /// there is: a sweep for each phase moves it more often, and programs that miss
    /// something of a later phase wait for all of them.
    fn next(&mut self, mounted: &mut Mounted, mounts: &Mounts) -> Option<(Vec<Part>, Way)> {
        self.leave_out();
        let first = self.next_part(mounted)?;
        let way = self.way(&first, mounts);
        let mut parts = vec![first];
        if way.order == Order::Disk {
            parts.extend(std::iter::from_fn(|| self.next_part(mounted)));
        }
        Some((parts, way))
    }

    /// The next pack with something to read now, and that.
    fn next_part(&mut self, mounted: &mut Mounted) -> Option<Part> {
        (0..self.known.len()).find_map(|number| {
            let all = std::mem::take(&mut self.known[number].left);
            let (mut now, later): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|fs| mounted.has(fs));
            self.known[number].left = later;
            self.known[number].never_there &= now.is_empty();
            now.retain(|fs| !self.is_left_to_another(number, fs));
            let Known { phase, path, pack, .. } = &self.known[number];
            let part = || Part {
                phase: *phase,
                path: path.clone(),
                pack: chosen(pack, Often::EVER, |fs| now.contains(fs)),
            };
            (!now.is_empty()).then(part)
        })
    }

    /// Whether another pack of the phase is read for this file system: of one that was
    /// learned here and one of the image, that whose files are still there.
    fn is_left_to_another(&self, number: usize, on: &FileSystem) -> bool {
        let this = &self.known[number];
        let knows_it = |known: &&Known| {
            let is_other = known.phase == this.phase && known.is_own != this.is_own;
            is_other && file_systems(&known.pack).iter().any(|fs| fs.is(on))
        };
        let Some(other) = self.known.iter().find(knows_it) else { return false };
        let (own, shipped) = if this.is_own { (this, other) } else { (other, this) };
        let matches = |known: &Known| Match::of(&known.pack, on, is_unchanged);
        matches(own).is_better(matches(shipped)) != this.is_own
    }

    /// How a part is read, and those with it: where an arm moves in several sweeps, for a
    /// boot computes for seconds, unless it waits for all of them.
    fn way(&self, part: &Part, mounts: &Mounts) -> Way {
        let model = self.models.of_boot(&part.pack, mounts);
        let way = model::way(model, &part.pack);
        model.filter(|_| !self.wanted.wait).map_or(way, |model| way.in_sweeps(model.arm()))
    }

    /// Whether file systems or packs may still appear.
    fn expects_more(&self, mounted: &Mounted) -> bool {
        let mut of_packs = self.machine.mounts_of_state().into_iter();
        self.known.iter().any(|known| !known.left.is_empty())
            || (!self.all_over() && of_packs.any(|place| !mounted.at(&place)))
    }

    /// Whether a phase is over: what it touches was read by the programs themselves, and
    /// reading it now would only hold up what comes next.
    fn is_past(&self, phase: usize) -> bool {
        !self.wanted.over_too && self.machine.is_over(&self.wanted.phases[phase])
    }

    fn all_over(&self) -> bool {
        (0..self.wanted.phases.len()).all(|phase| self.is_past(phase))
    }

    /// Leaves out what is left of phases that are over.
    fn leave_out(&mut self) {
        for number in 0..self.known.len() {
            let phase = self.known[number].phase;
            if !self.known[number].left.is_empty() && self.is_past(phase) {
                self.known[number].left.clear();
                self.note_over(phase);
            }
        }
    }

    fn note_over(&mut self, phase: usize) {
        let name = &self.wanted.phases[phase];
        if !self.out.over.contains(name) {
            self.out.over.push(name.clone());
        }
    }

    /// Notes the phases of which no file system was ever there.
    fn note_elsewhere(&mut self) {
        let Self { known, replayed, wanted, .. } = self;
        let unread = known.iter().filter(|known| known.never_there);
        let mut phases: Vec<usize> = unread.map(|known| known.phase).collect();
        phases.dedup();
        phases.retain(|phase| replayed[*phase].is_none());
        self.out.elsewhere = phases.iter().map(|phase| wanted.phases[*phase].clone()).collect();
    }

    /// Reads parts of packs.
    fn read(&mut self, parts: &[Part], way: Way, mounts: Mounts) -> io::Result<()> {
        let Some(last) = parts.iter().map(|part| part.phase).max() else { return Ok(()) };
        let limits = Limits { budget: budget::available(), metadata: true, often: Often::EVER };
        let mut packs: Vec<Pack> = parts.iter().map(|part| part.pack.clone()).collect();
        one_after_another(parts.iter().map(|part| part.phase).zip(&mut packs));
        let plan = Plan::of_packs(&packs, limits, way);
        // Without it the recorder counts these threads to the boot.
        self.keep(parts, None);
        let left = self.wanted.limit.saturating_sub(self.began.elapsed());
        let options = Options {
            wait: self.wanted.wait,
            timeout: Some(left),
            exact: true,
            tids: self.tids.clone(),
            ..Options::default()
        };
        let replay = Replay::start(plan, options, mounts, self.began)?;
        let mut past = false;
        while !replay.is_finished() {
            past = past || self.is_past(last);
            if past || self.machine.is_cancelled() {
                replay.stop();
            }
            thread::sleep(TICK);
        }
        let threads = replay.threads();
        let report: Report = replay.finish();
        let cut = past && !report.complete;
        self.keep(parts, Some((report.divided(&packs), threads)));
        if cut {
            self.note_over(last);
        }
        Ok(())
    }

    /// Tells the recorder that these are read, or what became of each and which threads
    /// did it.
    fn keep(&mut self, parts: &[Part], done: Option<(Vec<Report>, Vec<i32>)>) {
        for (number, part) in parts.iter().enumerate() {
            let name = &self.wanted.phases[part.phase];
            let new = || Replayed::new(name, self.wanted.in_initramfs);
            let replayed = self.replayed[part.phase].get_or_insert_with(new);
            if !replayed.packs.contains(&part.path) {
                replayed.packs.push(part.path.clone());
            }
            if let Some((reports, threads)) = &done {
                replayed.add(&reports[number], threads);
                if reports[number].complete {
                    let uuids = file_systems(&part.pack).into_iter().filter_map(|fs| fs.uuid);
                    replayed.file_systems.extend(uuids);
                }
            }
            if let Err(error) = replayed.keep(self.machine) {
                self.note(causes(&error));
            }
        }
    }

    /// Notes what is wrong, once.
    fn note(&mut self, problem: String) {
        if !self.out.problems.contains(&problem) {
            self.out.problems.push(problem);
        }
    }

    /// Whether it has to end here.
    fn is_over(&mut self) -> bool {
        self.out.cut_short = if self.machine.is_cancelled() {
            Some("/run/headstart/cancel is there")
        } else if self.began.elapsed() >= self.wanted.limit {
            Some("its time was up")
        } else {
            None
        };
        self.out.cut_short.is_some()
    }
}

/// Whether a file is what was learned.
fn is_unchanged(path: &Path, learned: &File) -> bool {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| learned.identity.is_still(&identity_of(&stat)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::pack::build::{FilePart, Parts};
    use crate::pack::paths::PathInterner;
    use crate::pack::pieces::Piece;
    use crate::pack::{Identity, Origin};
    use crate::profile::spans::How;
    use std::fs;

    /// A machine without packs, and what a replay for it says within `limit`.
    fn on(limit: Duration, prepare: impl Fn(&Machine)) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        prepare(&machine);
        let wanted = Wanted {
            phases: vec!["mounts".into(), "system".into()],
            often: Often::TWO_OF_THREE,
            wait: true,
            limit,
            in_initramfs: false,
            over_too: false,
        };
        replay(&machine, &wanted, Instant::now())
    }

    /// A pack of a file on this file system.
    pub(in crate::boot) fn pack_of_a_file_on(fs: &FileSystem) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let file_system = parts.file_system(fs).unwrap();
        let pieces = vec![Piece { first: 0, end: 1, at_us: 0, how: How::READ, history: 1 }];
        let part = FilePart { file_system, identity: Identity::default(), changes: 0, pieces };
        parts.files.insert(names.intern(Path::new("/a")).unwrap(), part);
        parts.build(names.table())
    }

    /// A pack of a file on a file system that is nowhere mounted.
    fn keep_pack(machine: &Machine, phase: &str) {
        let fs = FileSystem { uuid: Some([0xee; 16]), kind: "ext4".into(), ..Default::default() };
        store::lock(&machine.pack(phase)).unwrap().write(&pack_of_a_file_on(&fs)).unwrap();
    }

    #[test]
    fn without_packs_it_ends_at_once_unless_they_are_to_be_mounted() {
        const LONG: Duration = Duration::from_secs(600);
        assert_eq!(on(LONG, |_| ()).cut_short, None);
        let unit = "/run/systemd/generator/var-lib-headstart.mount";
        let waits = on(Duration::from_millis(1), |machine| {
            let path = machine.place(unit);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        });
        assert_eq!(waits.cut_short, Some("its time was up"));
    }

    #[test]
    fn it_waits_for_file_systems_of_a_phase_until_that_is_over() {
        let waits = on(Duration::from_millis(1), |machine| keep_pack(machine, "mounts"));
        assert_eq!((waits.cut_short, waits.over.len()), (Some("its time was up"), 0));
        let ends = on(Duration::from_secs(600), |machine| {
            keep_pack(machine, "mounts");
            machine.mark_over("mounts").unwrap();
        });
        let mounts = vec!["mounts".to_owned()];
        assert_eq!((ends.cut_short, &ends.over, &ends.elsewhere), (None, &mounts, &mounts));
    }
}
