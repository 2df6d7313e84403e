//! The packs of a replay in the order of their phases, and which of them is read next: one whose
//! file system is mounted, unless another pack is better for that file system.

use super::machine::Machine;
use super::mounted::Mounted;
use super::own_or_shipped::Match;
use super::packs::PackFile;
use super::replay_records;
use super::split::is_empty;
use crate::host::error::causes;
use crate::host::identity::identity_of;
use crate::host::open::stat_learned;
use crate::launch::policy::FREQUENT_IN_BOOTS;
use crate::pack::store::StoreError;
use crate::pack::{File, FileSystem, Pack};
use std::path::{Path, PathBuf};

/// A pack that is read now.
pub(super) struct NextPack {
    /// The number of its phase.
    pub phase: usize,
    pub path: PathBuf,
    /// The part that is read.
    pub pack: Pack,
}

/// A pack and its state.
struct QueuedPack {
    phase: usize,
    path: PathBuf,
    /// Whether it was learned here, and did not come with the image.
    is_own: bool,
    /// The file system that it is of.
    of: FileSystem,
    /// The part that is to be read.
    pack: Pack,
    /// Whether that is still to be read.
    is_left: bool,
    /// Whether it was seen mounted, or there was nothing to look for.
    was_there: bool,
}

/// The packs of a boot.
pub(super) struct Queue<'a> {
    machine: &'a Machine,
    phases: &'a [String],
    known: Vec<QueuedPack>,
    /// Unusable packs.
    refused: Vec<PathBuf>,
}

impl<'a> Queue<'a> {
    /// Of these phases, in order.
    pub fn new(machine: &'a Machine, phases: &'a [String]) -> Self {
        Self { machine, phases, known: Vec::new(), refused: Vec::new() }
    }

    /// Checks unusable packs again: a new mount may have another pack at the same path.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
    }

    /// Looks for new packs, which may be on a file system that was mounted later. Returns the
    /// problems of unusable ones.
    pub fn find(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        for file in self.machine.packs() {
            let Some(phase) = self.phases.iter().position(|name| *name == file.phase) else {
                continue;
            };
            let is_known = self.known.iter().any(|known| known.path == file.path);
            if is_known || self.refused.contains(&file.path) {
                continue;
            }
            match file.read(self.machine) {
                Ok((of, pack)) => {
                    let pack = FREQUENT_IN_BOOTS.chosen(&pack).into_owned();
                    let was_read = || {
                        replay_records::read_before(self.machine, &file.phase).contains(&file.path)
                    };
                    let is_left = !is_empty(&pack) && !was_read();
                    let was_there = !is_left;
                    let PackFile { path, is_own, .. } = file;
                    let known = QueuedPack { phase, path, is_own, of, pack, is_left, was_there };
                    self.known.push(known);
                }
                Err(StoreError::Missing(_)) => {}
                Err(error) => {
                    problems.push(causes(&error));
                    self.refused.push(file.path);
                }
            }
        }
        self.known.sort_by_key(|known| (known.phase, !known.is_own));
        problems
    }

    /// The packs of the next phase with packs that can be read now.
    pub fn next_phase(&mut self, mounted: &mut Mounted) -> Vec<NextPack> {
        let mut phase = None;
        let next = || {
            let part = self.next(mounted, |other| phase.is_none_or(|phase| phase == other))?;
            phase = Some(part.phase);
            Some(part)
        };
        std::iter::from_fn(next).collect()
    }

    /// The next pack of a wanted phase that can be read now.
    pub fn next(
        &mut self,
        mounted: &mut Mounted,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Option<NextPack> {
        (0..self.known.len()).find_map(|number| {
            let known = &mut self.known[number];
            if !known.is_left || !is_wanted(known.phase) || !mounted.has(&known.of) {
                return None;
            }
            (known.is_left, known.was_there) = (false, true);
            let QueuedPack { phase, path, pack, .. } = &self.known[number];
            let part = || NextPack { phase: *phase, path: path.clone(), pack: pack.clone() };
            (!self.is_left_to_another(number)).then(part)
        })
    }

    /// Whether another pack of the phase is better for this file system, by the files that still
    /// match: one that was learned here, or one of the image.
    fn is_left_to_another(&self, number: usize) -> bool {
        let this = &self.known[number];
        let is_alike = |known: &&QueuedPack| {
            let is_other = known.phase == this.phase && known.is_own != this.is_own;
            is_other && known.of.is(&this.of) && !is_empty(&known.pack)
        };
        let Some(other) = self.known.iter().find(is_alike) else { return false };
        let (own, shipped) = if this.is_own { (this, other) } else { (other, this) };
        let matches = |known: &QueuedPack| Match::of(&known.pack, &this.of, is_unchanged);
        matches(own).is_better(matches(shipped)) != this.is_own
    }

    /// Skips what is left of phases that have ended; returns those of which something could have
    /// been read.
    pub fn skip_ended(
        &mut self,
        mounted: &mut Mounted,
        is_past: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut skipped = Vec::new();
        for known in self.known.iter_mut().filter(|known| known.is_left) {
            if is_past(known.phase) {
                known.is_left = false;
                known.was_there = mounted.has(&known.of);
                skipped.extend(known.was_there.then_some(known.phase));
            }
        }
        skipped
    }

    /// Whether something is left to be read.
    pub fn is_left(&self) -> bool {
        self.known.iter().any(|known| known.is_left)
    }

    /// Phases of which there is a pack, each once.
    pub fn known(&self) -> Vec<usize> {
        let mut phases: Vec<usize> = self.known.iter().map(|known| known.phase).collect();
        phases.dedup();
        phases
    }

    /// Phases of which all packs are of file systems that were never mounted, each once.
    pub fn away(&self) -> Vec<usize> {
        let mut phases = self.known();
        phases.retain(|phase| !self.known.iter().any(|k| k.phase == *phase && k.was_there));
        phases
    }
}

