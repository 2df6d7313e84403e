//! Recording a start: begun in time, or not at all, and removed from the kernel afterwards.
//!
//! Holds no state of the process: several may be under way. What is recorded becomes a pack
//! in [`super::learn`].

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

/// How large the trace buffers are to be for a start of a program whose pack this is.
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
    /// It was not there in time. The thread ends when it has been cleared
    /// away.
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
    // Without a buffer: it is received, or it comes back.
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

/// Ends a recording that nobody wants.
pub fn give_up(recorder: Recorder) {
    // After a failure it has gone by itself.
    if let Ok((_, instance)) = recorder.finish() {
        remove(instance);
    }
}

/// Removes an instance that has served its purpose.
pub fn remove(instance: Instance) {
    // Elsewhere a background process may end with its namespace, so dropping
    // the instance waits for the removal.
    if proc::in_first_pid_namespace() {
        instance.remove_in_background();
    }
}

/// Removes the trace instances that killed headstarts left behind. It takes the kernel a while,
/// so it is done beside the program.
pub fn remove_orphans() {
    // Where there is no tracefs, or none for us, there is nothing to remove.
    if let Ok(Some(tracefs)) = Tracefs::mounted() {
        tracefs.remove_orphans();
    }
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    /// What was recorded.
    pub capture: Capture,
    /// Of how many processes pages showed by themselves, if that was wanted.
    pub followed: Option<Processes>,
}

impl Recorded {
    /// Ends a recording; the instance is to be removed. `followed` tells of how many processes
    /// pages showed by themselves, when nothing more is recorded.
    pub fn end(
        recorder: Recorder,
        followed: impl FnOnce() -> Option<Processes>,
    ) -> Result<(Self, Instance), LaunchError> {
        let (capture, instance) = recorder.finish()?;
        Ok((Self { capture, followed: followed() }, instance))
    }
}
