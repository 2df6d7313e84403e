//! What the exit status says; the same for all verbs.

use headstart::trace::capture::CaptureError;
use headstart::trace::tracefs::TraceError;
use std::process::ExitCode;

/// How a verb ended. A wrong command line ends with 2 before any verb runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// All was done.
    Done,
    /// It failed, or a part of it did.
    Failed,
    /// It was done, and the answer is no.
    Negative,
    /// This user may not.
    PermissionMissing,
    /// This kernel cannot.
    KernelFeatureMissing,
    /// That of the program that was run.
    Program(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(match status {
            ExitStatus::Done => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Negative => 3,
            ExitStatus::PermissionMissing => 4,
            ExitStatus::KernelFeatureMissing => 5,
            ExitStatus::Program(status) => status,
        })
    }
}

impl From<&anyhow::Error> for ExitStatus {
    fn from(error: &anyhow::Error) -> Self {
        let trace = error.chain().find_map(|e| {
            let nested = e.downcast_ref::<CaptureError>().and_then(|e| match e {
                CaptureError::Trace(e) => Some(e),
                _ => None,
            });
            nested.or_else(|| e.downcast_ref::<TraceError>())
        });
        match trace {
            Some(TraceError::Permission(_)) => Self::PermissionMissing,
            Some(TraceError::NoEvents | TraceError::NoTracefs(_)) => Self::KernelFeatureMissing,
            _ => Self::Failed,
        }
    }
}
