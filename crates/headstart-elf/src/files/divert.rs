//! Repacks files of Debian packages where upgrades do not write over them: the packaged file has
//! a second name, to which dpkg-divert(1) leads upgrades, and the repacked one is at the first.
//!
//! Steps, after each of which a process may be killed: the record, the second name (a hard link),
//! the diversion, the exchange of the new file with the old one. Back: the packaged file is led
//! to the first name, then go the diversion, the second name, and the record. The next call goes
//! on from wherever that was left.

use super::change::{Failure, Settings, io};
use super::dpkg::original;
use super::journal::Record;
use super::obstacles::Obstacle;
use super::read::{Read, read};
use super::replace::{Staged, clean, link_over, sync_directory};
use crate::repack::{Change, Repacked, proof};
use rustix::fs::{AtFlags, CWD, Stat};
use std::path::{Path, PathBuf};

/// A name of a file.
struct Name {
    path: PathBuf,
    /// That of the packaged file.
    original: PathBuf,
    /// As dpkg knows it.
    listed: PathBuf,
    is_diverted: bool,
}

/// What leads a name to its packaged file.
enum Step {
    /// It does already.
    None,
    /// A link in the place of this file.
    Link(Stat),
    /// A link where nothing is.
    Add,
    /// The record: this was the packaged file, and the file there now is that.
    Make(Vec<u8>, Read),
}

