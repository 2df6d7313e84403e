//! Packs of a layout learn in which blocks the extents of its files lie after blocks were moved, and forget those that
//! hold none any more.

use crate::output;
use crate::replay::named_pack;
use headstart::host::mounts::MountTable;
use headstart::pack::store;
use headstart_layout::journal::{Journal, Swap};
use headstart_layout::renewed::renewed;
use headstart_layout::trees::Trees;
use headstart_layout::volume::Volume;
use std::path::Path;

/// Where extents lay before blocks are moved.
pub struct Renewal<'a> {
    volume: &'a Volume,
    journal: &'a Journal,
    mounts: &'a MountTable,
    before: Option<Trees>,
}

impl<'a> Renewal<'a> {
    /// Looks before blocks are moved. A layout holds without packs that know of it, so what fails is only reported.
    pub fn begin(volume: &'a Volume, journal: &'a Journal, mounts: &'a MountTable) -> Self {
        let before = trees(volume, journal, mounts);
        Self { volume, journal, mounts, before }
    }

    /// Tells the packs when blocks were moved, all of them or not.
    pub fn finish(self) {
        let now = trees(self.volume, self.journal, self.mounts);
        let (Some(uuid), Some(before), Some(now)) = (self.volume.uuid, self.before, now) else {
            return;
        };
        for path in &self.journal.packs {
            if let Err(error) = renew(path, uuid, &before, &now) {
                output::message(format_args!("{}: not renewed: {error:#}", output::shown(path)));
            }
        }
    }
}

/// The extents of the files that are laid out. Packs know nothing of those that are moved aside.
fn trees(volume: &Volume, journal: &Journal, mounts: &MountTable) -> Option<Trees> {
    let file = |swap: &Swap| journal.files.get(swap.piece.file);
    let inodes = journal.swaps.iter().filter_map(file).map(|file| file.identity.ino).collect();
    volume.trees(&inodes, mounts).inspect_err(|error| output::error(error)).ok()
}

/// Renews a pack. Who wrote the journal said where it is: no link of another user is followed, and nothing is made.
fn renew(path: &Path, uuid: [u8; 16], before: &Trees, now: &Trees) -> anyhow::Result<()> {
    let locked = store::lock_existing(path)?;
    if let Some(pack) = renewed(&named_pack(path)?, uuid, before, now) {
        locked.write(&pack)?;
    }
    Ok(())
}
