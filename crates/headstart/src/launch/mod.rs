//! One pipeline for every kind of launch.
//!
//! ```text
//!          prepare ─▶ prefetch       record           learn
//! pack ──▶ benefit    device model   trace of the ──▶ pages by name ──▶ pack
//!          estimate   read strategy  start            classification
//!          sample     plan, replay
//! ```
//!
//! [`lifecycle`] is the whole, one value for each launch; [`policy`] says what differs between
//! programs, services, benchmarks and boots, and why; [`recorded_launch`] is what learning has in
//! common.
//! Nothing here prints, and nothing belongs to the whole process: a process may follow many
//! launches at once, also of programs that are not its children.

pub mod found_pack;
pub mod learn;
pub mod learned_packs;
pub mod learner;
pub mod lifecycle;
pub mod listing;
pub mod policy;
pub mod prefetch;
pub mod prepare;
pub mod record;
pub mod recorded_launch;
pub mod retention;
mod turn;

use crate::host::mounts::MountsError;
use crate::host::names;
use crate::pack::store::StoreError;
use crate::profile::seen::SeenError;
use crate::trace::capture::CaptureError;
use crate::trace::file::TraceFileError;
use crate::trace::tracefs::TraceError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A start that can't be recorded or learned.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// Nothing can be recorded here.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The recording failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// What was recorded can't be decoded.
    #[error(transparent)]
    Seen(#[from] SeenError),
    /// The mounts can't be read.
    #[error(transparent)]
    Mounts(#[from] MountsError),
    /// The pack can't be used or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The raw trace has no form as a file.
    #[error(transparent)]
    File(#[from] TraceFileError),
    /// The raw trace can't be kept.
    #[error("Can't write {path}", path = names::path(.path))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No thread can be started.
    #[error("Can't start a thread")]
    Thread(#[source] io::Error),
    /// The learning thread died.
    #[error("The learning thread died. Please report this")]
    LearningDied,
    /// Learning was ended from outside.
    #[error("Learning was ended by a signal")]
    LearningEnded,
    /// Learning took too long; the time in seconds.
    #[error("Learning takes longer than {0} s, as where a file system does not answer")]
    LearningTooLong(u64),
    /// The thread that starts the recording died.
    #[error("The thread that starts the recording died")]
    RecorderDied,
}

impl LaunchError {
    /// What keeps a recording from being made, if that is it.
    pub fn trace(&self) -> Option<&TraceError> {
        match self {
            Self::Trace(error) | Self::Capture(CaptureError::Trace(error)) => Some(error),
            _ => None,
        }
    }
}
