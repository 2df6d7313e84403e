//! Why a file is not moved. Pure.

use super::extents::{end, placed, within};
use super::kind::Kind;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::{Extent, Stored};
use rustix::fs::{IFlags, StatxAttributes};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why a file is not moved, or not moved back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// It changed since it was learned, or since it was laid out.
    Changed,
    /// Nothing is at its path.
    Missing,
    /// It can't be opened.
    Unreadable,
    /// It is not a regular file.
    Irregular,
    /// It is on another file system than its mount says.
    OtherFileSystem,
    /// It is open for writing, or mapped shared and writable.
    WrittenTo,
    /// A process executes it, so it can't be opened for writing.
    Running,
    /// It is immutable.
    Immutable,
    /// It can only be appended to.
    AppendOnly,
    /// It is encrypted by the file system.
    Encrypted,
    /// fs-verity protects it.
    Verity,
    /// It is accessed directly in persistent memory.
    Dax,
    /// It is swap space.
    Swap,
    /// Its data go through the file system's journal.
    Journalled,
    /// It has no extents, as on an ext3 that was converted.
    NoExtents,
    /// It has holes.
    Sparse,
    /// Parts of it are allocated and not written.
    Preallocated,
    /// It is not on the disk yet.
    NotWritten,
    /// It is stored inside its inode.
    Inline,
    /// It is compressed by the file system.
    Compressed,
    /// Snapshots or other files share its blocks.
    Shared,
    /// It has no checksums (nodatacow), and a copy with checksums can't take its place.
    NoChecksums,
    /// It is on the realtime device of an xfs.
    Realtime,
    /// Another name of it is laid out already.
    HardLink,
    /// It did not fit into the budget.
    OverBudget,
    /// Its owner's or its project's quota is used up.
    Quota,
    /// Another program moved the donor's blocks for it, as e4defrag(8) does, or a file stayed that was to be moved
    /// aside.
    Displaced,
    /// Its copy in the other place is gone.
    NoCopy,
    /// The kernel refused to move its blocks.
    Refused,
}

impl Skip {
    /// In words, as they follow "it is" or a count.
    pub fn words(self) -> &'static str {
        match self {
            Self::Changed => "changed meanwhile",
            Self::Missing => "missing",
            Self::Unreadable => "can't be opened",
            Self::Irregular => "no regular file",
            Self::OtherFileSystem => "on another file system",
            Self::WrittenTo => "open for writing or mapped shared and writable",
            Self::Running => "being executed",
            Self::Immutable => "immutable",
            Self::AppendOnly => "append-only",
            Self::Encrypted => "encrypted",
            Self::Verity => "protected by fs-verity",
            Self::Dax => "in persistent memory (DAX)",
            Self::Swap => "swap space",
            Self::Journalled => "written through the file system's journal",
            Self::NoExtents => "without extents",
            Self::Sparse => "sparse",
            Self::Preallocated => "preallocated and not written",
            Self::NotWritten => "not on the disk yet (sync writes it)",
            Self::Inline => "inline in its inode",
            Self::Compressed => "compressed by the file system",
            Self::Shared => "shared with a snapshot or another file",
            Self::NoChecksums => "without checksums (nodatacow)",
            Self::Realtime => "on the realtime device",
            Self::HardLink => "another name of a file that is laid out",
            Self::OverBudget => "over the budget",
            Self::Quota => "over a quota",
            Self::Displaced => "whose other place was moved by another program, or not vacated",
            Self::NoCopy => "without its copy in the other place",
            Self::Refused => "refused by the kernel",
        }
    }

    /// Whether the same file may be moved later.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::WrittenTo | Self::Running | Self::NotWritten | Self::Unreadable)
    }
}

/// How many files were skipped, by reason.
pub type Skipped = BTreeMap<Skip, u64>;

