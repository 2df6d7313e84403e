//! Which files of packs may be moved, and where they lie. A driver; [`super::skip`] decides.

use super::content::drop_folios;
use super::error::LayoutError;
use super::journal::LaidFile;
use super::kind::Kind;
use super::skip::{Facts, Skip, Skipped};
use super::volume::{Store, Volume};
use super::wanted::{Wanted, WantedRange};
use headstart::host::contents;
use headstart::host::id::Dev;
use headstart::host::identity::{Identity, identity_of};
use headstart::host::mounts::MountTable;
use headstart::host::names;
use headstart::host::open::open_again;
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::{self, Extent};
use headstart_sys::{lease, xfs};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Swap areas of this machine.
const SWAPS: &str = "/proc/swaps";

/// What of packs may be moved on one file system.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The files, by their paths below the root of the file system.
    pub files: Vec<LaidFile>,
    /// Their ranges in touch order, each with its extents.
    pub ranges: Vec<(WantedRange, Vec<Extent>)>,
    /// Files that are skipped, with the reasons.
    pub skipped: Vec<(PathBuf, Skip)>,
    /// What the layout of files that share their blocks would take for good, in bytes.
    pub shared_bytes: u64,
}

impl Found {
    /// How many files are skipped, by reason.
    pub fn counts(&self) -> Skipped {
        let mut out = Skipped::new();
        for (_, skip) in &self.skipped {
            *out.entry(*skip).or_default() += 1;
        }
        out
    }
}

/// Looks at all wanted files that are on `volume`.
///
/// # Errors
/// What the kernel says of the file system itself.
pub fn examine(
    wanted: &Wanted,
    volume: &Volume,
    mounts: &MountTable,
) -> Result<Found, LayoutError> {
    let (block, swaps) = (volume.block()?, Swaps::read());
    let mut ranges: HashMap<usize, Vec<ByteRange>> = HashMap::new();
    for range in &wanted.ranges {
        ranges.entry(range.file).or_default().push(range.bytes);
    }
    let mut out = Found::default();
    // By wanted file: its number here, and the extents of its ranges.
    let mut looked: HashMap<usize, (usize, HashMap<ByteRange, Vec<Extent>>)> = HashMap::new();
    let mut seen = HashSet::new();
    for (number, file) in wanted.files.iter().enumerate() {
        let Some(path) = volume.below(&file.path, mounts) else { continue };
        let Some(ranges) = ranges.get(&number) else { continue };
        let looked_at = open_again(&file.path).map_err(why).and_then(|opened| {
            let whole = ByteRange { offset: 0, end: u64::MAX };
            let file_now = Looked::at(opened, whole, (volume.kind, volume.file_dev), &swaps)?;
            if !file.identity.is_still(&file_now.identity) {
                return Err(Skip::Changed);
            }
            // The paths of one inode are one file.
            if !seen.insert(file_now.identity.ino) {
                return Err(Skip::HardLink);
            }
            let end = file_now.identity.size.next_multiple_of(block);
            let extents = |range: &ByteRange| {
                let bytes = ByteRange { offset: range.offset, end: range.end.min(end) };
                Ok((*range, file_now.facts.movable(bytes)?))
            };
            let found = ranges.iter().map(extents).collect::<Result<_, Skip>>()?;
            Ok((file_now.identity, found))
        });
        match looked_at {
            Ok((identity, found)) => {
                looked.insert(number, (out.files.len(), found));
                out.files.push(LaidFile { path, identity });
            }
            Err(skip) => {
                if skip == Skip::Shared {
                    out.shared_bytes += ranges.iter().map(|range| range.length()).sum::<u64>();
                }
                out.skipped.push((file.path.clone(), skip));
            }
        }
    }
    for range in &wanted.ranges {
        let Some((file, found)) = looked.get_mut(&range.file) else { continue };
        let Some(extents) = found.remove(&range.bytes) else { continue };
        let length = extents.iter().map(|extent| extent.length).sum();
        let bytes = ByteRange::of(range.bytes.offset, length);
        out.ranges.push((WantedRange { file: *file, bytes }, extents));
    }
    Ok(out)
}

