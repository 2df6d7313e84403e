//! What the exit status says; the same for all verbs.

use std::process::ExitCode;

/// How a verb ended. A wrong command line ends with 2 before any verb runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// All was done.
    Done = 0,
    /// It failed, or a part of it did.
    Failed = 1,
    /// It was done, and the answer is no.
    Negative = 3,
    /// This user may not.
    PermissionMissing = 4,
    /// This kernel cannot.
    KernelFeatureMissing = 5,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status as u8)
    }
}
