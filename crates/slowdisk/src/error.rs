//! What can go wrong, in sentences that say what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything fallible here.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call on a file failed.
    #[error("Can't {action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A model that cannot be used.
    #[error("Model {name}: {reason}")]
    Model {
        /// Its name or path.
        name: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A tool such as mount(8) said no.
    #[error("{command} failed: {message}")]
    Tool {
        /// The command line.
        command: String,
        /// What it wrote to its standard error.
        message: String,
    },
    /// A capability is missing.
    #[error("Slowdisk mounts file systems and so needs CAP_SYS_ADMIN: run it as root")]
    Permission,
    /// The kernel lacks something.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// The device or feature.
        what: String,
        /// How to get it.
        hint: &'static str,
    },
    /// The request does not fit the state of things.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Wraps an I/O error with what was done to which file; for `map_err`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
