//! Names by file handle: any inode can be opened, and the kernel knows its name while the dentry is
//! cached.
//!
//! ext2, ext3, ext4 and f2fs accept generation 0 as a wildcard, squashfs and erofs have no
//! generations; other file systems are tried.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use headstart_sys::handle::{FileHandle, open_by_handle};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::open::Opened;
use super::resolution::{Method, ResolvedFile, Unnamed};
use super::verify::{Check, check, stat_fd};
use crate::host::id::InodeId;
use crate::host::mounts::MountTable;

/// `FILEID_INO32_GEN` of `include/linux/exportfs.h`: inode and generation.
const FILEID_INO32_GEN: i32 = 1;
/// `FILEID_INO64_GEN` there.
const FILEID_INO64_GEN: i32 = 0x81;

/// The result of a method for an inode.
pub(super) enum NameLookup {
    /// Its path, how it was found, and whether it is only a guess.
    Found { file: ResolvedFile, method: Method, ambiguous: bool },
    /// It has no path.
    Never(Unnamed),
    /// Only a walk can tell.
    Lost,
}

impl NameLookup {
    pub(super) fn by_handle(file: ResolvedFile) -> Self {
        Self::Found { file, method: Method::Handle, ambiguous: false }
    }
}

/// A method to name one inode of a file system. An error means that the method is
/// closed for all of them.
pub(super) trait ByInode {
    fn name(&mut self, id: InodeId) -> io::Result<NameLookup>;
}

/// Interprets the error of an open by handle: `gone` if the inode does not exist, and the error
/// itself if it would be the same for every inode.
pub(super) fn failed_open(error: io::Error, gone: NameLookup) -> io::Result<NameLookup> {
    match Errno::from_io_error(&error) {
        Some(Errno::STALE) => Ok(gone),
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => Err(error),
        _ => Ok(NameLookup::Lost),
    }
}

/// Reads the names of open files from `/proc/self/fd`.
pub(super) struct Namer {
    fds: OwnedFd,
    buffer: Box<[MaybeUninit<u8>]>,
}

impl Namer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fds = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
        // PATH_MAX, the longest that the kernel writes.
        Ok(Self { fds, buffer: vec![MaybeUninit::uninit(); 4096].into() })
    }

    /// The name of an open file. A name that the kernel has lost, or that lies
    /// outside the mount that the file was opened through, reads `/`, which is
    /// only right for a root directory.
    pub(super) fn name(&mut self, fd: BorrowedFd<'_>, is_root: bool) -> Name<'_> {
        let link = rustix::fs::readlinkat_raw(&self.fds, DecInt::from_fd(fd), &mut *self.buffer);
        match link {
            Ok((path, _)) => {
                let path = Path::new(OsStr::from_bytes(path));
                if path == Path::new("/") && !is_root { Name::Lost } else { Name::Is(path) }
            }
            Err(Errno::NAMETOOLONG) => Name::TooLong,
            Err(_) => Name::Lost,
        }
    }
}

/// What the kernel says about the name of an open file.
pub(super) enum Name<'a> {
    Is(&'a Path),
    Lost,
    TooLong,
}

/// Handles of inode and generation, through the mounts of one file system.
pub(super) struct Handles<'a> {
    table: &'a MountTable,
    opened: &'a [Opened<'a>],
    namer: Namer,
}

