//! Repacks files where they are or to another name, and undoes it.

use super::dpkg::Dpkg;
use super::journal::{Journal, Record};
use super::loader::Loaders;
use super::obstacles::{Obstacle, Running, check_file, check_loader};
use super::owned::Owned;
use super::read::{Read, open, read};
use super::replace::{Staged, clean, link_over};
use crate::image::Image;
use crate::repack::refuse::Refusal;
use crate::repack::{self, Change, Repacked, proof};
use rustix::fs::{AtFlags, CWD};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is requested.
#[derive(Debug)]
pub struct Settings {
    /// Bytes that must become free.
    pub minimum: u64,
    /// The root of the system where the files will run.
    pub root: PathBuf,
    /// Whether any loader will do.
    pub any_loader: bool,
    /// Files of packages, where they stay as they are.
    pub owned: Option<Owned>,
    /// Whether those of dpkg are diverted instead.
    pub divert: bool,
    /// What dpkg knows.
    pub dpkg: Dpkg,
    /// What loaders know.
    pub loaders: Loaders,
    /// Programs that run.
    pub running: Running,
    /// A shell command that must do the same with the old and with the new file.
    pub check: Option<String>,
    /// Where records are kept.
    pub journal: Journal,
}

/// What is at the names of a repacked file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Since {
    /// Files that something else put there, each by all of its names.
    pub replaced: Vec<Vec<PathBuf>>,
    /// Whether nothing is there, though the directories are.
    pub is_gone: bool,
}

/// Why a file was not changed.
#[derive(thiserror::Error, Debug)]
pub enum Failure {
    /// It must not be, or nothing would be gained.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// The file system.
    #[error("{what} failed")]
    Io {
        /// What was done.
        what: &'static str,
        /// What came back.
        source: io::Error,
    },
    /// The file itself is where the copy is to be.
    #[error("the new file would replace it; give --in-place, or another name")]
    SameFile,
    /// The check command.
    #[error("the check ended or printed otherwise with the new file than with the old one")]
    Check,
    /// A diverted file that is something else.
    #[error(
        "something else replaced it since; to have the file of its package back: ln -f {} {}, and \
             headstart elf undo", .original.display(), .name.display()
    )]
    Replaced {
        /// Where the packaged file is.
        original: PathBuf,
        /// Where it belongs.
        name: PathBuf,
    },
    /// A diverted file without its record.
    #[error("its record is gone; the file of its package is in its place, without a diversion")]
    NoRecord,
    /// Nothing to undo.
    #[error("it was not repacked here, or was replaced since")]
    NotRepacked,
}

/// Whether a file is the repacked one of a record.
fn fits(record: &Record, name: &Path) -> io::Result<bool> {
    let (file, stat) = open(name)?;
    record.fits(&file, u64::try_from(stat.st_size).unwrap_or(u64::MAX))
}

/// Names an error.
pub(super) fn io(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |source| Failure::Io { what, source }
}

