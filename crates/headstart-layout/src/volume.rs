//! The file system of a layout, and its directory with donor and journal. A driver.
//!
//! The directory is on the file system itself, so that they are never apart. It is root's own; what
//! is in it is opened by its descriptor and without following links.

use super::error::LayoutError;
use super::journal::Journal;
use super::kind::Kind;
use super::names::{self, DONOR};
use super::trees::{self, Trees};
use super::unfit::{self, Unfit};
use super::wanted::Wanted;
use headstart::cache::residency::page_size;
use headstart::host::contents;
use headstart::host::fsid;
use headstart::host::id::Dev;
use headstart::host::mounts::{Mount, MountTable};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatVfs};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
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
/// The inode number of the root of each subvolume of a btrfs (`BTRFS_FIRST_FREE_OBJECTID`).
const SUBVOLUME: u64 = 256;
/// One part in this many of the file system stays free: it needs room of its own.
const RESERVE_PART: u64 = 50;

/// A file system that can be laid out.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Where all of it is mounted.
    pub mount_point: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// The super block's device, as mountinfo has it.
    pub dev: Dev,
    /// What is mounted of it: `/`, or a subvolume of a btrfs.
    pub root: PathBuf,
    /// The device that its files have in stat(2), which is a subvolume's own.
    pub(crate) file_dev: Dev,
    /// The device that tells how fast it is.
    pub device: Dev,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
}

impl Volume {
    /// The file system that a path leads to.
    ///
    /// # Errors
    /// It is of a kind that can't be laid out, or not mounted as a whole.
    pub fn of(path: &Path, mounts: &MountTable) -> Result<Self, LayoutError> {
        let mount = mounts.at(path).ok_or(LayoutError::NoMounts)?;
        let path = || mount.mount_point.clone();
        let fstype = mount.fstype.to_string_lossy();
        let kind = Kind::of(&fstype).map_err(|why| LayoutError::OtherKind {
            path: path(),
            kind: fstype.to_string(),
            why,
        })?;
        let stat = rustix::fs::stat(&mount.mount_point)
            .map_err(LayoutError::io("Can't look at", &mount.mount_point))?;
        let whole = match kind {
            Kind::Btrfs => Some(mount).filter(|_| stat.st_ino == SUBVOLUME),
            _ => mounts.visible_of(mount.dev).into_iter().find(|mount| mount.is_whole()),
        };
        let mount = whole.ok_or_else(|| LayoutError::PartOnly { path: path() })?;
        let device = fsid::speed_device(mount).ok().flatten();
        Ok(Self {
            mount_point: mount.mount_point.clone(),
            kind,
            dev: mount.dev,
            root: mount.root.clone(),
            file_dev: Dev::from_stat(stat.st_dev),
            device: device.map_or(mount.dev, |device| device.rdev),
            uuid: fsid::uuid(mount).ok().flatten().map(|uuid| uuid.0),
        })
    }

    /// The file systems that wanted files are on, and for each that can't be laid out the reason.
    pub fn of_wanted(wanted: &Wanted, mounts: &MountTable) -> (Vec<Self>, Vec<LayoutError>) {
        let mut seen = HashSet::new();
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        for file in &wanted.files {
            // Subvolumes of a btrfs are laid out each on its own.
            let part = |mount: &Mount| (mount.fstype == "btrfs").then(|| mount.root.clone());
            if seen.insert(mounts.at(&file.path).map(|mount| (mount.dev, part(mount)))) {
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
        let known = |mount: &&Mount| Kind::of(&mount.fstype.to_string_lossy()).is_ok();
        for mount in mounts.mounts().iter().filter(known) {
            if let Ok(volume) = Self::of(&mount.mount_point, mounts)
                && !out.iter().any(|known| (known.dev, &known.root) == (volume.dev, &volume.root))
                && volume.dir().symlink_metadata().is_ok()
            {
                out.push(volume);
            }
        }
        out
    }

    /// The path of a file below its root, if it is on this volume.
    pub fn below(&self, path: &Path, mounts: &MountTable) -> Option<PathBuf> {
        let (dev, inner) = mounts.inside(path)?;
        self.inside(dev, &inner).map(Path::to_owned)
    }

    /// The path of a file from its root, by that from the root of the whole file system.
    fn inside<'a>(&self, dev: Dev, inner: &'a Path) -> Option<&'a Path> {
        inner.strip_prefix(&self.root).ok().filter(|_| dev == self.dev)
    }

