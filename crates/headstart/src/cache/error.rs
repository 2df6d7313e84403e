//! Errors for one file of the page cache.

use crate::host::names;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be looked at or evicted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is a directory, a pipe, a socket or a character device.
    #[error("{} is neither a regular file nor a block device; only those have cached pages", names::path(.0))]
    NotAFile(PathBuf),
    /// A system call refused.
    #[error("Can't {what} {}", names::path(path))]
    Io {
        /// What was being done, to be read before the path.
        what: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: `what` is being done to `path`.
    pub(crate) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { what, path: path.to_owned(), source: source.into() }
    }

    /// Whether there is no such file.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether more rights would fix it.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}
