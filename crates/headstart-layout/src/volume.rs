//! The file system of a layout, and its directory with donor and journal. A driver.
//!
//! The directory is on the file system itself, so that they are never apart. It is root's own; what
//! is in it is opened by its descriptor and without following links.

use super::error::LayoutError;
use super::extents::joined;
use super::journal::{Donor, Journal};
use super::unfit::{self, Unfit};
use super::wanted::Wanted;
use headstart::cache::residency::page_size;
use headstart::host::contents;
use headstart::host::fsid;
use headstart::host::id::Dev;
use headstart::host::mounts::{Mount, MountTable};
use headstart_sys::fiemap::{self, Extent};
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatVfs};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directory below the root of the file system.
const DIR: &str = ".headstart-layout";
const JOURNAL: &str = "journal";
/// The journal while it is written.
const UNFINISHED: &str = "journal.new";
const DONOR: &str = "donor";
/// How many places are tried for the donor, if the first is not in one piece.
const TRIALS: usize = 4;
/// One part in this many of the file system stays free: it needs room of its own.
const RESERVE_PART: u64 = 50;

/// A file system that can be laid out.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Where all of it is mounted.
    pub mount_point: PathBuf,
    /// The device.
    pub dev: Dev,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
}

impl Volume {
    /// The file system that a path leads to.
    ///
    /// # Errors
    /// It is no ext4, or not mounted as a whole.
    pub fn of(path: &Path, mounts: &MountTable) -> Result<Self, LayoutError> {
        let mount = mounts.at(path).ok_or(LayoutError::NoMounts)?;
        if mount.fstype != "ext4" {
            let kind = mount.fstype.to_string_lossy().into_owned();
            return Err(LayoutError::OtherKind { path: mount.mount_point.clone(), kind });
        }
        let whole = mounts.visible_of(mount.dev).into_iter().find(|mount| mount.is_whole());
        let part = || LayoutError::PartOnly { path: mount.mount_point.clone() };
        whole.map(Self::at).ok_or_else(part)
    }

    /// The file systems that wanted files are on, and for each that can't be laid out the reason.
    pub fn of_wanted(wanted: &Wanted, mounts: &MountTable) -> (Vec<Self>, Vec<LayoutError>) {
        let mut seen = HashSet::new();
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        for file in &wanted.files {
            let dev = mounts.at(&file.path).map(|mount| mount.dev);
            if seen.insert(dev) {
                match Self::of(&file.path, mounts) {
                    Ok(volume) => out.push(volume),
                    Err(error) => refused.push(error),
                }
            }
        }
        (out, refused)
    }

    /// All file systems here that have a layout, or what is left of one.
    pub fn laid_out(mounts: &MountTable) -> Vec<Self> {
        let mut out: Vec<Self> = Vec::new();
        for mount in mounts.mounts().iter().filter(|mount| mount.fstype == "ext4") {
            if let Ok(volume) = Self::of(&mount.mount_point, mounts)
                && !out.iter().any(|known| known.dev == volume.dev)
                && volume.dir().symlink_metadata().is_ok()
            {
                out.push(volume);
            }
        }
        out
    }

    fn at(mount: &Mount) -> Self {
        let uuid = fsid::uuid(mount).ok().flatten().map(|uuid| uuid.0);
        Self { mount_point: mount.mount_point.clone(), dev: mount.dev, uuid }
    }

    /// Whether blocks may be moved on it.
    ///
    /// # Errors
    /// Why not, or its superblock can't be read.
    pub fn fit(&self, mounts: &MountTable) -> Result<(), LayoutError> {
        let path = || self.mount_point.clone();
        let unfit = |why| LayoutError::Unfit { path: path(), why };
        let mount = mounts.visible_of(self.dev).into_iter().find(|mount| mount.is_whole());
        let mount = mount.ok_or_else(|| LayoutError::PartOnly { path: path() })?;
        let device = fsid::block_device(mount).ok().flatten().ok_or(unfit(Unfit::Unknown))?;
        let mut block = [0; unfit::LENGTH];
        File::open(&device.path)
            .and_then(|file| file.read_exact_at(&mut block, unfit::OFFSET))
            .map_err(LayoutError::io("Can't read the superblock of", &device.path))?;
        unfit::check(&block, [&mount.options, &mount.super_options], page_size()).map_err(unfit)
    }

    /// The directory with donor and journal.
    pub fn dir(&self) -> PathBuf {
        self.mount_point.join(DIR)
    }

