//! Records a start: begins in time or not at all, and removes the trace instance afterwards.
//!
//! It holds no state of the process, so several recordings may go on at once. [`super::learn`]
//! makes a pack of a recording.

use super::LaunchError;
use crate::host::proc;
use crate::pack::Pack;
use crate::trace::capture::{BufferSize, Recorder, Scope};
use crate::trace::exact::Processes;
use crate::trace::file::Capture;
use crate::trace::instance::Instance;
use crate::trace::tracefs::Tracefs;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The size of the trace buffers for a program with this pack.
pub fn buffer_of(pack: Option<&Pack>) -> BufferSize {
    match pack.map_or(0, |pack| pack.origin.buffer_kb) {
        0 => BufferSize::Default,
        needed => BufferSize::From(needed),
    }
}

/// A recorder, or why there is none.
#[derive(Debug)]
pub enum Recording {
    /// It records.
    Recorder(Recorder),
    /// It was not armed in time. The thread ends when its instance is removed.
    Late(JoinHandle<()>),
}

/// Starts a recorder for a process that waits, or for the whole machine, unless
/// that takes longer than `patience`.
pub fn start_recording(
    scope: Scope,
    buffer: BufferSize,
    watch: bool,
    patience: Duration,
) -> Result<Recording, LaunchError> {
    // Without a buffer, so that a late recorder is not received but returned.
    let (sender, receiver) = sync_channel(0);
    let start = move || {
        if let Err(unwanted) = sender.send(start_recording_now(scope, buffer, watch)) {
            let _ = unwanted.0.map(give_up);
        }
    };
    let thread =
        thread::Builder::new().name("record".into()).spawn(start).map_err(LaunchError::Thread)?;
    match receiver.recv_timeout(patience) {
        Ok(recording) => recording.map(Recording::Recorder),
        Err(RecvTimeoutError::Timeout) => Ok(Recording::Late(thread)),
        Err(RecvTimeoutError::Disconnected) => Err(LaunchError::RecorderDied),
    }
}

/// Starts a recorder on the calling thread, as [`Scope::Descendants`] needs it.
pub fn start_recording_now(
    scope: Scope,
    buffer: BufferSize,
    watch: bool,
) -> Result<Recorder, LaunchError> {
    let tracefs = Tracefs::locate()?;
    Ok(Recorder::start(&tracefs, scope, buffer, watch)?)
}

/// Ends a recording without a result.
pub fn give_up(recorder: Recorder) {
    // After a failure the instance is removed already.
    if let Ok((_, instance)) = recorder.finish() {
        remove(instance);
    }
}

/// Removes an instance that is not needed any more.
pub fn remove(instance: Instance) {
    // In another namespace a background process may end with it, so dropping the instance waits
    // for the removal.
    if proc::in_first_pid_namespace() {
        instance.remove_in_background();
    }
}

/// How much of a start a recording has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Coverage {
    /// All, until the program ended or read nothing any more.
    Whole,
    /// The program went on reading after the recording.
    CutOff,
    /// It is not known whether it did.
    #[default]
    Partial,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    /// What was recorded.
    pub capture: Capture,
    /// How many processes were recorded exactly, if requested.
    pub followed: Option<Processes>,
}

impl Recorded {
    /// Ends a recording. The caller removes the instance. `followed` returns how many processes
    /// were recorded exactly; it is called after the end of the recording.
    pub fn end(
        recorder: Recorder,
        followed: impl FnOnce() -> Option<Processes>,
    ) -> Result<(Self, Instance), LaunchError> {
        let (capture, instance) = recorder.finish()?;
        Ok((Self { capture, followed: followed() }, instance))
    }
}
