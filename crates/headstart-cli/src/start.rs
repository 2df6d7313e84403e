//! Starts the program of a session.
//!
//! It starts whatever happens here. This process becomes the program, or is the plain parent
//! of a process that does (`parent`); a helper process reads ahead and learns (`helper`).

use crate::exit::ExitStatus;
use crate::session::Session;
use crate::{helper, output, parent};
use headstart_sys::exec;
use headstart_sys::helper::{Side, split};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the program waits at most for a helper that is stuck. The helper itself lets it go
/// sooner: when the first pages were asked for, and the trace is armed.
const HELPER_LIMIT: Duration = Duration::from_secs(1);
/// The same where the user asked for a recording.
const RECORDING_LIMIT: Duration = Duration::from_secs(30);

impl Session {
    /// Starts the program. Returns the status to end with.
    pub fn go(self) -> anyhow::Result<ExitStatus> {
        match self.report.clone() {
            Some(report) => parent::start(self, &report),
            None => Ok(self.become_program(None)),
        }
    }

    /// Forks a helper, which tells what became of the start through `told`, and becomes the
    /// program. Returns only when that fails. Only while there is a single thread.
    pub fn become_program(self, told: Option<OwnedFd>) -> ExitStatus {
        let limit = if self.must_learn { RECORDING_LIMIT } else { HELPER_LIMIT };
        let limit = limit.max(self.hold);
        let failure = match split() {
            Ok(Side::Program(program)) => {
                program.wait(limit);
                program.exec(&self.command)
            }
            Ok(Side::Helper(helper)) => helper::help(helper, self, told),
            Err(error) => {
                let why = "Can't start a helper process";
                output::message(format_args!("{why}: {error}; the program starts without help"));
                exec::exec(&self.command)
            }
        };
        self.not_started(&failure)
    }

    fn not_started(&self, failure: &io::Error) -> ExitStatus {
        let name = self.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        output::message(format_args!("Can't run {name}: {failure}"));
        ExitStatus::Program(exec::status_of_failure(failure))
    }
}
