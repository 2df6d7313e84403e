//! Replaces a file by another one under all of its names: each name leads to the old or to the
//! new file at any moment, whatever ends the process.
//!
//! The new file is written beside the old one with its owner, mode, times and extended
//! attributes (which hold ACLs and capabilities), synced, and exchanged with it. What a killed
//! process left is removed by the next one.

use super::read::Read;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Stat, Timestamps};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the names of unfinished files end with.
const SUFFIX: &str = ".headstart";
/// Bytes of a value, and of the list of names, at most (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const MOST_OF_ATTRIBUTES: usize = 64 << 10;
/// Bytes that are written at once.
const CHUNK: usize = 8 << 20;

/// A complete file that has no name of its own yet; it is removed unless it is placed.
#[derive(Debug)]
pub struct Staged {
    path: PathBuf,
    file: File,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Gone where it was placed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The name of the unfinished file beside a name.
fn beside(name: &Path) -> io::Result<PathBuf> {
    let lacks = || io::Error::new(io::ErrorKind::InvalidInput, "it has no name");
    let mut file = OsString::from(".");
    file.push(name.file_name().ok_or_else(lacks)?);
    file.push(SUFFIX);
    Ok(name.with_file_name(file))
}

/// Creates a file that is not there, or that nobody works on any more.
fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut tried = false;
    loop {
        match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                return Ok(file.into());
            }
            Err(Errno::EXIST) if !tried => remove_left(path)?,
            Err(error) => return Err(error.into()),
        }
        tried = true;
    }
}

/// Removes what a killed process left.
fn remove_left(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        let busy = "another headstart works on it";
        if error == Errno::WOULDBLOCK { io::Error::other(busy) } else { error.into() }
    })?;
    std::fs::remove_file(path)
}

/// Removes what a killed process left beside a name, if there is something.
///
/// # Errors
/// It can't be removed, or another process works on it.
pub fn clean(name: &Path) -> io::Result<()> {
    match remove_left(&beside(name)?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Staged {
    /// Writes a file beside `name`, with the attributes of another one. Nothing is written
    /// where `hole` is.
    ///
    /// # Errors
    /// It can't be written, or an attribute can't be set.
    pub fn write(name: &Path, bytes: &[u8], hole: &Range<u64>, like: &Read) -> io::Result<Self> {
        let staged = Self::write_bytes(name, bytes, hole)?;
        copy_attributes(&staged.file, like)?;
        staged.read_only()
    }

    /// The same for a copy: as cp(1) does, with those attributes that this user may set, and
    /// without what says that the bytes are others.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write_copy(
        name: &Path,
        bytes: &[u8],
        hole: &Range<u64>,
        like: &Read,
    ) -> io::Result<Self> {
        let staged = Self::write_bytes(name, bytes, hole)?;
        // Programs with privileges stay those of their owner.
        let mode = if copy_owner(&staged.file, like).is_ok() { 0o7777 } else { 0o777 };
        rustix::fs::fchmod(&staged.file, Mode::from_raw_mode(like.stat.st_mode & mode))?;
        copy_extended(&staged.file, &like.file, Extended::Copy)?;
        copy_times(&staged.file, like)?;
        staged.read_only()
    }

    fn write_bytes(name: &Path, bytes: &[u8], hole: &Range<u64>) -> io::Result<Self> {
        let path = beside(name)?;
        let staged = Self { file: create(&path)?, path };
        let hole = hole.start as usize..hole.end as usize;
        let parts = [(0, hole.start), (hole.end, bytes.len())];
        for (begin, end) in parts {
            let part = bytes.get(begin..end).unwrap_or(&[]);
            for (n, chunk) in part.chunks(CHUNK).enumerate() {
                staged.file.write_all_at(chunk, (begin + n * CHUNK) as u64)?;
            }
        }
        staged.file.set_len(bytes.len() as u64)?;
        Ok(staged)
    }

    /// The same, no longer open for writing: else a check could not execute it (ETXTBSY).
    fn read_only(mut self) -> io::Result<Self> {
        let file = File::open(&self.path)?;
        let id = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
        if id(&file)? != id(&self.file)? {
            return Err(io::Error::other("it was replaced meanwhile"));
        }
        // The lock is that of the descriptor that is closed here.
        self.file = file;
        rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(self)
    }

    /// Where it is until it is placed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets all `names` lead to it that lead to the file `old` now.
    ///
    /// # Errors
    /// A name leads elsewhere meanwhile, or can't be changed.
    pub fn place(self, names: &[PathBuf], old: &Stat) -> io::Result<()> {
        let names: Vec<_> = names.iter().map(|name| (name.as_path(), *old)).collect();
        self.place_each(&names)
    }

    /// The same of names that lead to a file each.
    ///
    /// # Errors
    /// The same.
    pub fn place_each(self, names: &[(&Path, Stat)]) -> io::Result<()> {
        self.file.sync_all()?;
        let Some(((first, old), others)) = names.split_first() else { return Ok(()) };
        for (name, old) in others {
            link_over(&self.path, name, old)?;
        }
        exchange(&self.path, first, old)?;
        names.iter().try_for_each(|(name, _)| sync_directory(name))
    }

    /// Gives it a name, whatever had it.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn place_over(self, name: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        std::fs::rename(&self.path, name)?;
        sync_directory(name)
    }
}