/// What the file system says of a file.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What it is on.
    pub kind: Kind,
    /// Whether it is on the realtime device of an xfs.
    pub realtime: bool,
    /// Attributes as statx(2) has them.
    pub attributes: StatxAttributes,
    /// Flags as ioctl_iflags(2) has them.
    pub flags: IFlags,
    /// Its pieces, at least those in the range that is looked at.
    pub pieces: Vec<(Extent, Stored)>,
    /// Whether somebody may write to it.
    pub written_to: bool,
    /// Whether it is swap space.
    pub swap: bool,
}

/// `EXT4_EXTENTS_FL` of `fs/ext4/ext4.h`, which rustix has no name for.
const EXTENTS: u32 = 0x0008_0000;
/// `EXT4_INLINE_DATA_FL`.
const INLINE: u32 = 0x1000_0000;
/// `EXT4_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;
/// `FS_NOCOW_FL` of `include/uapi/linux/fs.h`.
const NO_COW: u32 = 0x0080_0000;

impl Facts {
    /// The extents of a range, if the file may be laid out.
    ///
    /// # Errors
    /// Why it may not.
    pub fn movable(&self, range: ByteRange) -> Result<Vec<Extent>, Skip> {
        self.extents(range, false)
    }

    /// The extents of a range of a file that is in a layout, whose copies share its blocks.
    ///
    /// # Errors
    /// Why it may not be moved now.
    pub fn still_movable(&self, range: ByteRange) -> Result<Vec<Extent>, Skip> {
        self.extents(range, true)
    }

    fn extents(&self, range: ByteRange, has_copies: bool) -> Result<Vec<Extent>, Skip> {
        if let Some(skip) = self.protected() {
            return Err(skip);
        }
        let inside = |(extent, _): &&(Extent, Stored)| {
            extent.logical < range.end && end(extent) > range.offset
        };
        for (_, stored) in self.pieces.iter().filter(inside) {
            match stored {
                Stored::Written => {}
                // New copies may be compressed.
                Stored::Shared | Stored::Encoded if has_copies => {}
                Stored::Shared => return Err(Skip::Shared),
                Stored::Encoded => return Err(Skip::Compressed),
                Stored::Unwritten => return Err(Skip::Preallocated),
                Stored::Later => return Err(Skip::NotWritten),
                Stored::Elsewhere => return Err(Skip::Inline),
            }
        }
        let extents: Vec<Extent> = self.pieces.iter().map(placed).collect();
        within(&extents, range).filter(|found| !found.is_empty()).ok_or(Skip::Sparse)
    }

    /// All extents up to this end of the file that may be moved as they are.
    pub fn all_movable(&self, until: u64) -> Vec<Extent> {
        let may_move = |(extent, stored): &&(Extent, Stored)| {
            *stored == Stored::Written && end(extent) <= until
        };
        match self.protected() {
            Some(_) => Vec::new(),
            None => self.pieces.iter().filter(may_move).map(|(extent, _)| *extent).collect(),
        }
    }

