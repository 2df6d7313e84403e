//! This process becomes the program: same process ID, parent, descriptors and signals. A helper
//! process prefetches and learns.
//!
//! The program starts whatever happens here.

use crate::exit::ExitStatus;
use crate::start_options::StartOptions;
use crate::{helper, output};
use headstart_sys::exec;
use headstart_sys::helper::split;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long the program waits for a helper that is stuck, beyond the longest delay of
/// its exec. The helper lets it go sooner: when the first pages were requested, and the trace
/// is armed.
const HELPER_LIMIT: Duration = Duration::from_secs(1);
/// The same where the user requested a recording.
const RECORDING_LIMIT: Duration = Duration::from_secs(30);

/// Forks a helper, which reports on the start through `report`, and becomes the
/// program. Returns only when that fails. Only while there is a single thread.
pub fn become_program(options: StartOptions, report: Option<OwnedFd>) -> ExitStatus {
    let limit = if options.must_learn { RECORDING_LIMIT } else { HELPER_LIMIT };
    let limit = limit.saturating_add(options.max_delay);
    let help = |helper| helper::help(helper, options.clone(), report);
    let failure = match split(help) {
        Ok(program) => {
            program.wait(limit);
            program.exec(&options.command)
        }
        Err(error) => {
            let why = "Can't start a helper process";
            output::message(format_args!("{why}: {error}; the program starts without help"));
            exec::exec(&options.command)
        }
    };
    ExitStatus::Program(say_why_not(&options.command, &failure))
}

/// Says that a command could not be executed. Returns the status that a shell ends with then.
pub fn say_why_not(command: &[OsString], failure: &io::Error) -> u8 {
    let name = command.first().map(|name| output::shown(name.as_ref())).unwrap_or_default();
    output::message(format_args!("Can't run {name}: {failure}"));
    exec::status_of_failure(failure)
}
