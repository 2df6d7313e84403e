//! Why a file can't be imported, in one sentence each. The caller names the file.

use thiserror::Error;

/// Why a file can't be imported.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ImportError {
    /// Its content is none of the known ones.
    #[error(
        "It is none of the formats that can be imported (strace log, trace.dat, perf.data, \
         fatrace log, list of files, ureadahead pack, Android prefetch or iorap pack); \
         --format names one"
    )]
    Unknown,
    /// It ends early, or contradicts itself.
    #[error("The {format} file is cut off or damaged: {part} can't be read; record it again")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What can't be read.
        part: &'static str,
    },
    /// It is of a kind that is not read.
    #[error("{0}")]
    Unsupported(String),
    /// It describes more than its length accounts for.
    #[error(
        "The file unpacks to more than {0} times its size, as no recording of a start does; \
         record a shorter time, or without compression"
    )]
    TooMuch(u64),
    /// There are no accesses in it.
    #[error("There is no access to a file in it; {0}")]
    Nothing(&'static str),
}
