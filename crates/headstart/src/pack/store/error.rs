//! Why a pack file or directory can't be used. Pure.

use crate::host::names;
use crate::pack::codec::PackError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A pack file that can't be used or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is none.
    #[error("There is no pack {}; `headstart list` shows those there are", names::path(.0))]
    Missing(PathBuf),
    /// It can't be opened or read.
    #[error("Can't read the pack {path}", path = names::path(.path))]
    Read {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else could have written it.
    #[error("The pack {path} is not used: {why}", path = names::path(.path))]
    Untrusted {
        /// The pack.
        path: PathBuf,
        /// What is wrong, and the fix.
        why: String,
    },
    /// Somebody else could have changed what is in its directory.
    #[error("The pack directory {path} is not used: {why}", path = names::path(.path))]
    UntrustedDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and the fix.
        why: String,
    },
    /// Something else is in the place of a pack that is to be replaced or removed.
    #[error("{} is not a pack, so it stays as it is; name another file", names::path(.0))]
    NotAPack(PathBuf),
    /// Its content is invalid.
    #[error("The pack {path} is not used", path = names::path(.path))]
    Content {
        /// The pack.
        path: PathBuf,
        /// What is wrong with it.
        source: PackError,
    },
    /// What says where packs are says it relative to a directory that changes.
    #[error(
        "HEADSTART_PACKS is {}, which is not an absolute path; no packs are used or learned until \
         it is one", names::path(.0)
    )]
    RelativeDirectory(PathBuf),
    /// A name is that of several.
    #[error("Several packs are of {name}; name one of them: {paths}")]
    Several {
        /// The name.
        name: String,
        /// The packs, with their commands.
        paths: String,
    },
    /// It can't be written.
    #[error("Can't write the pack {path}", path = names::path(.path))]
    Write {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}