/// Whether a file is what was learned.
fn is_unchanged(path: &Path, learned: &File) -> bool {
    stat_learned(path).is_ok_and(|stat| learned.identity.is_still(&identity_of(&stat)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::test_packs::{away, here, keep_pack};

    fn phases() -> Vec<String> {
        ["mounts", "system"].map(String::from).to_vec()
    }

    #[test]
    fn the_packs_of_the_next_phase_are_read_whose_file_systems_are_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, phases) = (Machine::at(dir.path()), phases());
        for of in [away(), here("proc"), here("sysfs")] {
            keep_pack(&machine, "system", &of);
        }
        keep_pack(&machine, "mounts", &away());
        keep_pack(&machine, "session", &here("proc"));
        let mut queue = Queue::new(&machine, &phases);
        let mut mounted = Mounted::default();
        assert!(queue.find().is_empty() && !queue.known().is_empty());
        assert!(queue.next_phase(&mut mounted).is_empty(), "nothing was seen mounted yet");
        mounted.look().unwrap();
        let parts = queue.next_phase(&mut mounted);
        let found: Vec<_> = parts.iter().map(|part| (part.phase, &part.path)).collect();
        let at = |of| machine.pack("system", &here(of));
        assert_eq!(found, [(1, &at("proc")), (1, &at("sysfs"))]);
        // Packs that are known already are not checked again.
        assert!(queue.find().is_empty() && queue.next(&mut mounted, |_| true).is_none());
        assert!(queue.is_left());
        assert_eq!((queue.known(), queue.away()), (vec![0, 1], vec![0]));
    }

    #[test]
    fn of_a_phase_that_is_over_all_is_skipped_and_reported_if_it_could_have_been_read() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, phases) = (Machine::at(dir.path()), phases());
        keep_pack(&machine, "mounts", &away());
        keep_pack(&machine, "system", &here("proc"));
        let mut queue = Queue::new(&machine, &phases);
        let mut mounted = Mounted::default();
        mounted.look().unwrap();
        queue.find();
        assert!(queue.skip_ended(&mut mounted, |_| false).is_empty());
        assert!(queue.skip_ended(&mut mounted, |phase| phase == 0).is_empty());
        assert!(queue.is_left());
        assert_eq!(queue.skip_ended(&mut mounted, |_| true), [1]);
        assert!(!queue.is_left() && queue.next(&mut mounted, |_| true).is_none());
        assert_eq!(queue.away(), [0]);
    }

    #[test]
    fn a_pack_that_the_initramfs_has_read_is_not_read_again_but_another_of_its_file_system_is() {
        for (read, again) in [("own", false), ("shipped", true)] {
            let dir = tempfile::tempdir().unwrap();
            let (machine, phases) = (Machine::at(dir.path()), phases());
            keep_pack(&machine, "mounts", &here("proc"));
            keep_pack(&machine, "mounts", &away());
            let own = machine.pack("mounts", &here("proc"));
            let shipped = machine.shipped().join(own.file_name().unwrap());
            let mut before = replay_records::ReplayRecord::new("mounts", true);
            before.read_packs.push(if read == "own" { own.clone() } else { shipped });
            before.keep(&machine).unwrap();
            let mut queue = Queue::new(&machine, &phases);
            let mut mounted = Mounted::default();
            mounted.look().unwrap();
            assert!(queue.find().is_empty());
            let parts = queue.next_phase(&mut mounted);
            let paths: Vec<_> = parts.into_iter().map(|part| part.path).collect();
            assert_eq!(paths, if again { vec![own] } else { vec![] }, "{read}");
            // Nor is all of the phase elsewhere because one pack of it is.
            assert!(queue.away().is_empty() && queue.is_left());
        }
    }

    #[test]
    fn a_pack_that_is_no_good_is_reported_once_until_it_is_checked_again() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, phases) = (Machine::at(dir.path()), phases());
        keep_pack(&machine, "mounts", &here("proc"));
        std::fs::write(machine.pack("mounts", &here("proc")), "cut").unwrap();
        let mut queue = Queue::new(&machine, &phases);
        assert_eq!((queue.find().len(), queue.find().len()), (1, 0));
        queue.forget_refused();
        assert_eq!(queue.find().len(), 1);
    }
}