/// Why a file can't be opened.
pub(crate) fn why(error: Errno) -> Skip {
    match error {
        Errno::NOENT | Errno::NOTDIR => Skip::Missing,
        // A link or something else took its place.
        Errno::LOOP => Skip::Changed,
        Errno::XDEV => Skip::OtherFileSystem,
        Errno::TXTBSY => Skip::Running,
        _ => Skip::Unreadable,
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Open for reading, its access time stays.
    pub(crate) file: File,
    pub(crate) identity: Identity,
    pub(crate) facts: Facts,
}

impl Looked {
    /// Opens a file of a layout: below the root of its file system, by no link, and if it is the
    /// same inode. Looks at a range of it.
    pub(crate) fn again(
        store: &Store,
        file: &LaidFile,
        range: ByteRange,
        swaps: &Swaps,
    ) -> Result<Self, Skip> {
        let looked = Self::inside(store, &file.path, range, swaps)?;
        if looked.identity.ino == file.identity.ino { Ok(looked) } else { Err(Skip::Changed) }
    }

    /// The same of any file below the root of the file system.
    pub(crate) fn inside(
        store: &Store,
        path: &Path,
        range: ByteRange,
        swaps: &Swaps,
    ) -> Result<Self, Skip> {
        Self::at(opened(store, path)?, range, (store.kind, store.dev), swaps)
    }

    /// Looks at a range of a file that is open for reading.
    fn at(
        opened: OwnedFd,
        range: ByteRange,
        (kind, dev): (Kind, Dev),
        swaps: &Swaps,
    ) -> Result<Self, Skip> {
        let refused = |_| Skip::Unreadable;
        let stat = rustix::fs::fstat(&opened).map_err(refused)?;
        if Dev::from_stat(stat.st_dev) != dev {
            return Err(Skip::OtherFileSystem);
        }
        if !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Err(Skip::Irregular);
        }
        // Only its owner and root may; for others nothing is read here.
        let flags = rustix::fs::fcntl_getfl(&opened).map_err(refused)?;
        let _ = rustix::fs::fcntl_setfl(&opened, flags | OFlags::NOATIME);
        let identity = identity_of(&stat);
        let statx = rustix::fs::statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let facts = Facts {
            kind,
            realtime: kind == Kind::Xfs
                && xfs::is_realtime(&opened).map_err(|_| Skip::Unreadable)?,
            attributes: statx.map_err(refused)?.stx_attributes,
            flags: rustix::fs::ioctl_getflags(&opened).map_err(refused)?,
            pieces: fiemap::pieces_in(&opened, range.offset, range.length())
                .map_err(|_| Skip::Unreadable)?,
            // Who may not have a lease only looks: root, who moves, may.
            written_to: lease::is_written_to(&opened)
                .unwrap_or_else(|_| rustix::process::geteuid().is_root()),
            swap: swaps.0.contains(&(dev, identity.ino)),
        };
        Ok(Self { file: opened.into(), identity, facts })
    }
}

/// Opens a file below the root of a file system, by no link.
fn opened(store: &Store, path: &Path) -> Result<OwnedFd, Skip> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let opened = rustix::fs::openat2(&store.root, path, flags, Mode::empty(), resolve);
    opened.map_err(why)
}

/// Has the kernel let go of what it cached of ranges of files. All at once, before any of it is read again: a
/// folio may hold parts of several ranges.
pub(crate) fn drop_cached<'a>(
    store: &Store,
    ranges: impl Iterator<Item = (Option<&'a LaidFile>, ByteRange)>,
) {
    for (file, range) in ranges {
        if let Some(Ok(file)) = file.map(|file| opened(store, &file.path)) {
            drop_folios(&file.into(), range);
        }
    }
}

/// The same file, open for writing.
pub(crate) fn writable(file: &File) -> Result<File, Skip> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOATIME;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from).map_err(|error| match error {
        Errno::PERM => Skip::Refused,
        error => why(error),
    })
}

/// Files that are swap space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Swaps(HashSet<(Dev, u64)>);

impl Swaps {
    /// Those of this machine. Without /proc the kernel refuses them.
    pub(crate) fn read() -> Self {
        let text = contents::bytes(SWAPS).unwrap_or_default();
        let id = |path: PathBuf| {
            let stat = rustix::fs::stat(&path).ok()?;
            Some((Dev::from_stat(stat.st_dev), stat.st_ino))
        };
        Self(swap_paths(&text).into_iter().filter_map(id).collect())
    }
}

/// The paths in /proc/swaps, behind its title.
fn swap_paths(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let path = |line: &[u8]| {
        let field = line.split(|byte| *byte == b' ').next().filter(|field| !field.is_empty())?;
        Some(Path::new(OsStr::from_bytes(&names::unescape(field))).to_owned())
    };
    lines.filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_files_are_those_that_the_kernel_lists() {
        let text = b"Filename\tType\tSize\n/swap\\040file   file\t1\n/dev/sda2  partition\t2\n";
        assert_eq!(swap_paths(text), [Path::new("/swap file"), Path::new("/dev/sda2")]);
        assert!(swap_paths(b"").is_empty());
    }
}
