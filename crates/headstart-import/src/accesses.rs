//! The accesses to files that a recording tells of: which pages of which file, in which order and
//! when. Names are as the recording has them.

use crate::error::ImportError;
use headstart::host::id::InodeId;
use headstart::host::range::{ByteRange, PageRange};
use headstart::host::usage::How;
use headstart::profile::spans::Spans;
use std::collections::HashMap;

/// What a range takes in memory, with all that it is kept in, in bytes.
const SPAN_BYTES: u64 = 80;
/// What a file takes besides its name and ranges.
const FILE_BYTES: u64 = 256;
/// What accesses may take for each byte of a recording.
pub(crate) const MOST_TIMES: u64 = 12;
/// What they may take in any case.
const SMALL: u64 = 1 << 16;
/// Time between two accesses of a recording without times, so that their order stays: 1 µs.
const STEP_NS: u64 = 1000;

/// How a recording names a file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Name {
    /// A path, perhaps a relative one.
    Path(Vec<u8>),
    /// Device and inode number, as the kernel names them.
    Inode(InodeId),
}

/// What a recording lacks, or what of it could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lacks {
    /// Lines or records that can't be understood.
    pub not_understood: u64,
    /// Accesses to files that were opened before the recording began, or whose opening is missing.
    pub of_unknown_files: u64,
    /// Files that were opened, and of which nothing was read.
    pub only_opened: u64,
    /// Events that were lost when it was recorded.
    pub lost: u64,
    /// Traces of other instances in the same file, which are not read.
    pub other_traces: u64,
    /// What the format does not tell of an access, in a sentence.
    pub coarse: Option<&'static str>,
}

/// The accesses of one recording.
#[derive(Clone, Debug)]
pub struct Accesses {
    files: HashMap<Name, (u32, Spans)>,
    /// Paths of inodes that the recording itself tells.
    pub paths: HashMap<InodeId, Vec<u8>>,
    /// Bytes of a page, a power of two.
    pub page_size: u64,
    /// Whether the recording has times; otherwise they only keep its order.
    pub has_times: bool,
    /// Whether it has accesses, not only additions to the page cache.
    pub has_access_events: bool,
    /// What it lacks.
    pub lacks: Lacks,
    began: Option<u64>,
    last: u64,
    /// What may be kept, what is, and how many accesses came since that was counted.
    limit: u64,
    kept: u64,
    since_counted: u64,
}

impl Accesses {
    /// None yet, of a recording of so many bytes. A page size that is not possible is 4 KiB.
    pub fn new(page_size: u64, recording_bytes: usize) -> Self {
        let is_possible = page_size.is_power_of_two() && (512..=1 << 20).contains(&page_size);
        Self {
            files: HashMap::new(),
            paths: HashMap::new(),
            page_size: if is_possible { page_size } else { 4096 },
            has_times: true,
            has_access_events: true,
            lacks: Lacks::default(),
            began: None,
            last: 0,
            limit: SMALL + MOST_TIMES * recording_bytes as u64,
            kept: 0,
            since_counted: 0,
        }
    }

    /// Keeps this much less than the recording's length would allow, since it is kept elsewhere.
    #[must_use]
    pub(crate) fn less(mut self, bytes: usize) -> Self {
        self.limit = self.limit.saturating_sub(bytes as u64).max(SMALL);
        self
    }

    /// An access at a time of the recording's clock, in ns. A time before the last one counts as
    /// that one, since a recording is in the order of time.
    ///
    /// # Errors
    /// There are more than the recording accounts for.
    pub fn add(
        &mut self,
        name: Name,
        pages: PageRange,
        at: u64,
        how: How,
    ) -> Result<(), ImportError> {
        if pages.is_empty() {
            return Ok(());
        }
        let began = *self.began.get_or_insert(at);
        self.last = self.last.max(at.saturating_sub(began));
        let (number, at) = (self.files.len(), self.last);
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let named = if let Name::Path(path) = &name { 2 * path.len() as u64 } else { 0 };
        let (_, spans) = self.files.entry(name).or_insert_with(|| {
            self.kept += FILE_BYTES + named;
            (number, Spans::default())
        });
        spans.touch(pages, at, how);
        self.since_counted += 1;
        self.check()
    }

    /// An access to bytes. Those that no file can have, as where a signed number is negative, are not
    /// understood.
    ///
    /// # Errors
    /// As [`Accesses::add`].
    pub fn add_bytes(
        &mut self,
        name: Name,
        bytes: ByteRange,
        at: u64,
        how: How,
    ) -> Result<(), ImportError> {
        let is_possible = bytes.end <= i64::MAX.cast_unsigned();
        self.lacks.not_understood += u64::from(!is_possible);
        if bytes.is_empty() || !is_possible {
            return Ok(());
        }
        self.add(name, bytes.pages(self.page_size), at, how)
    }

    /// An access to a whole file, whose length is found later.
    ///
    /// # Errors
    /// As [`Accesses::add`].
    pub fn add_whole(&mut self, name: Name, at: u64, how: How) -> Result<(), ImportError> {
        let end = i64::MAX.cast_unsigned() / self.page_size;
        self.add(name, PageRange { first: 0, end }, at, how)
    }

