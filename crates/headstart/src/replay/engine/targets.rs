//! The files and devices of a plan: opened at their first step, checked against what was learned,
//! and closed after their last step.

use super::descriptors::Descriptors;
use super::progress::Progress;
use crate::cache::residency::{are_resident, page_size};
use crate::host::id::Dev;
use crate::host::identity::identity_of;
use crate::host::mounts::Mounts;
use crate::host::open::{Kind, NotRead, is_regular, open_if};
use crate::host::range::ByteRange;
use crate::pack::renew::is_alike;
use crate::pack::{FileSystem, Identity};
use crate::replay::device::{Portion, portion};
use crate::replay::gaps::divided;
use crate::replay::metadata::{self, Devices};
use crate::replay::places::{existing, joined, partial_page};
use crate::replay::plan::Plan;
use crate::replay::step::{Step, Target};
use headstart_sys::fiemap::{Extent, extents_in};
use rustix::fs::{Mode, OFlags, Stat};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The targets of a plan. The lock of a target is held while it is opened, so that this is done
/// once, and `portions` is locked under it.
#[derive(Debug)]
pub(super) struct Targets {
    plan: Arc<Plan>,
    mounts: Mounts,
    /// Whether a file that replaced another of about the same size is read.
    follow: bool,
    /// Who we are.
    uid: u32,
    /// The block device of each file system by UUID; looked for once, by the first
    /// step that needs it, so that no other step waits.
    devices: OnceLock<Devices>,
    slots: Vec<Mutex<Slot>>,
    /// How often each step is used.
    uses: u32,
    /// Uses left of each target, so that it is closed after its last.
    uses_left: Vec<AtomicU32>,
    /// Held by everything that is open.
    open: Arc<()>,
    descriptors: Descriptors,
    portions: Mutex<HashMap<u64, Portion>>,
    progress: Arc<Progress>,
}

/// A target as the threads know it.
#[derive(Debug, Default)]
enum Slot {
    /// No step came to it yet.
    #[default]
    New,
    /// It is what was learned.
    Open(Arc<Opened>),
    /// It was closed for lack of descriptors and is opened again on demand.
    Closed,
    /// Nothing is read from it.
    Dropped,
}

/// A file or device that is what was learned.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    /// The device that it lies on, or is.
    pub(super) dev: u64,
    pub(super) portion: Portion,
    pub(super) kind: Kind,
    /// Shared by all that is open, and so counts it.
    _open: Arc<()>,
}

impl Targets {
    /// Of a plan each step of which is used so many times; `follow`: whether a file that
    /// replaced another of about the same size is read like that.
    pub(super) fn new(
        plan: Arc<Plan>,
        uses: u32,
        follow: bool,
        mounts: Mounts,
        progress: Arc<Progress>,
    ) -> Self {
        let mut uses_left = vec![0; plan.targets.len()];
        for step in &plan.steps {
            uses_left[step.target as usize] += uses;
        }
        Self {
            mounts,
            follow,
            uid: rustix::process::geteuid().as_raw(),
            devices: OnceLock::new(),
            slots: plan.targets.iter().map(|_| Mutex::default()).collect(),
            uses,
            uses_left: uses_left.into_iter().map(AtomicU32::new).collect(),
            open: Arc::default(),
            descriptors: Descriptors::here(plan.strategy.threads),
            portions: Mutex::default(),
            progress,
            plan,
        }
    }

