//! The pack: what is kept of a program's starts, as a value.
//!
//! ```text
//! a start ──▶ build ──▶ Pack ──▶ merge ──▶ codec ──▶ store    into the pack's file
//! command ──▶ key ──────────────────────────────────▶ store    its name
//! an upgrade ──▶ upgrade ──▶ renew ──▶ Pack                    files that were replaced
//! ```
//!
//! [`codec`] is the file form (`doc/pack-format.md`). [`merge`] joins a start into a pack, [`join`]
//! does so under a lock. [`renew`] and [`upgrade`] handle files that were replaced. [`history`]
//! defines the bits of past starts, [`paths`] keeps the names, [`store`] finds, trusts and writes
//! the files, [`key`] names a program.

pub mod build;
pub mod changing;
pub(crate) mod clock;
pub mod codec;
pub mod command_words;
pub mod diff;
pub mod growth;
pub mod history;
pub mod join;
pub mod key;
mod launcher;
mod loader;
pub mod merge;
pub mod paths;
pub mod pieces;
pub mod renew;
pub mod share;
pub mod store;
pub mod subcommand;
pub mod upgrade;
mod varint;

pub use crate::host::identity::Identity;
use crate::host::range::PageRange;
use crate::host::usage::How;
pub use history::History;
use paths::{NodeId, PathTable};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;

/// What was learned of the starts of one program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pack {
    /// Where and when it was learned.
    pub origin: Origin,
    /// The file systems that files and metadata are on.
    pub file_systems: Vec<FileSystem>,
    /// The names of the files.
    pub paths: PathTable,
    /// The files, in the order of their first touch.
    pub files: Vec<File>,
    /// Ranges of files, in the order of their first touch.
    pub ranges: Vec<Range>,
    /// Ranges of block devices that hold metadata, in the order of their
    /// first touch.
    pub metadata: Vec<MetadataRange>,
}

/// Where and when a pack was learned.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Origin {
    /// Name of the program, as its key shows it.
    pub name: String,
    /// The command line of the last start, its words separated by NUL.
    #[serde(serialize_with = "lossy_words")]
    pub command: Vec<u8>,
    /// Kernel release and machine.
    pub kernel: String,
    /// Bytes of a page, as a power of two: 12 for 4 KiB.
    pub page_shift: u8,
    /// Starts learned so far.
    pub starts: u32,
    /// When the pack was last learned, in seconds of Unix time.
    pub learned_at: u64,
    /// Events lost in the worst start that is in it.
    pub lost_events: u64,
    /// Whether accesses were reported; otherwise additions to the page cache count as touches.
    pub has_access_events: bool,
    /// Trace buffer of one CPU that the start needed, in KiB; 0 when the
    /// kernel's default did.
    pub buffer_kb: u32,
    /// How long the last learned start took, in µs.
    pub duration_us: u64,
    /// Inodes that are not in the pack.
    pub dropped: Dropped,
}

/// Inodes that the last start touched and that are not in the pack, by
/// reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Dropped {
    /// No links left.
    pub deleted: u32,
    /// On a file system that is not mounted where headstart can see it.
    pub unreachable: u32,
    /// No name was found.
    pub not_found: u32,
    /// Not looked for, to save a walk or time.
    pub not_looked_for: u32,
    /// The user may not learn the name.
    pub no_permission: u32,
    /// Renamed or replaced meanwhile.
    pub changed: u32,
    /// Written to during the start, and nothing of them read.
    pub written: u32,
    /// In memory anyway (tmpfs), or of the file system itself.
    pub in_memory: u32,
    /// Directories, links and other things that can't be prefetched.
    pub irregular: u32,
}

impl Dropped {
    /// The counts in the order of the file form.
    pub fn counts(&self) -> [u32; 9] {
        [
            self.deleted,
            self.unreachable,
            self.not_found,
            self.not_looked_for,
            self.no_permission,
            self.changed,
            self.written,
            self.in_memory,
            self.irregular,
        ]
    }

    /// The counts with their words, those that are not 0.
    pub fn reasons(&self) -> impl Iterator<Item = (u32, &'static str)> {
        const WORDS: [&str; 9] = [
            "deleted",
            "not reachable from here",
            "without a name",
            "not looked for",
            "not permitted",
            "changed meanwhile",
            "only written during the start",
            "in memory anyway",
            "no regular files",
        ];
        self.counts().into_iter().zip(WORDS).filter(|(count, _)| *count > 0)
    }
}