    /// Whether blocks may be moved on it.
    ///
    /// # Errors
    /// Why not, or its superblock can't be read.
    pub fn fit(&self, mounts: &MountTable) -> Result<(), LayoutError> {
        let path = || self.mount_point.clone();
        let unfit = |why| LayoutError::Unfit { path: path(), why };
        if self.kind.shares() {
            // They need no more: no block is written that a file has.
            let mount = mounts.at(&self.mount_point).ok_or(LayoutError::NoMounts)?;
            return unfit::check_options([&mount.options, &mount.super_options]).map_err(unfit);
        }
        let mount = mounts.visible_of(self.dev).into_iter().find(|mount| mount.is_whole());
        let mount = mount.ok_or_else(|| LayoutError::PartOnly { path: path() })?;
        let device = fsid::block_device(mount).ok().flatten().ok_or(unfit(Unfit::Unknown))?;
        let mut block = [0; unfit::LENGTH];
        File::open(&device.path)
            .and_then(|file| file.read_exact_at(&mut block, unfit::OFFSET))
            .map_err(LayoutError::io("Can't read the superblock of", &device.path))?;
        unfit::check(&block, [&mount.options, &mount.super_options], page_size()).map_err(unfit)
    }

    /// The blocks that hold extents of these inodes on ext4, as [`trees::of_inodes`] tells them. The page cache
    /// of the device is that of the file system, so all is there that is not on the disk yet.
    ///
    /// # Errors
    /// The device can't be read.
    pub fn trees(&self, inodes: &HashSet<u64>, mounts: &MountTable) -> Result<Trees, LayoutError> {
        let mount = mounts.visible_of(self.dev).into_iter().find(|mount| mount.is_whole());
        let device = mount.and_then(|mount| fsid::block_device(mount).ok().flatten());
        let Some(device) = device.filter(|_| self.kind == Kind::Ext4) else {
            return Ok((0, HashMap::new()));
        };
        let failed = LayoutError::io("Can't read", &device.path);
        let read = |file: File| trees::of_inodes(inodes, |at, bytes| file.read_exact_at(bytes, at));
        File::open(&device.path).and_then(read).map_err(failed)
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

    /// Whether other files can be moved aside: if places of the donor are whole pages, and on btrfs by block groups.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn makes_room(&self) -> Result<bool, LayoutError> {
        match self.kind {
            Kind::Ext4 | Kind::Xfs => Ok(self.block()? == page_size()),
            Kind::Btrfs => Ok(true),
        }
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
        if Dev::from_stat(stat.st_dev) != self.file_dev {
            return Err(LayoutError::Untrusted { path, why: "is on another file system" });
        }
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LayoutError::Busy { path }),
            Err(error) => return Err(LayoutError::io("Can't lock", &path)(error)),
        }
        // Who had the lock before may have removed it.
        let stat = rustix::fs::fstat(&dir).map_err(LayoutError::io("Can't look at", &path))?;
        let (kind, dev) = (self.kind, self.file_dev);
        let store = Store { path, root, dir, kind, dev, uuid: self.uuid };
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
    pub(crate) path: PathBuf,
    /// The root of the file system.
    pub(crate) root: OwnedFd,
    pub(crate) dir: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) dev: Dev,
    uuid: Option<[u8; 16]>,
}

impl Store {
    /// Opens a file in it that is root's own; none if nothing is there.
    pub(crate) fn file(
        &self,
        name: &str,
        flags: OFlags,
    ) -> Result<Option<(File, Stat)>, LayoutError> {
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

    /// Removes all of it: journal, donor, directory. Blocks that the donor has are free then.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn remove_all(self) -> Result<(), LayoutError> {
        self.remove_contents()?;
        rustix::fs::unlinkat(&self.root, DIR, AtFlags::REMOVEDIR)
            .map_err(LayoutError::io("Can't remove", &self.path))
    }

    /// Removes journal, donor and copies, and waits until their blocks are free.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn clear(&self) -> Result<(), LayoutError> {
        self.remove_contents()?;
        rustix::fs::syncfs(&self.dir).map_err(LayoutError::io("Can't write", &self.path))
    }

    fn remove_contents(&self) -> Result<(), LayoutError> {
        // A donor without a journal is a leftover, a journal without a donor could not be understood.
        self.remove(JOURNAL)?;
        self.remove(UNFINISHED)?;
        rustix::fs::fsync(&self.dir).map_err(LayoutError::io("Can't write", &self.path))?;
        self.remove_named(names::has_blocks)
    }

    /// Removes the files in it that have such names, with their blocks.
    pub(crate) fn remove_named(&self, is_it: impl Fn(&str) -> bool) -> Result<(), LayoutError> {
        let failed = || LayoutError::io("Can't read", &self.path);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir).map_err(failed())? {
            let name = entry.map_err(failed())?.file_name().to_string_lossy().into_owned();
            if is_it(&name) {
                names.push(name);
            }
        }
        names.iter().try_for_each(|name| self.remove_freed(name))
    }

    /// Removes a file whose blocks are free then. xfs frees those of removed files in the background, and of cut ones at
    /// once: until then there is less room, and others share blocks, which a layout would skip.
    fn remove_freed(&self, name: &str) -> Result<(), LayoutError> {
        if let Ok(Some((file, stat))) = self.file(name, OFlags::WRONLY)
            && stat.st_nlink == 1
        {
            let _ = rustix::fs::ftruncate(file, 0);
        }
        self.remove(name)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), LayoutError> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(LayoutError::io("Can't remove", &self.path.join(name))(error)),
        }
    }
}
