//! The exit statuses, the same for all verbs.

use crate::output;
use headstart::launch::LaunchError;
use headstart::trace::capture::CaptureError;
use headstart::trace::tracefs::TraceError;
use headstart_faults::capture::CaptureError as FaultsError;
use headstart_faults::capture::points::PointsError;
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

impl ExitStatus {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Negative => 3,
            Self::PermissionMissing => 4,
            Self::KernelFeatureMissing => 5,
            Self::Program(status) => status,
        }
    }

    /// As `std::process::exit` takes it.
    pub fn number(self) -> i32 {
        self.code().into()
    }
}

/// The status to end with; an error is printed.
pub fn status_of(result: anyhow::Result<ExitStatus>) -> ExitStatus {
    result.unwrap_or_else(|error| {
        if error.is::<output::ReaderGone>() {
            // The reader has closed the pipe: `headstart pages … | head`.
            return ExitStatus::Done;
        }
        output::message(format_args!("{error:#}"));
        ExitStatus::from(&error)
    })
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

impl From<&anyhow::Error> for ExitStatus {
    fn from(error: &anyhow::Error) -> Self {
        match error.downcast_ref::<FaultsError>() {
            Some(
                FaultsError::Paranoid(_)
                | FaultsError::Forbidden(_)
                | FaultsError::NotOwn(_)
                | FaultsError::Memory(_),
            ) => return Self::PermissionMissing,
            Some(FaultsError::NoEvents) => return Self::KernelFeatureMissing,
            _ => {}
        }
        match error.downcast_ref::<PointsError>() {
            Some(PointsError::Namespace) => return Self::PermissionMissing,
            Some(PointsError::Missing(..) | PointsError::Field(..)) => {
                return Self::KernelFeatureMissing;
            }
            _ => {}
        }
        let trace = error.chain().find_map(|e| {
            let nested = e.downcast_ref::<CaptureError>().and_then(|e| match e {
                CaptureError::Trace(e) => Some(e),
                _ => None,
            });
            let launch = e.downcast_ref::<LaunchError>().and_then(LaunchError::trace);
            nested.or(launch).or_else(|| e.downcast_ref::<TraceError>())
        });
        match trace {
            Some(TraceError::Permission(_)) => Self::PermissionMissing,
            Some(TraceError::NoEvents | TraceError::NoTracefs(_) | TraceError::NoProc) => {
                Self::KernelFeatureMissing
            }
            _ => Self::Failed,
        }
    }
}
