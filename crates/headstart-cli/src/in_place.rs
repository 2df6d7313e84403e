//! This process becomes the program: same number, parent, descriptors and signals. A helper
//! process prefetches and learns.
//!
//! The program starts whatever happens here.

use crate::exit::ExitStatus;
use crate::session::Session;
use crate::{helper, output};
use headstart_sys::exec;
use headstart_sys::helper::{Side, split};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the program waits for a helper that is stuck, beyond the time that it may be held
/// back. The helper itself lets it go sooner: when the first pages were requested, and the trace
/// is armed.
const HELPER_LIMIT: Duration = Duration::from_secs(1);
/// The same where the user asked for a recording.
const RECORDING_LIMIT: Duration = Duration::from_secs(30);

/// Forks a helper, which tells what became of the start through `told`, and becomes the
/// program. Returns only when that fails. Only while there is a single thread.
pub fn become_program(session: Session, told: Option<OwnedFd>) -> ExitStatus {
    let limit = if session.must_learn { RECORDING_LIMIT } else { HELPER_LIMIT };
    let limit = limit.saturating_add(session.max_delay);
    let failure = match split() {
        Ok(Side::Program(program)) => {
            program.wait(limit);
            program.exec(&session.command)
        }
        Ok(Side::Helper(helper)) => helper::help(helper, session, told),
        Err(error) => {
            let why = "Can't start a helper process";
            output::message(format_args!("{why}: {error}; the program starts without help"));
            exec::exec(&session.command)
        }
    };
    let name = session.command.first().map(|name| output::shown(name.as_ref())).unwrap_or_default();
    output::message(format_args!("Can't run {name}: {failure}"));
    ExitStatus::Program(exec::status_of_failure(&failure))
}
