//! btrfs: UUID, names of inodes, items of its trees, and compression of ranges.
//!
//! Layouts from `include/uapi/linux/btrfs.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{self, Setter, Updater, opcode};

const MAGIC: u8 = 0x94;

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsInfoArgs {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    rest: [u64; 124],
}

/// `BTRFS_IOC_FS_INFO`.
const BTRFS_IOC_FS_INFO: ioctl::Opcode = opcode::read::<FsInfoArgs>(MAGIC, 31);

/// The UUID of a btrfs file system.
///
/// # Errors
/// `ENOTTY`: not btrfs.
pub fn uuid(fs: impl AsFd) -> io::Result<[u8; 16]> {
    let mut args = FsInfoArgs { max_id: 0, num_devices: 0, fsid: [0; 16], rest: [0; 124] };
    // SAFETY: the kernel reads and writes one `struct btrfs_ioctl_fs_info_args`.
    let call = unsafe { Updater::<BTRFS_IOC_FS_INFO, _>::new(&mut args) };
    // SAFETY: as above; the call has no other effect.
    unsafe { ioctl::ioctl(fs, call) }?;
    Ok(args.fsid)
}

const LOOKUP_PATH_MAX: usize = 4080;

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct LookupArgs {
    treeid: u64,
    objectid: u64,
    name: [u8; LOOKUP_PATH_MAX],
}

/// `BTRFS_IOC_INO_LOOKUP`.
const BTRFS_IOC_INO_LOOKUP: ioctl::Opcode = opcode::read_write::<LookupArgs>(MAGIC, 18);

/// One name of inode `ino` in subvolume `tree`, relative to the subvolume's
/// root, without a slash at either end; the root itself gives the empty path.
///
/// # Errors
/// `ENOENT`: no such inode or no name left. `EPERM`: needs `CAP_SYS_ADMIN`.
/// `ENAMETOOLONG`: longer than 4,079 bytes.
pub fn inode_path(fs: impl AsFd, tree: u64, ino: u64) -> io::Result<Vec<u8>> {
    let mut args = LookupArgs { treeid: tree, objectid: ino, name: [0; LOOKUP_PATH_MAX] };
    // SAFETY: the kernel reads and writes one `struct btrfs_ioctl_ino_lookup_args`.
    let call = unsafe { Updater::<BTRFS_IOC_INO_LOOKUP, _>::new(&mut args) };
    // SAFETY: as above; the call has no other effect.
    unsafe { ioctl::ioctl(fs, call) }?;
    let name = args.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(name.strip_suffix(b"/").unwrap_or(name).to_vec())
}

/// Where a [`tree_search`] begins and ends, both included. A key is the triple
/// (object, type, offset) and is compared in that order, so items of other
/// types lie between.
#[derive(Clone, Copy, Debug)]
pub struct SearchRange {
    /// The tree: 1 for the tree of tree roots.
    pub tree: u64,
    /// The first key wanted.
    pub from: (u64, u32, u64),
    /// The last key wanted.
    pub to: (u64, u32, u64),
}

const SEARCH_BUFFER: usize = 4096 - size_of::<SearchKey>();

/// `struct btrfs_ioctl_search_key`.
#[repr(C)]
struct SearchKey {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused_more: [u64; 4],
}

/// `struct btrfs_ioctl_search_args`.
#[repr(C)]
struct SearchArgs {
    key: SearchKey,
    buf: [u8; SEARCH_BUFFER],
}

/// `BTRFS_IOC_TREE_SEARCH`.
const BTRFS_IOC_TREE_SEARCH: ioctl::Opcode = opcode::read_write::<SearchArgs>(MAGIC, 17);