/// The file of a name, if there is one.
fn stat(path: &Path) -> Option<Stat> {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

impl Name {
    fn has_original(&self) -> bool {
        stat(&self.original).is_some()
    }

    fn leads_to_original(&self) -> bool {
        matches!((stat(&self.path), stat(&self.original)), (Some(a), Some(b)) if is_same(&a, &b))
    }
}

impl Settings {
    /// Whether a file has to be diverted.
    ///
    /// # Errors
    /// It belongs to a package and must not be.
    pub(super) fn diverts(&self, names: &[PathBuf]) -> Result<bool, Obstacle> {
        let has =
            |owned: &super::owned::Owned| names.iter().any(|name| owned.has(&self.inner(name)));
        if !self.owned.as_ref().is_some_and(has) {
            return Ok(false);
        }
        for name in names.iter().map(|name| self.inner(name)) {
            // Its lists are large.
            let package = self.divert.then(|| self.dpkg.package(&name)).flatten();
            let package = package.ok_or(Obstacle::Packaged)?;
            if self.dpkg.is_needed(&name) {
                return Err(Obstacle::UpgradesNeedIt(package));
            }
        }
        Ok(true)
    }

    fn names_of(&self, paths: &[PathBuf]) -> Vec<Name> {
        let one = |path: &PathBuf| {
            let inner = self.inner(path);
            let diverted = self.dpkg.diverted(&inner);
            let is_diverted = diverted.is_some();
            let listed = diverted.unwrap_or_else(|| self.dpkg.name(&inner));
            Name { path: path.clone(), original: original(path), listed, is_diverted }
        };
        paths.iter().map(one).collect()
    }

    /// The names of a record as they are here.
    fn recorded(&self, record: &Record) -> Vec<Name> {
        let paths: Vec<_> = record.names().iter().map(|name| self.outer(name)).collect();
        self.names_of(&paths)
    }

    /// Puts the repacked file of a packaged one, `old`, at its names.
    ///
    /// # Errors
    /// The reason why not; then the packaged file is there.
    pub(super) fn place_diverted(
        &self,
        paths: &[PathBuf],
        old: &Read,
        new: &Repacked,
    ) -> Result<Change, Failure> {
        let names = self.names_of(paths);
        let first = names.first().ok_or(Failure::NotRepacked)?;
        let staged = Staged::write(&first.path, &new.bytes, &new.hole, old);
        let staged = staged.map_err(io("Writing the new file next to it"))?;
        self.run_check(&first.path, staged.path())?;
        let inner: Vec<_> = paths.iter().map(|path| self.inner(path)).collect();
        let record = Record::between(&inner, &old.bytes, &new.bytes).diverted();
        self.journal.keep(&record).map_err(io("Keeping how to undo it"))?;
        let diverted = names.iter().try_for_each(|name| self.add_diversion(name));
        let placed =
            diverted.and_then(|()| staged.place(paths, &old.stat).map_err(io("Replacing it")));
        if placed.is_err() {
            self.undo_diverted(&record)?;
        }
        placed.map(|()| new.change)
    }

    fn add_diversion(&self, name: &Name) -> Result<(), Failure> {
        if !name.leads_to_original() {
            // Without a diversion nothing is kept up to date there.
            if name.has_original() {
                std::fs::remove_file(&name.original)
                    .map_err(io("Removing an old packaged file"))?;
            }
            std::fs::hard_link(&name.path, &name.original)
                .and_then(|()| sync_directory(&name.path))
                .map_err(io("Giving the packaged file a second name"))?;
        }
        if name.is_diverted {
            return Ok(());
        }
        self.dpkg.divert(&name.listed).map_err(io("Diverting it"))
    }

    /// What leads each name to its packaged file.
    fn steps(&self, record: &Record, names: &[Name]) -> Result<Vec<Step>, Failure> {
        let step = |name: &Name| {
            if name.leads_to_original() {
                return Ok(Step::None);
            }
            let has_original = name.has_original();
            if stat(&name.path).is_none() {
                return if has_original { Ok(Step::Add) } else { Err(Failure::NotRepacked) };
            }
            let now = read(&name.path).map_err(io("Reading it"))?;
            match (record.undo(&now.bytes), has_original) {
                (Some(_), true) => Ok(Step::Link(now.stat)),
                (Some(old), false) => match proof::prove(&old, &now.bytes) {
                    Ok(_) => Ok(Step::Make(old, now)),
                    Err(_) => Err(Failure::NotRepacked),
                },
                (None, true) if record.is_old(&now.bytes) => Ok(Step::Link(now.stat)),
                (None, false) if record.is_old(&now.bytes) => Ok(Step::None),
                (None, true) if name.is_diverted => Err(Failure::Replaced {
                    original: name.original.clone(),
                    name: name.path.clone(),
                }),
                (None, _) => Err(Failure::NotRepacked),
            }
        };
        names.iter().map(step).collect()
    }

    /// Leads each name to its packaged file, which an upgrade may have replaced.
    fn restore(&self, record: &Record, names: &[Name]) -> Result<(), Failure> {
        for name in names {
            clean(&name.path).map_err(io("Cleaning up next to it"))?;
        }
        let steps = self.steps(record, names)?;
        for (name, step) in names.iter().zip(&steps) {
            let done = match step {
                Step::Link(now) => link_over(&name.original, &name.path, now),
                Step::Add => std::fs::hard_link(&name.original, &name.path),
                Step::None | Step::Make(..) => Ok(()),
            };
            done.and_then(|()| sync_directory(&name.path)).map_err(io("Replacing it"))?;
        }
        let mut made = names.iter().zip(&steps).filter_map(|(name, step)| match step {
            Step::Make(old, now) => Some((name, old, now)),
            _ => None,
        });
        let Some((first, old, now)) = made.next() else { return Ok(()) };
        let staged = Staged::write(&first.path, old, &(0..0), now);
        let staged = staged.map_err(io("Writing the old file next to it"))?;
        let others = made.map(|(name, _, now)| (name.path.as_path(), now.stat));
        let all: Vec<_> = [(first.path.as_path(), now.stat)].into_iter().chain(others).collect();
        staged.place_each(&all).map_err(io("Replacing it"))
    }

    /// Removes diversions, second names and the record.
    fn forget_diverted(&self, record: &Record, names: &[Name]) -> Result<(), Failure> {
        names.iter().try_for_each(|name| self.drop_diversion(name))?;
        self.journal.forget(record).map_err(io("Removing its record"))
    }

    fn drop_diversion(&self, name: &Name) -> Result<(), Failure> {
        if name.is_diverted {
            self.dpkg.release(&name.listed).map_err(io("Removing its diversion"))?;
        }
        match std::fs::remove_file(&name.original) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(io("Removing the second name of the packaged file")(error))
            }
            _ => Ok(()),
        }
    }

    /// Leads the names of a diverted file to the packaged one, and removes the diversion.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn undo_diverted(&self, record: &Record) -> Result<(), Failure> {
        let names = self.recorded(record);
        match self.restore(record, &names) {
            Err(Failure::NotRepacked) if names.iter().all(|name| !name.is_diverted) => {
                // Something else is there, and somebody removed the diversion.
                self.forget_diverted(record, &names)?;
                Err(Failure::NotRepacked)
            }
            restored => restored.and_then(|()| self.forget_diverted(record, &names)),
        }
    }

    /// Repacks a diverted file again if an upgrade replaced the packaged one; `None` where
    /// nothing is to be done. A packaged file that can't be repacked is put in its place, and
    /// what no package has any more goes.
    ///
    /// # Errors
    /// The reason why it was not repacked.
    pub fn renew_diverted(&self, record: &Record) -> Result<Option<Change>, Failure> {
        let names = self.recorded(record);
        if !names.iter().all(|name| name.path.parent().is_some_and(Path::is_dir)) {
            // Its file system may just be unmounted.
            return Ok(None);
        }
        let is_packed = |name: &Name| {
            let now = read(&name.path).ok()?;
            let old = record.undo(&now.bytes)?;
            match read(&name.original) {
                Ok(original) => Some(original.bytes == old),
                // Somebody removed it. Undo makes it of the record.
                Err(_) => Some(self.dpkg.package(&name.listed).is_some()),
            }
        };
        if names.iter().all(|name| is_packed(name) == Some(true)) {
            return Ok(None);
        }
        let is_gone =
            |name: &Name| !name.has_original() && self.dpkg.package(&name.listed).is_none();
        if names.iter().all(is_gone) {
            return self.remove_diverted(record, &names).map(|()| None);
        }
        let again = self.restore(record, &names).and_then(|()| {
            let paths: Vec<_> = names.iter().map(|name| name.path.clone()).collect();
            let first = paths.first().ok_or(Failure::NotRepacked)?;
            let old = read(first).map_err(io("Reading it"))?;
            let second = names.iter().filter(|name| {
                stat(&name.original).is_some_and(|original| is_same(&original, &old.stat))
            });
            let new = self.content(&paths, second.count(), &old)?;
            self.place_diverted(&paths, &old, &new)
        });
        if again.is_err() {
            match self.undo_diverted(record) {
                // Somebody removed the diversion, and an upgrade wrote the file.
                Err(Failure::NotRepacked) if names.iter().all(|name| !name.is_diverted) => {
                    return Ok(None);
                }
                undone => undone?,
            }
        }
        again.map(Some)
    }

    /// The package went.
    fn remove_diverted(&self, record: &Record, names: &[Name]) -> Result<(), Failure> {
        for name in names {
            let Ok(now) = read(&name.path) else { continue };
            if record.undo(&now.bytes).is_some() {
                std::fs::remove_file(&name.path).map_err(io("Removing it with its package"))?;
            }
        }
        self.forget_diverted(record, names)
    }

    /// Puts the packaged file in the place of each that is diverted without a record, since
    /// nothing would renew it. Each that was, by its name.
    pub fn undo_unrecorded(&self) -> Vec<(PathBuf, Result<(), Failure>)> {
        // Records of root are not there for others.
        let is_root = rustix::process::geteuid().is_root();
        let all = if is_root { self.dpkg.all_diverted() } else { Vec::new() };
        let diverted = all.into_iter().filter_map(|listed| {
            let place = self.outer(&listed);
            let dir = std::fs::canonicalize(place.parent()?).ok()?;
            let path = dir.join(place.file_name()?);
            let has_record = !matches!(self.journal.find(&self.inner(&path)), Ok(None));
            (!has_record).then_some(path)
        });
        let back = |name: &Name| {
            if name.has_original() && !name.leads_to_original() {
                clean(&name.path).map_err(io("Cleaning up next to it"))?;
                match stat(&name.path) {
                    Some(now) => link_over(&name.original, &name.path, &now),
                    None => std::fs::hard_link(&name.original, &name.path),
                }
                .map_err(io("Replacing it"))?;
            }
            self.drop_diversion(name)
        };
        diverted
            .flat_map(|path| self.names_of(&[path]))
            .map(|name| (name.path.clone(), back(&name)))
            .collect()
    }
}