impl Settings {
    /// A path as it is in the system of the root.
    pub fn inner(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root)
            .map_or_else(|_| path.to_owned(), |rest| Path::new("/").join(rest))
    }

    /// A path of that system as it is here.
    pub fn outer(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What repacking would give, unless something forbids it.
    ///
    /// # Errors
    /// The reason.
    pub fn plan(&self, names: &[PathBuf], read: &Read) -> Result<Repacked, Failure> {
        let repacked = self.content(names, 0, read)?;
        self.diverts(names)?;
        Ok(repacked)
    }

    /// The same, whoever has the file. It has so many `more` names that are known.
    pub(super) fn content(
        &self,
        names: &[PathBuf],
        more: usize,
        read: &Read,
    ) -> Result<Repacked, Failure> {
        let repacked = repack::repack(&read.bytes, self.minimum).map_err(Obstacle::from)?;
        let image = Image::parse(&read.bytes).map_err(|e| Obstacle::Refused(e.into()))?;
        if !self.any_loader {
            check_loader(&self.loaders, &image, &self.root)?;
        }
        let known = (names.len() + more) as u64;
        #[allow(clippy::unnecessary_cast)] // Not everywhere.
        let links = read.stat.st_nlink as u64;
        if links > known {
            return Err(Obstacle::MoreNames { links, known }.into());
        }
        for name in names {
            check_file(name, read, &self.running)?;
        }
        Ok(repacked)
    }

    /// Repacks a file under all of its `names`, which are absolute and no links.
    ///
    /// # Errors
    /// The reason why not; then it is as before.
    pub fn in_place(&self, names: &[PathBuf]) -> Result<Change, Failure> {
        let first = names.first().ok_or(Failure::NotRepacked)?;
        names.iter().try_for_each(|name| clean(name)).map_err(io("Cleaning up next to it"))?;
        if let Some(record) = self.diverted(first)? {
            if let Some(change) = self.renew_diverted(&record)? {
                return Ok(change);
            }
            if self.diverted(first)?.is_some() {
                return Err(Obstacle::from(Refusal::AlreadyPacked).into());
            }
            // Its diversion is gone.
        }
        self.finish(first)?;
        let old = read(first).map_err(io("Reading it"))?;
        let new = self.plan(names, &old)?;
        if self.diverts(names)? {
            return self.place_diverted(names, &old, &new);
        }
        let staged = Staged::write(first, &new.bytes, &new.hole, &old);
        let staged = staged.map_err(io("Writing the new file next to it"))?;
        self.run_check(first, staged.path())?;
        let inner: Vec<_> = names.iter().map(|name| self.inner(name)).collect();
        let record = Record::between(&inner, &old.bytes, &new.bytes);
        self.journal.keep(&record).map_err(io("Keeping how to undo it"))?;
        let placed = staged.place(names, &old.stat);
        if placed.is_err() && names.len() == 1 {
            // Of several names some may lead to the new file.
            self.journal.forget(&record).map_err(io("Removing its record"))?;
        }
        placed.map_err(io("Replacing it"))?;
        Ok(new.change)
    }

    /// Writes a repacked copy.
    ///
    /// # Errors
    /// The reason why not; then nothing is written.
    pub fn to_other(&self, path: &Path, out: &Path) -> Result<Change, Failure> {
        let old = read(path).map_err(io("Reading it"))?;
        // A check must not look for it in PATH.
        let out = &std::path::absolute(out).map_err(io("Naming the new file"))?;
        // There are no records of copies.
        let is_same = |meta: std::fs::Metadata| {
            (meta.dev(), meta.ino()) == (old.stat.st_dev, old.stat.st_ino)
        };
        if out.metadata().is_ok_and(is_same) {
            return Err(Failure::SameFile);
        }
        let new = repack::repack(&old.bytes, self.minimum).map_err(Obstacle::from)?;
        let image = Image::parse(&old.bytes).map_err(|e| Obstacle::Refused(e.into()))?;
        if !self.any_loader {
            check_loader(&self.loaders, &image, &self.root)?;
        }
        let staged = Staged::write_copy(out, &new.bytes, &new.hole, &old);
        let staged = staged.map_err(io("Writing the new file"))?;
        self.run_check(path, staged.path())?;
        staged.place_over(out).map_err(io("Naming the new file"))?;
        Ok(new.change)
    }

    /// Makes a file what it was, under all of its names.
    ///
    /// # Errors
    /// The reason why not; then it is as before.
    pub fn undo(&self, name: &Path) -> Result<(), Failure> {
        if let Some(record) = self.diverted(name)? {
            return self.undo_diverted(&record);
        }
        self.finish(name)?;
        let record = self.journal.find(&self.inner(name)).map_err(io("Reading its record"))?;
        let record = record.ok_or(Failure::NotRepacked)?;
        let now = read(name).map_err(io("Reading it"))?;
        let old = record.undo(&now.bytes).ok_or(Failure::NotRepacked)?;
        // The record is of this file, whatever its checksum says.
        if proof::prove(&old, &now.bytes).is_err() {
            return Err(Failure::NotRepacked);
        }
        let names: Vec<_> = record.names().iter().map(|name| self.outer(name)).collect();
        let staged = Staged::write(name, &old, &(0..0), &now);
        let staged = staged.map_err(io("Writing the old file next to it"))?;
        // Others were removed or replaced since.
        let is_same = |other: &PathBuf| {
            rustix::fs::statat(CWD, other, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|other| {
                (other.st_dev, other.st_ino) == (now.stat.st_dev, now.stat.st_ino)
            })
        };
        // The first name is the one beside which it was written.
        let mut ordered = vec![name.to_owned()];
        ordered.extend(names.into_iter().filter(|one| one != name && is_same(one)));
        staged.place(&ordered, &now.stat).map_err(io("Replacing it"))?;
        self.journal.forget(&record).map_err(io("Removing its record"))
    }

    /// What is at the names of a file that was repacked where it is; a change that was left half
    /// way is finished before.
    ///
    /// # Errors
    /// That can't be finished.
    pub fn since(&self, record: &Record) -> Result<Since, Failure> {
        let names: Vec<_> = record.names().iter().map(|name| self.outer(name)).collect();
        if let Some(first) = names.first() {
            self.finish(first)?;
        }
        let mut files = BTreeMap::<(u64, u64), Vec<PathBuf>>::new();
        let mut is_gone = true;
        for name in names {
            if !self.is_of(&name, record) {
                continue;
            }
            match name.symlink_metadata() {
                Ok(meta) if !meta.is_symlink() => {
                    is_gone = false;
                    files.entry((meta.dev(), meta.ino())).or_default().push(name);
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => is_gone = false,
                // Its file system may just be unmounted.
                _ => is_gone &= name.parent().is_some_and(Path::is_dir),
            }
        }
        // What can't be read now may be read later.
        let is_other = |names: &Vec<PathBuf>| {
            names.first().is_some_and(|name| matches!(fits(record, name), Ok(false)))
        };
        Ok(Since { replaced: files.into_values().filter(is_other).collect(), is_gone })
    }

    /// Whether a record is that of this name; else it was repacked again, without the others.
    fn is_of(&self, name: &Path, record: &Record) -> bool {
        !matches!(self.journal.find(&self.inner(name)), Ok(Some(other)) if other != *record)
    }

    /// The name by which a file is undone: one that is there, of those that the record is of.
    pub fn name_of(&self, record: &Record) -> Option<PathBuf> {
        let mut names: Vec<_> = record.names().iter().map(|name| self.outer(name)).collect();
        names.retain(|name| self.is_of(name, record));
        let there = names.iter().find(|name| open(name).is_ok());
        there.or(names.first()).cloned()
    }

    /// Forgets how a file is undone, unless one of its names still leads to the repacked one.
    ///
    /// # Errors
    /// The record can't be read or removed.
    pub fn forget(&self, name: &Path) -> Result<(), Failure> {
        let record = self.journal.find(&self.inner(name)).map_err(io("Reading its record"))?;
        let Some(record) = record else { return Ok(()) };
        let is_repacked = |name: &PathBuf| matches!(fits(&record, &self.outer(name)), Ok(true));
        if record.names().iter().any(is_repacked) {
            return Ok(());
        }
        self.journal.forget(&record).map_err(io("Removing its record"))
    }

    /// The record of a file that is diverted.
    fn diverted(&self, name: &Path) -> Result<Option<Record>, Failure> {
        let record = self.journal.find(&self.inner(name)).map_err(io("Reading its record"))?;
        Ok(record.filter(Record::is_diverted))
    }

    /// A file with several names may have been left half way: names that lead to the old file
    /// are led to the new one.
    fn finish(&self, name: &Path) -> Result<(), Failure> {
        let record = self.journal.find(&self.inner(name)).map_err(io("Reading its record"))?;
        let Some(record) = record else { return Ok(()) };
        let names: Vec<_> = record.names().iter().map(|name| self.outer(name)).collect();
        names.iter().try_for_each(|name| clean(name)).map_err(io("Cleaning up next to it"))?;
        if names.len() < 2 {
            return Ok(());
        }
        let reads: Vec<_> = names.iter().map(|name| read(name).ok()).collect();
        let undone = |read: &Option<Read>| read.as_ref().and_then(|read| record.undo(&read.bytes));
        let Some((new, old)) =
            reads.iter().enumerate().find_map(|(n, one)| Some((n, undone(one)?)))
        else {
            return Ok(());
        };
        let (Some(from), Some(Some(new))) = (names.get(new), reads.get(new)) else { return Ok(()) };
        for (name, read) in names.iter().zip(&reads) {
            let Some(read) = read else { continue };
            if read.stat.st_ino != new.stat.st_ino && read.bytes == old {
                link_over(from, name, &read.stat).map_err(io("Finishing an earlier change"))?;
            }
        }
        Ok(())
    }

    /// Runs the check with the old and the new file: status and output must be the same.
    pub(super) fn run_check(&self, old: &Path, new: &Path) -> Result<(), Failure> {
        let Some(check) = &self.check else { return Ok(()) };
        let run = |path: &Path| {
            let command = check.replace("{}", "\"$1\"");
            let words = ["-c", &command, "check"];
            let output = Command::new("sh").args(words).arg(path).stdin(Stdio::null()).output();
            let output = output.map_err(io("Starting the check"))?;
            // Programs name themselves in what they print.
            let name = path.as_os_str().as_bytes();
            let shown = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes).replace(&*String::from_utf8_lossy(name), "{}")
            };
            Ok::<_, Failure>((output.status, shown(&output.stdout), shown(&output.stderr)))
        };
        if run(old)? == run(new)? { Ok(()) } else { Err(Failure::Check) }
    }
}
