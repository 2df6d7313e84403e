//! Lets all processes go: without a breakpoint, and without a signal that one has sent.

use super::{Followed, signal_set};
use headstart::host::proc::start_time;
use headstart_sys::ptrace::{self, Stop};
use std::io;

impl Followed<'_> {
    /// Takes all breakpoints away, and has all threads stop, so that they can be let go.
    pub(super) fn release(&mut self) {
        self.is_releasing = true;
        // Bytes can be replaced while a process runs, so this needs no stop. What a thread has
        // hit before is dealt with when it tells.
        let processes: Vec<i32> = self.processes.keys().copied().collect();
        for process in processes {
            self.look_at(process);
            self.clear(process);
        }
        self.threads.retain(|tid, _| {
            // The first thread of a process may have ended before the others.
            ptrace::interrupt(*tid).is_ok() || start_time(*tid).is_some()
        });
    }

    /// Takes all breakpoints of a process away.
    pub(super) fn clear(&mut self, process: i32) {
        let Some(owner) = self.processes.get(&process) else { return };
        for module in &owner.modules {
            let Some(code) = self.recorder.code(module.file) else { continue };
            if let Err(error) = owner.memory.clear(module, code) {
                self.recorder.unwritable(module.file, &error);
            }
        }
    }

    /// A thread has stopped for another reason than a signal: it is let go, unless a breakpoint
    /// has sent it a signal that it did not get yet.
    pub(super) fn stopped_for_release(&mut self, tid: i32, stop: Stop) -> io::Result<()> {
        if matches!(stop, Stop::Group(_)) && signal_set(tid, "SigPnd", ptrace::TRAP) {
            let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
            let address = ptrace::before_pointer(tid)?;
            if self.find(process, address).is_some() {
                return ptrace::run_on(tid, 0);
            }
        }
        self.go_on(tid, 0)
    }
}