    fn slot(&self, target: u32) -> MutexGuard<'_, Slot> {
        self.slots[target as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target, opened and checked; `None` when nothing is read from it.
    pub(super) fn opened(&self, target: u32) -> Option<Arc<Opened>> {
        let mut slot = self.slot(target);
        let first_time = matches!(*slot, Slot::New);
        match &*slot {
            Slot::Open(opened) => return Some(opened.clone()),
            Slot::Dropped => return None,
            Slot::New | Slot::Closed => {}
        }
        let Some(opened) = self.open(target, first_time).map(Arc::new) else {
            *slot = Slot::Dropped;
            return None;
        };
        let is_kept = self.open_files() <= self.descriptors.kept;
        *slot = if is_kept { Slot::Open(opened.clone()) } else { Slot::Closed };
        Some(opened)
    }

    /// Opens a target, and counts the result.
    fn open(&self, target: u32, first_time: bool) -> Option<Opened> {
        match &self.plan.targets[target as usize] {
            Target::File { node, identity, changing } => {
                let path = self.plan.paths.path(*node);
                let opened = self.open_file(&path, identity.as_ref(), *changing, first_time);
                self.progress.count(|report| match &opened {
                    Ok(_) => report.files += u64::from(first_time),
                    Err(NotRead::Stale) => report.stale_files += 1,
                    Err(NotRead::Missing) => report.missing_files += 1,
                    Err(NotRead::Forbidden) => report.forbidden_files += 1,
                    Err(NotRead::Failed) => report.failed += 1,
                });
                opened.ok()
            }
            Target::Device(fs) => {
                let opened = self.open_device(fs);
                let is_closed = self.devices().may_be_closed(&fs.kind);
                self.progress.count(|report| match (&opened, is_closed) {
                    (Some(_), _) => {}
                    (None, true) => report.closed_devices += 1,
                    (None, false) => report.absent_devices += 1,
                });
                opened
            }
        }
    }

    fn open_file(
        &self,
        path: &Path,
        identity: Option<&Identity>,
        changing: bool,
        first_time: bool,
    ) -> Result<Opened, NotRead> {
        let mut is_other = false;
        let is_wanted = |stat: &Stat| {
            let now = identity_of(stat);
            let other = identity.filter(|learned| !learned.is_still(&now));
            is_other = other.is_some();
            let follows = self.follow && is_regular(stat);
            changing || other.is_none_or(|learned| follows && is_alike(learned, &now))
        };
        let (file, kind, dev) = open_if(path, is_wanted, identity.is_some(), self.uid)?;
        if is_other && first_time {
            self.progress.count(|report| {
                let files =
                    if changing { &mut report.changing_files } else { &mut report.followed_files };
                *files += 1;
            });
        }
        Ok(self.new_opened(file, dev, kind))
    }

    fn devices(&self) -> &Devices {
        self.devices.get_or_init(|| metadata::devices(&self.plan, &self.mounts))
    }

    fn open_device(&self, fs: &FileSystem) -> Option<Opened> {
        let path = self.devices().get(&fs.uuid?)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        let dev = rustix::fs::fstat(&file).ok()?.st_rdev;
        Some(self.new_opened(file, dev, Kind::Device))
    }

    fn new_opened(&self, file: File, dev: u64, kind: Kind) -> Opened {
        let mut known = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        let portion =
            *known.entry(dev).or_insert_with(|| portion(&file, Dev::from_stat(dev), &self.mounts));
        Opened { file, dev, portion, kind, _open: self.open.clone() }
    }

    /// What the target has of a step, which may be its last page, wherever that is: a file that changes may have
    /// become shorter, and grew perhaps by less than expected. Of a file that does not change it is all. It is never
    /// without a step.
    pub(super) fn existing(&self, step: &Step) -> Vec<Step> {
        let is_changing = self.plan.targets[step.target as usize].is_changing();
        let target = if is_changing { self.opened(step.target) } else { None };
        let Some(target) = target else { return vec![*step] };
        let nothing = ByteRange::of(step.bytes.offset, 0);
        let is_tail = self.plan.tails.binary_search(&(step.target, step.bytes.offset)).is_ok();
        let found = match is_tail {
            true => partial_page(&target.file, page_size()).into_iter().collect(),
            false => existing(&target.file, step.bytes, page_size()),
        };
        let found = if found.is_empty() { vec![nothing] } else { found };
        found.into_iter().map(|bytes| Step { bytes, ..*step }).collect()
    }

    /// The parts of a step that are read: all of it, but for gaps that lie elsewhere, where it matters.
    pub(super) fn parts(&self, target: &Opened, step: &Step) -> Vec<Step> {
        let has_gaps = self.plan.gaps.of(step).next().is_some();
        if !has_gaps
            || !self.plan.strategy.joins_by_place()
            || are_resident(&target.file, step.pages())
        {
            return vec![*step];
        }
        let ByteRange { offset, .. } = step.bytes;
        let extents = extents_in(&target.file, offset, step.bytes.length()).unwrap_or_default();
        self.divided(step, &joined(extents))
    }

    /// The same where the extents of the file are known.
    pub(super) fn divided(&self, step: &Step, extents: &[Extent]) -> Vec<Step> {
        let parts = divided(step.bytes, self.plan.gaps.of(step), extents);
        parts.into_iter().map(|bytes| Step { bytes, ..*step }).collect()
    }

    /// Notes that a step was divided into so many.
    pub(super) fn note_division(&self, step: &Step, parts: usize) {
        let more = self.uses * (parts as u32 - 1);
        self.uses_left[step.target as usize].fetch_add(more, Relaxed);
    }

    /// Notes that a step was dealt with. After its last use a target is closed.
    pub(super) fn note_use(&self, step: &Step) {
        if self.uses_left[step.target as usize].fetch_sub(1, Relaxed) == 1 {
            let mut slot = self.slot(step.target);
            if matches!(*slot, Slot::Open(_)) {
                *slot = Slot::Closed;
            }
        }
    }

    /// Whether one more step may stay open while it waits for others.
    pub(super) fn may_wait(&self) -> bool {
        self.open_files() < self.descriptors.gathered
    }

    /// How many files and devices are open.
    fn open_files(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::host::range::ByteRange;
    use crate::pack::paths::PathInterner;
    use crate::replay::device::DEFAULT_PORTION;
    use crate::replay::places;
    use crate::replay::report::Report;
    use headstart_testing::{disk_dir, skip};
    use std::fs;
    use std::time::Instant;

    const STEP: Step = Step { target: 0, bytes: ByteRange::of(0, 4096), touched_us: 0 };

    /// A plan of one file with one step.
    fn plan(path: &Path, identity: Option<Identity>, changing: bool) -> Arc<Plan> {
        let mut names = PathInterner::default();
        let node = names.intern(path).unwrap();
        Arc::new(Plan {
            targets: vec![Target::File { node, identity, changing }],
            steps: vec![STEP],
            paths: names.finish(),
            ..Plan::default()
        })
    }

    fn targets(plan: Arc<Plan>, uses: u32, follow: bool) -> Targets {
        let progress = Arc::new(Progress::new(Instant::now(), 0, None));
        Targets::new(plan, uses, follow, Mounts::default(), progress)
    }

    /// A file of so many bytes, in memory, opened as if it were of this kind.
    pub(crate) fn opened(size: usize, kind: Kind) -> (tempfile::TempDir, Arc<Opened>) {
        opened_in(tempfile::tempdir().unwrap(), size, kind)
    }

    /// The same of a file in this directory.
    pub(crate) fn opened_in(
        dir: tempfile::TempDir,
        size: usize,
        kind: Kind,
    ) -> (tempfile::TempDir, Arc<Opened>) {
        let path = dir.path().join("file");
        fs::write(&path, vec![1; size]).unwrap();
        let file = File::open(path).unwrap();
        let portion = Portion { bytes: DEFAULT_PORTION, by_reading: false };
        let dev = rustix::fs::fstat(&file).unwrap().st_dev;
        (dir, Arc::new(Opened { file, dev, portion, kind, _open: Arc::default() }))
    }

    /// A file of so many pages that lies in one piece on a disk; `None` and a note that the test is skipped
    /// where there is none.
    pub(crate) fn opened_in_one_piece(pages: u64) -> Option<(tempfile::TempDir, Arc<Opened>)> {
        let bytes = ByteRange::of(0, pages * 4096);
        let (dir, target) = opened_in(disk_dir(), bytes.length() as usize, Kind::Unnoticed);
        target.file.sync_all().unwrap();
        match places::stretch(&target.file, target.dev, bytes) {
            Some(stretch) if stretch.bytes.length() == bytes.length() => {
                return Some((dir, target));
            }
            Some(_) => skip("a file of a few pages does not lie in one piece"),
            None => skip("the file system of the tests does not say where a file lies"),
        }
        None
    }

    #[test]
    fn a_file_is_read_if_it_is_what_was_learned_or_may_be_another() {
        let files = |files| Report { files, ..Report::default() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "as long").unwrap();
        let learned = identity_of(&rustix::fs::stat(&path).unwrap());
        let alike = Identity { ino: learned.ino + 1, ..learned };
        let larger = Identity { size: learned.size + (1 << 30), ..learned };
        for (name, identity, changing, follow, expected) in [
            ("as learned", Some(learned), false, false, files(1)),
            ("of a list", None, false, false, files(1)),
            ("replaced", Some(alike), false, false, Report { stale_files: 1, ..Report::default() }),
            (
                "replaced and followed",
                Some(alike),
                false,
                true,
                Report { followed_files: 1, ..files(1) },
            ),
            (
                "replaced by quite another",
                Some(larger),
                false,
                true,
                Report { stale_files: 1, ..Report::default() },
            ),
            ("changing", Some(larger), true, false, Report { changing_files: 1, ..files(1) }),
        ] {
            let targets = targets(plan(&path, identity, changing), 1, follow);
            for _ in 0..2 {
                assert_eq!(targets.opened(0).is_some(), expected.files == 1, "{name}");
                assert_eq!(targets.progress.report(), expected, "{name}");
            }
        }
    }

    #[test]
    fn what_can_not_be_read_is_counted_by_reason() {
        let dir = tempfile::tempdir().unwrap();
        let (link, loop_) = (dir.path().join("link"), dir.path().join("link/file"));
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let learned = identity_of(&rustix::fs::stat(dir.path().join("file")).unwrap());
        let none = Report::default();
        for (name, path, identity, expected) in [
            ("gone", dir.path().join("gone"), None, Report { missing_files: 1, ..none }),
            ("a directory", dir.path().to_owned(), None, Report { failed: 1, ..none }),
            ("led elsewhere", loop_, Some(learned), Report { stale_files: 1, ..none }),
        ] {
            let targets = targets(plan(&path, identity, false), 1, false);
            assert!(targets.opened(0).is_none(), "{name}");
            assert_eq!(targets.progress.report(), expected, "{name}");
        }
    }

    #[test]
    fn metadata_of_what_is_not_mounted_is_left_to_the_program_for_that_reason() {
        let fs = FileSystem { uuid: Some([7; 16]), ..FileSystem::default() };
        let plan = Plan {
            targets: vec![Target::Device(Box::new(fs))],
            steps: vec![STEP],
            ..Plan::default()
        };
        let targets = targets(Arc::new(plan), 1, false);
        assert!(targets.opened(0).is_none());
        assert_eq!(targets.progress.report(), Report { absent_devices: 1, ..Report::default() });
    }

    #[test]
    fn a_file_of_which_a_step_was_divided_is_closed_after_the_last_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let targets = targets(plan(&path, None, false), 2, false);
        targets.note_division(&STEP, 3);
        for left in (0..6).rev() {
            drop(targets.opened(0));
            targets.note_use(&STEP);
            assert_eq!(targets.open_files(), usize::from(left > 0), "{left}");
        }
    }

    #[test]
    fn a_file_is_closed_after_its_last_use_and_opened_again_on_demand() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let targets = targets(plan(&path, None, false), 2, false);
        for open_files in [1, 0] {
            drop(targets.opened(0));
            targets.note_use(&STEP);
            assert_eq!(targets.open_files(), open_files);
        }
        let again = targets.opened(0);
        assert!(again.is_some());
        assert_eq!(targets.progress.report().files, 1, "it is counted once");
    }
}