    fn protected(&self) -> Option<Skip> {
        let has = |attribute| self.attributes.contains(attribute);
        let flag = |kind, flag| self.kind == kind && self.flags.bits() & flag != 0;
        let checks = [
            (has(StatxAttributes::IMMUTABLE), Skip::Immutable),
            (has(StatxAttributes::APPEND), Skip::AppendOnly),
            (has(StatxAttributes::ENCRYPTED), Skip::Encrypted),
            (has(StatxAttributes::VERITY), Skip::Verity),
            (has(StatxAttributes::DAX), Skip::Dax),
            (self.swap, Skip::Swap),
            (self.written_to, Skip::WrittenTo),
            (flag(Kind::Ext4, JOURNAL_DATA), Skip::Journalled),
            (flag(Kind::Ext4, INLINE), Skip::Inline),
            (self.kind == Kind::Ext4 && !flag(Kind::Ext4, EXTENTS), Skip::NoExtents),
            (flag(Kind::Btrfs, NO_COW), Skip::NoChecksums),
            (self.realtime, Skip::Realtime),
        ];
        checks.into_iter().find_map(|(is, skip)| is.then_some(skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        let extent = |logical, physical, length| Extent { logical, physical, length };
        Facts {
            kind: Kind::Ext4,
            realtime: false,
            attributes: StatxAttributes::empty(),
            flags: IFlags::from_bits_retain(EXTENTS),
            pieces: vec![
                (extent(0, 100, 10), Stored::Written),
                (extent(10, 500, 10), Stored::Written),
                (extent(30, 700, 10), Stored::Unwritten),
                (extent(40, 0, 10), Stored::Later),
                (extent(50, 0, 10), Stored::Elsewhere),
                (extent(60, 800, 10), Stored::Shared),
                (extent(70, 900, 10), Stored::Encoded),
            ],
            written_to: false,
            swap: false,
        }
    }

    #[test]
    fn only_a_range_that_is_wholly_written_may_be_moved() {
        for (offset, end, expected) in [
            (0, 20, Ok(2)),
            (12, 15, Ok(1)),
            (10, 30, Err(Skip::Sparse)),
            (80, 81, Err(Skip::Sparse)),
            (60, 70, Err(Skip::Shared)),
            (70, 71, Err(Skip::Compressed)),
            (5, 5, Err(Skip::Sparse)),
            (30, 40, Err(Skip::Preallocated)),
            (35, 45, Err(Skip::Preallocated)),
            (40, 50, Err(Skip::NotWritten)),
            (50, 60, Err(Skip::Inline)),
        ] {
            let found = facts().movable(ByteRange { offset, end }).map(|extents| extents.len());
            assert_eq!(found, expected, "{offset} {end}");
        }
        let found = facts().still_movable(ByteRange { offset: 60, end: 80 });
        let places = found.map(|extents| extents.iter().map(|e| e.physical).collect());
        assert_eq!(places, Ok(vec![800, 901]), "by the copies of its layout");
    }

    #[test]
    fn of_a_file_that_is_moved_aside_the_written_extents_are() {
        let places = |facts: &Facts, until| {
            facts.all_movable(until).iter().map(|extent| extent.physical).collect::<Vec<_>>()
        };
        assert_eq!(places(&facts(), 80), [100, 500]);
        assert_eq!(places(&facts(), 20), [100, 500]);
        assert_eq!(places(&facts(), 19), [100], "a part lies behind its end");
        assert!(places(&Facts { swap: true, ..facts() }, 80).is_empty());
    }

    #[test]
    fn a_protected_file_is_not_moved() {
        let flags = |bits| IFlags::from_bits_retain(bits);
        let with = |attributes| Facts { attributes, ..facts() };
        for (facts, expected) in [
            (with(StatxAttributes::IMMUTABLE), Skip::Immutable),
            (with(StatxAttributes::APPEND), Skip::AppendOnly),
            (with(StatxAttributes::ENCRYPTED), Skip::Encrypted),
            (with(StatxAttributes::VERITY), Skip::Verity),
            (with(StatxAttributes::DAX), Skip::Dax),
            (Facts { swap: true, ..facts() }, Skip::Swap),
            (Facts { written_to: true, ..facts() }, Skip::WrittenTo),
            (Facts { flags: flags(EXTENTS | JOURNAL_DATA), ..facts() }, Skip::Journalled),
            (Facts { flags: flags(EXTENTS | INLINE), ..facts() }, Skip::Inline),
            (Facts { flags: flags(0), ..facts() }, Skip::NoExtents),
            (Facts { kind: Kind::Btrfs, flags: flags(NO_COW), ..facts() }, Skip::NoChecksums),
            (Facts { kind: Kind::Xfs, realtime: true, ..facts() }, Skip::Realtime),
        ] {
            assert_eq!(facts.movable(ByteRange { offset: 0, end: 10 }), Err(expected));
        }
    }
}
