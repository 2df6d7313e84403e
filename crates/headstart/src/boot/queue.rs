//! The packs that a replay knows, in the order in which they are read, and what of them is
//! read next: a pack whose file system is mounted, unless another one is better for that.

use super::machine::Machine;
use super::mounted::Mounted;
use super::origin::Match;
use super::packs::PackFile;
use super::replayed;
use super::split::is_empty;
use crate::host::error::causes;
use crate::host::identity::identity_of;
use crate::host::open::stat_learned;
use crate::pack::store::StoreError;
use crate::pack::{File, FileSystem, Pack};
use crate::replay::frequency::Frequency;
use std::path::{Path, PathBuf};

/// A pack that is read now.
pub(super) struct Part {
    /// The number of its phase.
    pub phase: usize,
    pub path: PathBuf,
    /// What of it is read.
    pub pack: Pack,
}

/// A pack and what became of it.
struct Known {
    phase: usize,
    path: PathBuf,
    /// Whether it was learned here, and did not come with the image.
    is_own: bool,
    /// The file system that it is of.
    of: FileSystem,
    /// What of it is to be read.
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
    often: Frequency,
    known: Vec<Known>,
    /// Packs that are no good.
    refused: Vec<PathBuf>,
}

impl<'a> Queue<'a> {
    /// Of these phases, in order.
    pub fn new(machine: &'a Machine, phases: &'a [String], often: Frequency) -> Self {
        Self { machine, phases, often, known: Vec::new(), refused: Vec::new() }
    }

    /// Looks again at those that were no good: what is mounted now may have another pack at
    /// the same place.
    pub fn forget_refused(&mut self) {
        self.refused.clear();
    }

    /// Looks for packs that were not there before: they may be on a file system of their
    /// own. Those that are no good are told.
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
            match file.read() {
                Ok((of, pack)) => {
                    let pack = self.often.chosen(&pack);
                    let was_read =
                        || replayed::read_before(self.machine, &file.phase).contains(&file.path);
                    let is_left = !is_empty(&pack) && !was_read();
                    let was_there = !is_left;
                    let PackFile { path, is_own, .. } = file;
                    let known = Known { phase, path, is_own, of, pack, is_left, was_there };
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

    /// What can be read now of the next phase of which that is something.
    pub fn next_phase(&mut self, mounted: &mut Mounted) -> Vec<Part> {
        let mut phase = None;
        let next = || {
            let part = self.next(mounted, |other| phase.is_none_or(|phase| phase == other))?;
            phase = Some(part.phase);
            Some(part)
        };
        std::iter::from_fn(next).collect()
    }

    /// The next pack of a phase that is wanted which can be read now.
    pub fn next(
        &mut self,
        mounted: &mut Mounted,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Option<Part> {
        (0..self.known.len()).find_map(|number| {
            let known = &mut self.known[number];
            if !known.is_left || !is_wanted(known.phase) || !mounted.has(&known.of) {
                return None;
            }
            (known.is_left, known.was_there) = (false, true);
            let Known { phase, path, pack, .. } = &self.known[number];
            let part = || Part { phase: *phase, path: path.clone(), pack: pack.clone() };
            (!self.is_left_to_another(number)).then(part)
        })
    }

    /// Whether another pack of the phase is read for this file system: of one that was
    /// learned here and one of the image, that whose files are still there.
    fn is_left_to_another(&self, number: usize) -> bool {
        let this = &self.known[number];
        let is_alike = |known: &&Known| {
            let is_other = known.phase == this.phase && known.is_own != this.is_own;
            is_other && known.of.is(&this.of) && !is_empty(&known.pack)
        };
        let Some(other) = self.known.iter().find(is_alike) else { return false };
        let (own, shipped) = if this.is_own { (this, other) } else { (other, this) };
        let matches = |known: &Known| Match::of(&known.pack, &this.of, is_unchanged);
        matches(own).is_better(matches(shipped)) != this.is_own
    }

    /// Leaves out what is left of phases that are past; of which of them something could
    /// have been read.
    pub fn leave_out(
        &mut self,
        mounted: &mut Mounted,
        is_past: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut left_out = Vec::new();
        for known in self.known.iter_mut().filter(|known| known.is_left) {
            if is_past(known.phase) {
                known.is_left = false;
                known.was_there = mounted.has(&known.of);
                left_out.extend(known.was_there.then_some(known.phase));
            }
        }
        left_out
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
        let mut queue = Queue::new(&machine, &phases, Frequency::TWO_OF_THREE);
        let mut mounted = Mounted::default();
        assert!(queue.find().is_empty() && !queue.known().is_empty());
        assert!(queue.next_phase(&mut mounted).is_empty(), "nothing was seen mounted yet");
        mounted.look().unwrap();
        let parts = queue.next_phase(&mut mounted);
        let found: Vec<_> = parts.iter().map(|part| (part.phase, &part.path)).collect();
        let at = |of| machine.pack("system", &here(of));
        assert_eq!(found, [(1, &at("proc")), (1, &at("sysfs"))]);
        // Packs that are known already are not looked at again.
        assert!(queue.find().is_empty() && queue.next(&mut mounted, |_| true).is_none());
        assert!(queue.is_left());
        assert_eq!((queue.known(), queue.away()), (vec![0, 1], vec![0]));
    }

    #[test]
    fn of_a_phase_that_is_over_all_is_left_out_and_told_if_it_could_have_been_read() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, phases) = (Machine::at(dir.path()), phases());
        keep_pack(&machine, "mounts", &away());
        keep_pack(&machine, "system", &here("proc"));
        let mut queue = Queue::new(&machine, &phases, Frequency::TWO_OF_THREE);
        let mut mounted = Mounted::default();
        mounted.look().unwrap();
        queue.find();
        assert!(queue.leave_out(&mut mounted, |_| false).is_empty());
        assert!(queue.leave_out(&mut mounted, |phase| phase == 0).is_empty());
        assert!(queue.is_left());
        assert_eq!(queue.leave_out(&mut mounted, |_| true), [1]);
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
            let mut before = replayed::Replayed::new("mounts", true);
            before.read_packs.push(if read == "own" { own.clone() } else { shipped });
            before.keep(&machine).unwrap();
            let mut queue = Queue::new(&machine, &phases, Frequency::TWO_OF_THREE);
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
    fn a_pack_that_is_no_good_is_told_once_until_it_is_looked_at_again() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, phases) = (Machine::at(dir.path()), phases());
        keep_pack(&machine, "mounts", &here("proc"));
        std::fs::write(machine.pack("mounts", &here("proc")), "cut").unwrap();
        let mut queue = Queue::new(&machine, &phases, Frequency::TWO_OF_THREE);
        assert_eq!((queue.find().len(), queue.find().len()), (1, 0));
        queue.forget_refused();
        assert_eq!(queue.find().len(), 1);
    }
}
