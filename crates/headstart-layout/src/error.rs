//! Why a layout can't go on.

use super::journal::JournalError;
use super::unfit::Unfit;
use headstart::host::names;
use std::io;
use std::path::{Path, PathBuf};

/// Why a layout can't go on. Each file is whole, whatever it is.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The file system can't be laid out.
    #[error("{path} is on {kind}, which can't be laid out: {why}", path = names::path(.path), kind = names::text(.kind))]
    OtherKind {
        /// A file or the mount point.
        path: PathBuf,
        /// The type of the file system.
        kind: String,
        /// Why.
        why: &'static str,
    },
    /// An xfs that was made without what a layout needs.
    #[error("{path} shares no blocks between files, as a layout needs; mkfs.xfs -m reflink=1 makes one that does", path = names::path(.path))]
    NoSharing {
        /// The mount point.
        path: PathBuf,
    },
    /// Only btrfs compresses files that are laid out.
    #[error("{path} is not on btrfs, the only file system where a layout can compress", path = names::path(.path))]
    NoCompression {
        /// The mount point.
        path: PathBuf,
    },
    /// Other files are moved aside on ext4 and xfs, if a block is as large as a page, and on btrfs.
    #[error("{path}: --make-room moves other files aside on ext4 and xfs with blocks as large as a page, and on btrfs", path = names::path(.path))]
    NoAside {
        /// The mount point.
        path: PathBuf,
    },
    /// Others move block groups of the btrfs, or its devices change.
    #[error("{path}: there is another balance, running or paused, or a device is added or removed; wait for it, or end it (btrfs balance status, btrfs balance cancel)", path = names::path(.path))]
    Balancing {
        /// The mount point.
        path: PathBuf,
    },
    /// The kernel compresses, at its own level only.
    #[error("Levels of compression take Linux 6.15; give zstd without one")]
    NoLevel,
    /// A quota leaves too little room.
    #[error("A quota leaves less than {needed} MiB on {path}; raise it, or give a smaller --budget", path = names::path(.path))]
    Quota {
        /// The mount point.
        path: PathBuf,
        /// What is needed, in MiB.
        needed: u64,
    },
    /// Only a part of the file system is mounted here.
    #[error("{path} is a part of a file system; a layout needs a mount of all of it, or of a subvolume", path = names::path(.path))]
    PartOnly {
        /// The mount point.
        path: PathBuf,
    },
    /// The file system must not be laid out.
    #[error("{path} is not laid out: {why}", path = names::path(.path), why = .why.words())]
    Unfit {
        /// The mount point.
        path: PathBuf,
        /// Why.
        why: Unfit,
    },
    /// The kernel may damage a file system.
    #[error(
        "Linux {release} may lack the fix of CVE-2024-26704, without which moving blocks can damage a file system; take Linux 6.8 or later, or give --trust-kernel if yours has the fix"
    )]
    Kernel {
        /// Its release.
        release: String,
    },
    /// A layout is made on one file system.
    #[error("These packs name files on several file systems ({paths}); choose one with --on", paths = named(.paths))]
    Several {
        /// Where they are mounted.
        paths: Vec<PathBuf>,
    },
    /// The mounts are not known.
    #[error("Can't read the list of mounts; is /proc mounted?")]
    NoMounts,
    /// The directory of donor and journal is not headstart's own.
    #[error("{path} {why}; headstart uses only what root owns and nobody else may write", path = names::path(.path))]
    Untrusted {
        /// What is there.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another headstart works on this layout.
    #[error("Another headstart works on the layout in {path}; wait until it has ended", path = names::path(.path))]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// There is a layout already.
    #[error("There is a layout in {path}; undo or release it first, or resume it", path = names::path(.path))]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// There is none.
    #[error("There is no layout on {path}", path = names::path(.path))]
    None {
        /// The mount point.
        path: PathBuf,
    },
    /// The journal can't be used.
    #[error("{path}: {source}", path = names::path(.path))]
    Journal {
        /// The journal.
        path: PathBuf,
        /// Why.
        source: JournalError,
    },
    /// The donor is not what the journal says.
    #[error("{path} is not the donor of this layout; all files are whole, and headstart layout release removes it", path = names::path(.path))]
    OtherDonor {
        /// The donor.
        path: PathBuf,
    },
    /// There is no room for the donor.
    #[error("A layout needs {needed} MiB free on {path}, and {free} MiB are; give a smaller --budget", path = names::path(.path))]
    NoRoom {
        /// The mount point.
        path: PathBuf,
        /// What is needed, with a reserve, in MiB.
        needed: u64,
        /// What is free, in MiB.
        free: u64,
    },
    /// The file system became full meanwhile.
    #[error("The file system is full: {path} needs a block for its extents; free some, then headstart layout resume or undo goes on", path = names::path(.path))]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Bytes of a file are not what they were.
    #[error("{path} has other content than before, though nobody wrote it; do not use this kernel for layouts", path = names::path(.path))]
    Content {
        /// The file.
        path: PathBuf,
    },
    /// The kernel said no.
    #[error("{what} {path}: {source}", path = names::path(.path))]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn named(paths: &[PathBuf]) -> String {
    let named = paths.iter().map(|path| names::path(path).to_string());
    named.collect::<Vec<_>>().join(", ")
}

impl LayoutError {
    /// For `map_err`: what was tried with which file.
    pub(crate) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { what, path: path.to_owned(), source: error.into() }
    }
}