    /// Bytes of a block.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn block(&self) -> Result<u64, LayoutError> {
        Ok(self.statistics()?.f_bsize)
    }

    /// Bytes that a layout may take.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn room(&self) -> Result<u64, LayoutError> {
        let all = self.statistics()?;
        let blocks = all.f_bavail.saturating_sub(all.f_blocks / RESERVE_PART);
        Ok(blocks.saturating_mul(all.f_frsize))
    }

    /// Writes to the disk what is to be written.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn sync(&self) -> Result<(), LayoutError> {
        let root = File::open(&self.mount_point)
            .map_err(LayoutError::io("Can't open", &self.mount_point))?;
        rustix::fs::syncfs(&root).map_err(LayoutError::io("Can't write", &self.mount_point))
    }

    fn statistics(&self) -> Result<StatVfs, LayoutError> {
        let failed = LayoutError::io("Can't look at", &self.mount_point);
        rustix::fs::statvfs(&self.mount_point).map_err(failed)
    }

    /// Opens its directory, if there is one, and locks it.
    ///
    /// # Errors
    /// It is not root's own, or another headstart has it.
    pub fn open(&self) -> Result<Option<Store>, LayoutError> {
        let path = self.dir();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.mount_point, flags, Mode::empty())
            .map_err(LayoutError::io("Can't open", &self.mount_point))?;
        let dir = match rustix::fs::openat(&root, DIR, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(LayoutError::io("Can't open", &path)(error)),
        };
        let stat = rustix::fs::fstat(&dir).map_err(LayoutError::io("Can't look at", &path))?;
        own(&stat, &path)?;
        if Dev::from_stat(stat.st_dev) != self.dev {
            return Err(LayoutError::Untrusted { path, why: "is on another file system" });
        }
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LayoutError::Busy { path }),
            Err(error) => return Err(LayoutError::io("Can't lock", &path)(error)),
        }
        // Who had the lock before may have removed it.
        let stat = rustix::fs::fstat(&dir).map_err(LayoutError::io("Can't look at", &path))?;
        let store = Store { path, root, dir, dev: self.dev, uuid: self.uuid };
        Ok((stat.st_nlink > 0).then_some(store))
    }

    /// The same; makes the directory if there is none.
    ///
    /// # Errors
    /// Those of [`Self::open`], or it can't be made.
    pub fn create(&self) -> Result<Store, LayoutError> {
        let path = self.dir();
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(LayoutError::io("Can't make", &path)(error)),
        }
        let gone = || LayoutError::None { path: self.mount_point.clone() };
        let store = self.open()?.ok_or_else(gone)?;
        rustix::fs::fsync(&store.root).map_err(LayoutError::io("Can't write", &path))?;
        Ok(store)
    }
}

/// Whether something is root's own.
fn own(stat: &Stat, path: &Path) -> Result<(), LayoutError> {
    let why = match () {
        () if stat.st_uid != 0 => "is not root's",
        () if stat.st_mode & 0o022 != 0 => "can be written by others",
        () => return Ok(()),
    };
    Err(LayoutError::Untrusted { path: path.to_owned(), why })
}

/// The directory of a layout, locked as long as this lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    /// The root of the file system.
    pub(crate) root: OwnedFd,
    dir: OwnedFd,
    pub(crate) dev: Dev,
    uuid: Option<[u8; 16]>,
}