    /// The time of the next access of a recording that has only an order.
    pub fn next_step(&mut self) -> u64 {
        self.has_times = false;
        self.began.map_or(0, |began| began.saturating_add(self.last).saturating_add(STEP_NS))
    }

    /// The path of an inode, told by the recording.
    pub fn knows(&mut self, inode: InodeId, path: &[u8]) {
        if path.starts_with(b"/") && !self.paths.contains_key(&inode) && self.kept < self.limit {
            self.kept += FILE_BYTES + path.len() as u64;
            self.paths.insert(inode, path.to_vec());
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// From the first access to the last, in ns.
    pub fn duration(&self) -> u64 {
        self.last
    }

    /// The files in the order of their first access. Times count from the first access.
    pub fn files(&self) -> Vec<(&Name, &Spans)> {
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(_, (number, _))| *number);
        files.into_iter().map(|(name, (_, spans))| (name, spans)).collect()
    }

    /// The inodes among the names.
    pub fn inodes(&self) -> Vec<InodeId> {
        let inode = |name: &Name| if let Name::Inode(id) = name { Some(*id) } else { None };
        let mut inodes: Vec<_> = self.files.keys().filter_map(inode).collect();
        inodes.sort_unstable();
        inodes
    }

    /// Counts what is kept when as many accesses came as there could be ranges.
    fn check(&mut self) -> Result<(), ImportError> {
        // An eighth more may be kept, so that counting takes little of the time.
        let left = self.limit.saturating_sub(self.kept).max(self.limit / 8);
        if self.since_counted * SPAN_BYTES <= left {
            return Ok(());
        }
        let of = |(name, (_, spans)): (&Name, &(u32, Spans))| {
            let named = if let Name::Path(path) = name { 2 * path.len() as u64 } else { 0 };
            FILE_BYTES + named + spans.iter().count() as u64 * SPAN_BYTES
        };
        let paths = self.paths.values().map(|path| FILE_BYTES + path.len() as u64);
        self.kept = self.files.iter().map(of).chain(paths).sum();
        self.since_counted = 0;
        if self.kept > self.limit { Err(ImportError::TooMuch(MOST_TIMES)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::id::Dev;

    fn path(name: &str) -> Name {
        Name::Path(name.into())
    }

    #[test]
    fn files_come_in_the_order_of_their_first_access_with_times_from_the_first() {
        let mut all = Accesses::new(4096, 1000);
        all.add_bytes(path("b"), ByteRange::of(5000, 10), 700, How::READ).unwrap();
        all.add_bytes(path("a"), ByteRange::of(0, 0), 800, How::READ).unwrap();
        all.add_whole(path("a"), 900, How::MAPPED).unwrap();
        all.add_bytes(path("b"), ByteRange::of(0, 4096), 100, How::READ).unwrap();
        let files = all.files();
        let names: Vec<_> = files.iter().map(|(name, _)| (*name).clone()).collect();
        assert_eq!(names, [path("b"), path("a")]);
        let spans: Vec<_> = files[0].1.iter().map(|span| (span.pages.first, span.at)).collect();
        assert_eq!(spans, [(0, 200), (1, 0)], "no time goes back");
        assert_eq!(all.duration(), 200);
    }

    #[test]
    fn bytes_that_no_file_has_are_counted() {
        let mut all = Accesses::new(4096, 1000);
        for (offset, length) in [(0, -1i64), (-4096, 8192), (i64::MAX, 1)] {
            let (offset, length) = (offset.cast_unsigned(), length.cast_unsigned());
            all.add_bytes(path("a"), ByteRange::of(offset, length), 0, How::READ).unwrap();
        }
        assert_eq!((all.is_empty(), all.lacks.not_understood), (true, 3));
    }

    #[test]
    fn a_recording_without_times_keeps_its_order() {
        let mut all = Accesses::new(4096, 1000);
        for name in ["x", "y", "z"] {
            let at = all.next_step();
            all.add_whole(path(name), at, How::READ).unwrap();
        }
        let times: Vec<_> = all.files().iter().map(|(_, s)| s.iter().next().unwrap().at).collect();
        assert_eq!((times, all.has_times), (vec![0, 1000, 2000], false));
    }

    #[test]
    fn more_ranges_than_the_recording_accounts_for_are_refused_and_joined_ones_are_not() {
        let id = Name::Inode(InodeId { dev: Dev::new(8, 1), ino: 5 });
        let mut all = Accesses::new(4096, 0);
        for page in 0..100_000 {
            all.add(id.clone(), PageRange::of(page, 1), 0, How::READ).unwrap();
        }
        let apart = (0..100_000).try_for_each(|page| {
            all.add(id.clone(), PageRange::of((1 << 30) + page * 2, 1), 0, How::READ)
        });
        assert_eq!(apart, Err(ImportError::TooMuch(MOST_TIMES)));
    }
}
