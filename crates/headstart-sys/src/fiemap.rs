//! Where a file lies on its device: `FS_IOC_FIEMAP`,
//! `Documentation/filesystems/fiemap.rst`.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{self, Updater, opcode};

/// Extents requested in one call.
const ROOM: usize = 128;

/// `struct fiemap_extent` of `include/uapi/linux/fiemap.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

/// Both, as the kernel takes them.
#[repr(C)]
struct Request<const ROOM: usize> {
    header: Header,
    records: [Record; ROOM],
}

impl<const ROOM: usize> Request<ROOM> {
    /// Queries what lies within a range of a file.
    fn ask(fd: impl AsFd, start: u64, length: u64) -> io::Result<Self> {
        let header = Header { start, length, flags: 0, mapped: 0, room: ROOM as u32, reserved: 0 };
        let mut request = Self { header, records: [Record::default(); ROOM] };
        // SAFETY: the kernel reads the header and writes it and at most `room`
        // records behind it, which is what the array holds.
        let call = unsafe { Updater::<FS_IOC_FIEMAP, _>::new(&mut request) };
        // SAFETY: as above; the call has no other effect.
        unsafe { ioctl::ioctl(&fd, call) }?;
        Ok(request)
    }

    /// What the kernel told.
    fn records(&self) -> &[Record] {
        &self.records[..ROOM.min(self.header.mapped as usize)]
    }
}

impl Record {
    /// The extent, unless it has no place of its own.
    fn extent(&self) -> Option<Extent> {
        let Self { logical, physical, length, flags, .. } = *self;
        (flags & NOWHERE == 0).then_some(Extent { logical, physical, length })
    }
}

/// `_IOWR('f', 11, struct fiemap)`; the array at its end is not part of the size.
const FS_IOC_FIEMAP: ioctl::Opcode = opcode::read_write::<Header>(b'f', 11);

const LAST: u32 = 1;
/// The place is not known, not allocated yet, or the data lies elsewhere in
/// another form: `UNKNOWN`, `DELALLOC`, `ENCODED`, `DATA_INLINE`.
const NOWHERE: u32 = 0x2 | DELALLOC | ENCODED | INLINE;
const DELALLOC: u32 = 0x4;
const ENCODED: u32 = 0x8;
const INLINE: u32 = 0x200;
/// Other files or snapshots have the same blocks.
const SHARED: u32 = 0x2000;
/// Allocated, and not written yet: it reads as zeros.
const UNWRITTEN: u32 = 0x800;

/// A piece of a file that lies in one piece on its device. All in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where it begins in the file.
    pub logical: u64,
    /// Where it begins on the device.
    pub physical: u64,
    /// How long it is.
    pub length: u64,
}

/// The extents of a file in its order. Holes and what has no place of its own
/// on the device (inline, compressed, not yet written) are skipped.
///
/// # Errors
/// `EOPNOTSUPP` and `ENOTTY`: this file system doesn't tell.
pub fn extents(fd: impl AsFd) -> io::Result<Vec<Extent>> {
    extents_in(fd, 0, u64::MAX)
}

/// The extents that hold a part of a range of a file, of which only that part may be told.
///
/// # Errors
/// As above.
pub fn extents_in(fd: impl AsFd, start: u64, length: u64) -> io::Result<Vec<Extent>> {
    Ok(records(fd, start, length)?.iter().filter_map(Record::extent).collect())
}

/// How a piece of a file is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// In blocks of its own.
    Written,
    /// In blocks that were allocated and not written: it reads as zeros.
    Unwritten,
    /// In memory only, and written later (delayed allocation).
    Later,
    /// In a form of its own, compressed for one.
    Encoded,
    /// In blocks that other files or snapshots have, too.
    Shared,
    /// Elsewhere: inline in the inode.
    Elsewhere,
}

/// All pieces of a file in its order, with how they are stored. Holes are skipped. Where a piece is
/// not in blocks of its own, its physical place means nothing; of one that btrfs compressed it is where
/// that begins.
///
/// # Errors
/// As above.
pub fn pieces(fd: impl AsFd) -> io::Result<Vec<(Extent, Stored)>> {
    pieces_in(fd, 0, u64::MAX)
}