impl Store {
    /// Opens a file in it that is root's own; none if nothing is there.
    fn file(&self, name: &str, flags: OFlags) -> Result<Option<(File, Stat)>, LayoutError> {
        let path = self.path.join(name);
        // A pipe must not block.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(LayoutError::io("Can't open", &path)(error)),
        };
        let stat = rustix::fs::fstat(&opened).map_err(LayoutError::io("Can't look at", &path))?;
        own(&stat, &path)?;
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(LayoutError::Untrusted { path, why: "is no regular file" });
        }
        Ok(Some((opened.into(), stat)))
    }

    /// The journal; none if nothing was swapped yet.
    ///
    /// # Errors
    /// It can't be read, is damaged, or is that of another file system.
    pub fn journal(&self) -> Result<Option<Journal>, LayoutError> {
        let path = self.path.join(JOURNAL);
        let Some((file, _)) = self.file(JOURNAL, OFlags::RDONLY)? else { return Ok(None) };
        let bytes = contents::rest_of(file).map_err(LayoutError::io("Can't read", &path))?;
        let journal = Journal::from_bytes(&bytes)
            .map_err(|source| LayoutError::Journal { path: path.clone(), source })?;
        match journal.uuid == self.uuid {
            true => Ok(Some(journal)),
            false => Err(LayoutError::Untrusted { path, why: "is of another file system" }),
        }
    }

    /// Writes the journal, so that it is on the disk when this returns.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn write_journal(&self, journal: &Journal) -> Result<(), LayoutError> {
        let path = self.path.join(JOURNAL);
        let bytes = journal.to_bytes();
        // What can't be read back could not be undone.
        Journal::from_bytes(&bytes)
            .map_err(|source| LayoutError::Journal { path: path.clone(), source })?;
        let write = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
            let mode = Mode::RUSR | Mode::WUSR;
            let new = rustix::fs::openat(&self.dir, UNFINISHED, flags | OFlags::CLOEXEC, mode)?;
            let mut file = File::from(new);
            file.write_all(&bytes)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.dir, UNFINISHED, &self.dir, JOURNAL)?;
            rustix::fs::fsync(&self.dir).map_err(std::io::Error::from)
        };
        write().map_err(LayoutError::io("Can't write", &path))
    }

    /// The donor of a journal, open for swaps.
    ///
    /// # Errors
    /// It is another file.
    pub fn donor(&self, journal: &Journal) -> Result<File, LayoutError> {
        let other = || LayoutError::OtherDonor { path: self.path.join(DONOR) };
        let (file, stat) = self.file(DONOR, OFlags::RDWR)?.ok_or_else(other)?;
        // Another name of it would be a file that somebody uses.
        let is_it = stat.st_ino == journal.donor.ino && stat.st_nlink == 1;
        if is_it { Ok(file) } else { Err(other()) }
    }

    /// Allocates a donor of so many bytes in as few extents as can be found, and removes an older one.
    ///
    /// # Errors
    /// There is no room.
    pub fn allocate(&self, bytes: u64, volume: &Volume) -> Result<Donor, LayoutError> {
        let path = self.path.join(DONOR);
        self.remove_donors()?;
        let room = volume.room()?;
        if room < bytes {
            let (needed, free) = (bytes.div_ceil(1 << 20), room >> 20);
            return Err(LayoutError::NoRoom { path: volume.mount_point.clone(), needed, free });
        }
        let mut best: Option<(String, Donor)> = None;
        for trial in 0..TRIALS {
            // Those of earlier trials stay meanwhile, so that this one is elsewhere.
            if trial > 0 && volume.room()? < bytes {
                break;
            }
            let name = format!("{DONOR}.{trial}");
            match self.trial(&name, bytes) {
                Ok(donor) => {
                    let is_better =
                        |(_, known): &(_, Donor)| donor.extents.len() < known.extents.len();
                    if best.as_ref().is_none_or(is_better) {
                        best = Some((name, donor));
                    }
                }
                Err(Errno::NOSPC) if best.is_some() => break,
                Err(error) => {
                    self.remove_donors()?;
                    return Err(LayoutError::io("Can't allocate", &path)(error));
                }
            }
            if best.as_ref().is_some_and(|(_, donor)| donor.extents.len() == 1) {
                break;
            }
        }
        let none = || LayoutError::OtherDonor { path: path.clone() };
        let (name, donor) = best.ok_or_else(none)?;
        rustix::fs::renameat(&self.dir, &name, &self.dir, DONOR)
            .map_err(LayoutError::io("Can't rename", &path))?;
        for trial in 0..TRIALS {
            self.remove(&format!("{DONOR}.{trial}"))?;
        }
        rustix::fs::fsync(&self.dir).map_err(LayoutError::io("Can't write", &path))?;
        Ok(donor)
    }

    fn trial(&self, name: &str, bytes: u64) -> Result<Donor, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.dir, name, flags | OFlags::CLOEXEC, mode)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        rustix::fs::fsync(&file)?;
        let pieces =
            fiemap::pieces(&file).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        let extents: Vec<Extent> = pieces.into_iter().map(|(extent, _)| extent).collect();
        Ok(Donor { ino: rustix::fs::fstat(&file)?.st_ino, extents: joined(extents) })
    }

    /// Removes all of it: journal, donor, directory. Blocks that the donor has are free then.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn remove_all(self) -> Result<(), LayoutError> {
        // A donor without a journal is a leftover, a journal without a donor could not be understood.
        self.remove(JOURNAL)?;
        self.remove(UNFINISHED)?;
        rustix::fs::fsync(&self.dir).map_err(LayoutError::io("Can't write", &self.path))?;
        self.remove_donors()?;
        rustix::fs::unlinkat(&self.root, DIR, AtFlags::REMOVEDIR)
            .map_err(LayoutError::io("Can't remove", &self.path))
    }

    fn remove_donors(&self) -> Result<(), LayoutError> {
        self.remove(DONOR)?;
        (0..TRIALS).try_for_each(|trial| self.remove(&format!("{DONOR}.{trial}")))
    }

    fn remove(&self, name: &str) -> Result<(), LayoutError> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(LayoutError::io("Can't remove", &self.path.join(name))(error)),
        }
    }
}