impl<'a> Handles<'a> {
    pub(super) fn new(table: &'a MountTable, opened: &'a [Opened<'a>]) -> io::Result<Self> {
        Ok(Self { table, opened, namer: Namer::new()? })
    }

    /// Names the inode of `handle`; an error of the open is passed on.
    pub(super) fn name_by(&mut self, id: InodeId, handle: &FileHandle) -> io::Result<NameLookup> {
        // Twice, for it may be renamed between the name and the check.
        let first = self.try_once(id, handle)?;
        if matches!(first, NameLookup::Never(Unnamed::Changed)) {
            return self.try_once(id, handle);
        }
        Ok(first)
    }

    fn try_once(&mut self, id: InodeId, handle: &FileHandle) -> io::Result<NameLookup> {
        let mut outcome = NameLookup::Lost;
        for through in self.opened {
            let fd = open_by_handle(&through.fd, handle, OFlags::PATH)?;
            let path = match self.namer.name(fd.as_fd(), id.ino == through.root_ino) {
                Name::Is(path) => path.to_owned(),
                Name::Lost => {
                    if is_deleted(&fd) {
                        return Ok(NameLookup::Never(Unnamed::Deleted));
                    }
                    // Another mount may show it, unless this one shows all.
                    continue;
                }
                Name::TooLong => {
                    outcome = NameLookup::Never(Unnamed::Unreachable);
                    continue;
                }
            };
            match check(self.table, id, &path) {
                Check::Same(file) => return Ok(NameLookup::by_handle(file)),
                Check::Denied => outcome = NameLookup::Never(Unnamed::NoPermission),
                Check::Other if is_deleted(&fd) => return Ok(NameLookup::Never(Unnamed::Deleted)),
                Check::Other => outcome = self.elsewhere(id, &path, through),
            }
            if matches!(outcome, NameLookup::Found { .. }) {
                break;
            }
        }
        Ok(outcome)
    }

    /// For a name that leads elsewhere: hidden by another mount, when a third
    /// may show it; one name of several, which was removed; or out of date.
    fn elsewhere(&self, id: InodeId, path: &Path, through: &Opened<'_>) -> NameLookup {
        if self.table.at(path).is_some_and(|at| at.id != through.mount.id) {
            let inner = path.strip_prefix(&through.mount.mount_point).ok();
            let inner = inner.and_then(|rest| through.mount.inner(rest));
            let shown = inner.map(|inner| self.table.paths_to(id.dev, &inner)).unwrap_or_default();
            return first_match(self.table, id, shown)
                .map_or(NameLookup::Never(Unnamed::Unreachable), NameLookup::by_handle);
        }
        if path.as_os_str().as_bytes().ends_with(b" (deleted)") {
            return NameLookup::Lost;
        }
        // In a chroot, a name outside it reads as if it were inside.
        if through.mount.root.as_os_str().is_empty() {
            return NameLookup::Never(Unnamed::Unreachable);
        }
        NameLookup::Never(Unnamed::Changed)
    }
}

/// The first of several paths that leads to the inode.
pub(super) fn first_match(
    table: &MountTable,
    id: InodeId,
    paths: impl IntoIterator<Item = PathBuf>,
) -> Option<ResolvedFile> {
    paths.into_iter().find_map(|path| match check(table, id, &path) {
        Check::Same(file) => Some(file),
        Check::Other | Check::Denied => None,
    })
}

/// True for a file without links, which only open files keep.
pub(super) fn is_deleted(fd: &OwnedFd) -> bool {
    stat_fd(fd).is_ok_and(|stat| stat.stx_nlink == 0)
}

/// File systems without generations, and unknown ones.
pub(super) struct Wildcard<'a> {
    handles: Handles<'a>,
    fstype: &'a OsStr,
}

impl<'a> Wildcard<'a> {
    pub(super) fn new(handles: Handles<'a>, fstype: &'a OsStr) -> Self {
        Self { handles, fstype }
    }

    /// What it means that no inode opens. It is known of these that generation
    /// 0 stands for any.
    fn gone(&self) -> NameLookup {
        let known = ["ext2", "ext3", "ext4", "f2fs"].iter().any(|name| self.fstype == *name);
        if known { NameLookup::Never(Unnamed::Deleted) } else { NameLookup::Lost }
    }

    fn handle(&self, ino: u64) -> Option<FileHandle> {
        // fs/erofs/super.c, since it has 64-bit inode numbers: the upper half first.
        if self.fstype == "erofs" {
            let [upper, lower] = [(ino >> 32) as u32, ino as u32].map(u32::to_ne_bytes);
            return FileHandle::new(FILEID_INO64_GEN, &[upper, lower, [0; 4]].concat());
        }
        let ino = u32::try_from(ino).ok()?;
        FileHandle::new(FILEID_INO32_GEN, &[ino.to_ne_bytes(), [0; 4]].concat())
    }
}

impl ByInode for Wildcard<'_> {
    fn name(&mut self, id: InodeId) -> io::Result<NameLookup> {
        let Some(handle) = self.handle(id.ino) else { return Ok(self.gone()) };
        let named = self.handles.name_by(id, &handle);
        named.or_else(|error| failed_open(error, self.gone()))
    }
}