/// The first items of a range: how many, and the buffer that holds them, each
/// behind a `struct btrfs_ioctl_search_header`. No items means the end; else
/// search again from behind the last key.
///
/// # Errors
/// `EPERM`: needs `CAP_SYS_ADMIN`. `ENOTTY`: not btrfs.
pub fn tree_search(fs: impl AsFd, range: &SearchRange) -> io::Result<(u32, Vec<u8>)> {
    let key = SearchKey {
        tree_id: range.tree,
        min_objectid: range.from.0,
        max_objectid: range.to.0,
        min_offset: range.from.2,
        max_offset: range.to.2,
        min_transid: 0,
        max_transid: u64::MAX,
        min_type: range.from.1,
        max_type: range.to.1,
        nr_items: 4096,
        unused: 0,
        unused_more: [0; 4],
    };
    let mut args = SearchArgs { key, buf: [0; SEARCH_BUFFER] };
    // SAFETY: the kernel reads and writes one `struct btrfs_ioctl_search_args`.
    let call = unsafe { Updater::<BTRFS_IOC_TREE_SEARCH, _>::new(&mut args) };
    // SAFETY: as above; the call has no other effect.
    unsafe { ioctl::ioctl(fs, call) }?;
    Ok((args.key.nr_items, args.buf.to_vec()))
}

/// `struct btrfs_ioctl_defrag_range_args`.
#[repr(C)]
struct DefragRange {
    start: u64,
    len: u64,
    flags: u64,
    extent_thresh: u32,
    /// The kind of compression; with [`WITH_LEVEL`] its first byte is the kind, its second the level.
    compress: [u8; 4],
    unused: [u32; 4],
}

/// `BTRFS_IOC_DEFRAG_RANGE`.
const BTRFS_IOC_DEFRAG_RANGE: ioctl::Opcode = opcode::write::<DefragRange>(MAGIC, 16);
/// `BTRFS_DEFRAG_RANGE_COMPRESS`.
const COMPRESS: u64 = 1;
/// `BTRFS_DEFRAG_RANGE_START_IO`.
const START_IO: u64 = 2;
/// `BTRFS_DEFRAG_RANGE_COMPRESS_LEVEL`, Linux 6.15 and later.
const WITH_LEVEL: u64 = 4;
/// `BTRFS_COMPRESS_ZSTD`.
const ZSTD: u8 = 3;

/// Writes a range of a file once more, compressed by zstd, and waits until it has its places. A range at
/// whose end other bytes follow shares no extent with these if they are compressed later. Without a level
/// it is that of the file system, 3. What does not get smaller stays as it is.
///
/// # Errors
/// `EOPNOTSUPP`: the kernel takes no level. `ENOTTY`: not btrfs. `ENOSPC`, `EDQUOT`.
pub fn compress(file: impl AsFd, offset: u64, length: u64, level: Option<u8>) -> io::Result<()> {
    let request = DefragRange {
        start: offset,
        len: length,
        flags: COMPRESS | START_IO | level.map_or(0, |_| WITH_LEVEL),
        extent_thresh: 0,
        compress: [ZSTD, level.unwrap_or(0), 0, 0],
        unused: [0; 4],
    };
    // SAFETY: the kernel reads one `struct btrfs_ioctl_defrag_range_args`, whose layout this is.
    let call = unsafe { Setter::<BTRFS_IOC_DEFRAG_RANGE, _>::new(request) };
    // SAFETY: as above; memory of this process is not concerned.
    unsafe { ioctl::ioctl(&file, call) }?;
    // Compression goes on in the background: the first call hands pages to it, the second waits for it.
    flush(&file, offset, length)?;
    flush(&file, offset, length)
}

/// Writes a range of a file, and waits for that.
fn flush(file: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let signed = |bytes: u64| i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, length) = (signed(offset)?, signed(length)?);
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: numbers only.
    match unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernel_headers() {
        assert_eq!(size_of::<FsInfoArgs>(), 1024);
        assert_eq!(size_of::<LookupArgs>(), 4096);
        assert_eq!(size_of::<SearchKey>(), 104);
        assert_eq!(size_of::<SearchArgs>(), 4096);
        assert_eq!((size_of::<DefragRange>(), BTRFS_IOC_DEFRAG_RANGE), (48, 0x4030_9410));
    }

    #[test]
    fn what_is_not_on_btrfs_is_not_compressed() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(compress(&file, 0, 4096, None).is_err());
    }
}