/// Lets `name` lead to a file that has another name too, if it leads to `old` now.
///
/// # Errors
/// It leads elsewhere, or can't be changed.
pub fn link_over(file: &Path, name: &Path, old: &Stat) -> io::Result<()> {
    let link = beside(name)?;
    if link == file {
        return Err(io::Error::other("two of its names are the same"));
    }
    match std::fs::hard_link(file, &link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A killed process left it.
            std::fs::remove_file(&link)?;
            std::fs::hard_link(file, &link)?;
        }
        linked => linked?,
    }
    let exchanged = exchange(&link, name, old);
    if exchanged.is_err() {
        let _ = std::fs::remove_file(&link);
    }
    exchanged
}

/// Exchanges a new file with an old one and removes that; the exchange is taken back where it
/// was another one.
fn exchange(new: &Path, name: &Path, old: &Stat) -> io::Result<()> {
    let swap = || rustix::fs::renameat_with(CWD, new, CWD, name, RenameFlags::EXCHANGE);
    let is_old = |path: &Path| -> io::Result<bool> {
        let now = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
        let id = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime);
        Ok(id(&now) == id(old))
    };
    let changed = || io::Error::other("it was replaced meanwhile");
    if !is_old(name)? {
        return Err(changed());
    }
    match swap() {
        Ok(()) if is_old(new)? => match std::fs::remove_file(new) {
            // Taken for what a killed process left.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
        Ok(()) => {
            swap()?;
            Err(changed())
        }
        // Some file systems can't.
        Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::rename(new, name)?),
        Err(error) => Err(error.into()),
    }
}

/// Syncs the directory of a name.
///
/// # Errors
/// Those of fsync(2).
pub fn sync_directory(name: &Path) -> io::Result<()> {
    let dir = name.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// Owner, mode, extended attributes and times; in this order, for a new owner clears bits of the
/// mode and capabilities.
fn copy_attributes(file: &File, like: &Read) -> io::Result<()> {
    copy_owner(file, like)
        .map_err(|error| io::Error::other(format!("its owner can't be kept: {error}")))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(like.stat.st_mode & 0o7777))?;
    copy_extended(file, &like.file, Extended::All)?;
    copy_times(file, like)
}

fn copy_owner(file: &File, like: &Read) -> rustix::io::Result<()> {
    let (stat, now) = (&like.stat, rustix::fs::fstat(file)?);
    if (stat.st_uid, stat.st_gid) != (now.st_uid, now.st_gid) {
        let owner =
            (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
        rustix::fs::fchown(file, Some(owner.0), Some(owner.1))?;
    }
    Ok(())
}

fn copy_times(file: &File, like: &Read) -> io::Result<()> {
    let stat = &like.stat;
    let time =
        |seconds: i64, nanos: u64| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// Which extended attributes are needed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extended {
    /// All.
    All,
    /// Those that this user and the file system allow, and no signatures.
    Copy,
}

/// Signatures and checksums of the content (IMA, EVM).
const SIGNATURES: [&[u8]; 2] = [b"security.ima", b"security.evm"];

fn copy_extended(file: &File, like: &File, which: Extended) -> io::Result<()> {
    let value = |of: &File, name: &[u8]| -> rustix::io::Result<Vec<u8>> {
        let mut value = vec![0; MOST_OF_ATTRIBUTES];
        let size = rustix::fs::fgetxattr(of, name, &mut value[..])?;
        value.truncate(size);
        Ok(value)
    };
    let mut names = vec![0u8; MOST_OF_ATTRIBUTES];
    let size = match rustix::fs::flistxattr(like, &mut names[..]) {
        Err(Errno::NOTSUP) => return Ok(()),
        size => size?,
    };
    names.truncate(size);
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if which == Extended::Copy && SIGNATURES.contains(&name) {
            continue;
        }
        let wanted = value(like, name)?;
        // Labels that a policy gives are there already.
        if value(file, name).ok().as_ref() == Some(&wanted) {
            continue;
        }
        let set = rustix::fs::fsetxattr(file, name, &wanted, rustix::fs::XattrFlags::empty());
        if which == Extended::Copy
            && matches!(set, Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP))
        {
            continue;
        }
        set.map_err(|error| {
            let name = String::from_utf8_lossy(name);
            io::Error::other(format!("its attribute {name} can't be kept: {error}"))
        })?;
    }
    Ok(())
}