/// A file system.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FileSystem {
    /// Its UUID; `None` where it has none (tmpfs, overlayfs).
    #[serde(serialize_with = "uuid_text")]
    pub uuid: Option<[u8; 16]>,
    /// Its type, as ext4.
    pub kind: String,
    /// The device it was mounted from.
    #[serde(serialize_with = "lossy_string")]
    pub source: Vec<u8>,
}

impl FileSystem {
    /// Whether it is the same file system: by UUID, or without one by type and source.
    pub fn is(&self, other: &Self) -> bool {
        match (self.uuid, other.uuid) {
            (Some(a), Some(b)) => a == b,
            _ => self == other,
        }
    }
}

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct File {
    /// Index of its file system.
    pub file_system: u16,
    /// Its name.
    pub node: NodeId,
    /// What it was when it was learned.
    pub identity: Identity,
    /// Which of the starts wrote it, or found it changed: bit 0 is the last.
    pub changes: History,
}

/// A range of pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Index of the file.
    pub file: u32,
    /// First page.
    pub first: u64,
    /// Number of pages.
    pub pages: u32,
    /// Its first touch, in µs from the beginning of the last start; computed if the last start did not
    /// touch it. Times of boots exclude waits for a disk.
    pub at_us: u32,
    /// How it was touched.
    pub how: How,
    /// In which starts it was touched: bit 0 is the last start, bit 7 the oldest.
    pub history: History,
}

/// A range of pages of a block device that holds metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataRange {
    /// Index of the file system.
    pub file_system: u16,
    /// First page of the device.
    pub first: u64,
    /// Number of pages.
    pub pages: u32,
    /// When it was first touched, as for [`Range`].
    pub at_us: u32,
    /// In which starts, as for [`Range`].
    pub history: History,
}

impl MetadataRange {
    /// Its pages.
    pub fn page_range(&self) -> PageRange {
        PageRange::of(self.first, self.pages.into())
    }
}

/// The paths that inode numbers had.
pub type EarlierNames = HashMap<u64, Vec<PathBuf>>;

impl Range {
    /// Its pages.
    pub fn page_range(&self) -> PageRange {
        PageRange::of(self.first, self.pages.into())
    }

    /// Whether it was touched through a mapping.
    pub fn is_mapped(&self) -> bool {
        self.how.has(How::MAPPED) || self.how.has(How::EXECUTED)
    }
}

impl Pack {
    /// The names of its files.
    pub fn names(&self) -> EarlierNames {
        let mut names = EarlierNames::new();
        for file in &self.files {
            let paths: &mut Vec<_> = names.entry(file.identity.ino).or_default();
            // Mostly there is one, and a list takes room for four.
            paths.reserve_exact(usize::from(paths.is_empty()));
            paths.push(self.paths.path(file.node));
        }
        names
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u64 {
        1 << self.origin.page_shift
    }

    /// Bytes of the ranges of files that the next start is expected to touch.
    pub fn expected_bytes(&self) -> u64 {
        let expected = self.ranges.iter().filter(|r| r.history.expects(self.origin.starts, r.how));
        self.bytes(expected.map(|r| r.pages))
    }

    /// Bytes of all ranges of files.
    pub fn data_bytes(&self) -> u64 {
        self.bytes(self.ranges.iter().map(|r| r.pages))
    }

    /// Bytes of all metadata ranges.
    pub fn metadata_bytes(&self) -> u64 {
        self.bytes(self.metadata.iter().map(|r| r.pages))
    }

    fn bytes(&self, ranges: impl Iterator<Item = u32>) -> u64 {
        // Each fits; what a hostile pack sums up to may not.
        ranges.map(|pages| u64::from(pages) * self.page_size()).fold(0, u64::saturating_add)
    }
}

fn lossy_string<S: serde::Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&String::from_utf8_lossy(bytes))
}

fn lossy_words<S: serde::Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(bytes.split(|b| *b == 0).map(String::from_utf8_lossy))
}

fn uuid_text<S: serde::Serializer>(uuid: &Option<[u8; 16]>, s: S) -> Result<S::Ok, S::Error> {
    uuid.as_ref().map(format_uuid).serialize(s)
}

/// The usual text of a UUID.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let mut out = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&i) {
            out.push('-');
        }
        out.push_str(&format!("{byte:02x}"));
    }
    out
}
