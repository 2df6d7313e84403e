//! Checks that a path leads to an inode; no path goes out unchecked.

use crate::host::range::PageRange;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use super::resolution::{FileKind, Replaced, ResolvedFile};
use crate::cache::residency::{page_size, resident_count};
use crate::host::id::{Dev, InodeId};
use crate::host::mounts::MountTable;

/// The queried attributes of a file.
const WANTED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID);

/// What a path leads to.
pub(super) enum Check {
    /// The inode that was meant.
    Same(ResolvedFile),
    /// Another one, or nothing.
    Other,
    /// A directory of the path may not be searched.
    Denied,
}

/// Whether `path` leads to inode `id`, symbolic links at its end not followed.
pub(super) fn check(table: &MountTable, id: InodeId, path: &Path) -> Check {
    check_by(path, |stat| stat.stx_ino == id.ino && device_of(table, path, stat) == Some(id.dev))
}

/// Like [`check`] with another idea of which inode was meant.
pub(super) fn check_by(path: &Path, is_it: impl FnOnce(&Statx) -> bool) -> Check {
    match stat_path(path) {
        Ok(stat) if is_it(&stat) => Check::Same(describe(path, &stat)),
        Err(Errno::ACCESS | Errno::PERM) => Check::Denied,
        // With any other error, the path leads to nothing.
        _ => Check::Other,
    }
}

/// The regular file that took the place of inode `id` at `path`, on its file system.
pub(super) fn successor(table: &MountTable, id: InodeId, path: &Path) -> Option<Replaced> {
    let stat = stat_path(path).ok()?;
    let is_it = stat.stx_ino != id.ino
        && kind_of(&stat) == FileKind::Regular
        && device_of(table, path, &stat) == Some(id.dev);
    let is = InodeId { ino: stat.stx_ino, ..id };
    is_it.then(|| Replaced { was: id, is, file: describe(path, &stat) })
}

/// statx(2) of a path, without waking a remote file system.
pub(super) fn stat_path(path: &Path) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(CWD, path, flags, WANTED)
}

/// statx(2) of an open file.
pub(super) fn stat_fd(fd: impl AsFd) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(fd, c"", flags, WANTED)
}

/// The device that statx(2) tells, which for btrfs belongs to the subvolume.
pub(super) fn stat_dev(stat: &Statx) -> Dev {
    Dev::new(stat.stx_dev_major, stat.stx_dev_minor)
}

/// The mount's id, from Linux 5.8 on.
pub(super) fn mount_id(stat: &Statx) -> Option<u64> {
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// The super block's device of a file at `path`. A device number of a block
/// device is it; any other may be that of a btrfs subvolume, and the mount
/// knows better.
pub(super) fn device_of(table: &MountTable, path: &Path, stat: &Statx) -> Option<Dev> {
    let dev = stat_dev(stat);
    if dev.major() != 0 {
        return Some(dev);
    }
    let mount = match mount_id(stat) {
        Some(id) => table.by_id(id),
        None => table.at(path),
    };
    Some(mount.map_or(dev, |mount| mount.dev))
}

/// The file at `path` as statx(2) describes it.
pub(super) fn describe(path: &Path, stat: &Statx) -> ResolvedFile {
    let nanoseconds =
        |seconds: i64, rest: u32| seconds.saturating_mul(1_000_000_000).saturating_add(rest.into());
    ResolvedFile {
        path: PathBuf::from(path),
        size: stat.stx_size,
        mtime_ns: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        ctime_ns: nanoseconds(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        born_ns: (stat.stx_mask & StatxFlags::BTIME.bits() != 0)
            .then(|| nanoseconds(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)),
        kind: kind_of(stat),
        mode: stat.stx_mode.into(),
    }
}

pub(super) fn kind_of(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// Pages of a regular file in the page cache; `None` when the kernel does not
/// tell this user.
pub(super) fn resident_pages(path: &Path, size: u64) -> Option<u64> {
    let file = open_to_look(path).ok()?;
    resident_count(&file, PageRange::of_length(size, page_size())).ok()
}

/// Opens a regular file only to ask about its pages; `path` may be one of
/// `/proc/self/fd`.
fn open_to_look(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
