//! The files and devices of a plan: opened when a step comes to them, checked
//! against what was learned, and closed after their last.

use super::Shared;
use super::opened::{Opened, Slot};
use crate::host::id::Dev;
use crate::host::identity::identity_of;
use crate::host::open::{Kind, NotRead, is_regular, open_if};
use crate::pack::renew::is_alike;
use crate::pack::{FileSystem, Identity};
use crate::replay::device::{Portion, portion};
use crate::replay::metadata;
use crate::replay::step::{Step, Target};
use rustix::fs::{Mode, OFlags, Stat};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Shared {
    /// After the last use of a target it is closed.
    pub(super) fn note_use(&self, step: &Step) {
        let target = step.target as usize;
        if self.left[target].fetch_sub(1, Relaxed) == 1 {
            self.close(target);
        }
    }

    fn slot(&self, target: usize) -> MutexGuard<'_, Slot> {
        self.slots[target].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target, opened and checked; `None` when nothing is read from it.
    pub(super) fn opened(&self, target: usize) -> Option<Arc<Opened>> {
        let mut slot = self.slot(target);
        let first_time = matches!(*slot, Slot::New);
        match &*slot {
            Slot::Open(opened) => return Some(opened.clone()),
            Slot::Dropped => return None,
            Slot::New | Slot::Closed => {}
        }
        let opened = match &self.plan.targets[target] {
            Target::File { node, identity, changing } => {
                let path = self.plan.paths.path(*node);
                self.open_file(&path, identity.as_ref(), *changing, first_time)
            }
            Target::Device(fs) => self.open_device(fs),
        };
        match opened {
            Ok(opened) => {
                let opened = Arc::new(opened);
                if first_time && opened.kind != Kind::Device {
                    self.counters.files.fetch_add(1, Relaxed);
                }
                *slot = if self.open_files() <= self.descriptors.kept {
                    Slot::Open(opened.clone())
                } else {
                    Slot::Closed
                };
                Some(opened)
            }
            Err(_) if matches!(self.plan.targets[target], Target::Device(_)) => {
                self.counters.closed_devices.fetch_add(1, Relaxed);
                *slot = Slot::Dropped;
                None
            }
            Err(why) => {
                why.count(&self.counters).fetch_add(1, Relaxed);
                *slot = Slot::Dropped;
                None
            }
        }
    }

    fn close(&self, target: usize) {
        let mut slot = self.slot(target);
        if matches!(*slot, Slot::Open(_)) {
            *slot = Slot::Closed;
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
            let follows = self.options.follow && is_regular(stat);
            changing || other.is_none_or(|learned| follows && is_alike(learned, &now))
        };
        let (file, kind, dev) = open_if(path, is_wanted, identity.is_some(), self.uid)?;
        if is_other && first_time {
            let c = &self.counters;
            let counter = if changing { &c.changing_files } else { &c.followed_files };
            counter.fetch_add(1, Relaxed);
        }
        Ok(self.new_opened(file, dev, kind))
    }

    fn new_opened(&self, file: File, dev: u64, kind: Kind) -> Opened {
        Opened { file, dev, portion: self.portion(dev), kind, _open: self.open.clone() }
    }

    /// How many files and devices are open.
    pub(super) fn open_files(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    fn open_device(&self, fs: &FileSystem) -> Result<Opened, NotRead> {
        let devices = self.devices.get_or_init(|| metadata::devices(&self.plan, &self.mounts));
        let path = fs.uuid.and_then(|uuid| devices.get(&uuid)).ok_or(NotRead::Missing)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let dev = rustix::fs::fstat(&file)?.st_rdev;
        Ok(self.new_opened(file, dev, Kind::Device))
    }

    fn portion(&self, dev: u64) -> Portion {
        let mut known = self.portions.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(dev).or_insert_with(|| portion(Dev::from_stat(dev)))
    }
}