/// The same of a range, as above.
///
/// # Errors
/// As above.
pub fn pieces_in(fd: impl AsFd, start: u64, length: u64) -> io::Result<Vec<(Extent, Stored)>> {
    let piece = |record: &Record| {
        let Record { logical, physical, length, flags, .. } = *record;
        let stored = match flags {
            _ if flags & DELALLOC != 0 => Stored::Later,
            _ if flags & (NOWHERE & !ENCODED) != 0 => Stored::Elsewhere,
            _ if flags & ENCODED != 0 => Stored::Encoded,
            _ if flags & UNWRITTEN != 0 => Stored::Unwritten,
            _ if flags & SHARED != 0 => Stored::Shared,
            _ => Stored::Written,
        };
        (Extent { logical, physical, length }, stored)
    };
    Ok(records(fd, start, length)?.iter().map(piece).collect())
}

fn records(fd: impl AsFd, mut start: u64, length: u64) -> io::Result<Vec<Record>> {
    let mut found = Vec::new();
    let end = start.saturating_add(length);
    loop {
        let request = Request::<ROOM>::ask(&fd, start, end - start)?;
        found.extend(request.records());
        let behind = |last: &Record| last.logical.saturating_add(last.length);
        match request.records().last() {
            // A kernel that goes backwards would keep us here for ever.
            Some(last) if last.flags & LAST == 0 && start < behind(last) && behind(last) < end => {
                start = behind(last);
            }
            _ => return Ok(found),
        }
    }
}

/// The first extent that holds a part of a range of a file; `None` as above.
///
/// # Errors
/// As above.
pub fn first_extent(fd: impl AsFd, start: u64, length: u64) -> io::Result<Option<Extent>> {
    let request = Request::<1>::ask(fd, start, length)?;
    Ok(request.records().first().and_then(Record::extent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_written_file_is_covered_by_its_extents_in_order() {
        // Where the build is, since /tmp may be in memory.
        let build = std::env::current_exe().unwrap();
        let mut file = tempfile::tempfile_in(build.parent().unwrap()).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let extents = match extents(&file) {
            Ok(extents) => extents,
            Err(e) => {
                eprintln!("skipped: no FIEMAP on this file system: {e}");
                assert!(std::env::var_os("CI").is_none(), "CI must have it");
                return;
            }
        };
        assert!(extents.windows(2).all(|e| e[0].logical + e[0].length <= e[1].logical));
        let covered: u64 = extents.iter().map(|e| e.length).sum();
        assert!(covered == 1 << 20 && extents.iter().all(|e| e.physical > 0), "{extents:?}");
        let found = first_extent(&file, 700_000, 4096).unwrap().unwrap();
        // Some file systems tell the part of it that was asked about.
        let of = |e: &&Extent| (e.logical..e.logical + e.length).contains(&found.logical);
        let whole = extents.iter().find(of).unwrap();
        assert_eq!(found.physical - found.logical, whole.physical - whole.logical);
        assert!((found.logical..found.logical + found.length).contains(&700_000), "{found:?}");
        assert_eq!(first_extent(&file, 2 << 20, 4096).unwrap(), None);
        let pieces = pieces(&file).unwrap();
        assert!(pieces.iter().all(|(_, stored)| *stored == Stored::Written), "{pieces:?}");
        assert!(pieces.iter().map(|(extent, _)| *extent).eq(extents.iter().copied()));
        let part = pieces_in(&file, 700_000, 8192).unwrap();
        assert!(part.iter().all(|(e, _)| e.logical < 708_192 && e.logical + e.length > 700_000));
        assert_eq!(part[0].0.physical - part[0].0.logical, whole.physical - whole.logical);
        assert_eq!(extents_in(&file, 1 << 20, 4096).unwrap(), []);
    }

    #[test]
    fn what_has_no_device_says_so() {
        assert!(extents(std::fs::File::open("/proc/self/status").unwrap()).is_err());
    }
}
