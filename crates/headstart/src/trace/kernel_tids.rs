//! The numbers of our threads in the initial PID namespace, which traces have. The driver.
//!
//! No system call reports them inside a PID namespace: each thread writes a mark into a private
//! trace instance, and reads whom the kernel names as its writer.

use super::instance::Instance;
use super::tracefs::Tracefs;
use crate::host::proc::in_first_pid_namespace;
use std::sync::{Arc, OnceLock};
use std::thread;

/// The buffer of each CPU, in KiB: room for the marks of more threads than a replay has.
const BUFFER_KB: u32 = 64;

/// Tells threads their numbers; by default those that this PID namespace shows.
#[derive(Clone, Debug, Default)]
pub struct KernelTids(Option<Arc<OnceLock<Option<Instance>>>>);

impl KernelTids {
    /// For the threads of this process, of which only one such may be in use at a time.
    /// Outside the first PID namespace a trace instance is made, beside the caller, and
    /// removed at the end.
    pub fn here() -> Self {
        if in_first_pid_namespace() {
            return Self::default();
        }
        let instance = Arc::new(OnceLock::new());
        let ours = instance.clone();
        // Without a thread the first that asks makes it.
        let _ = thread::Builder::new().name("tids".into()).spawn(move || {
            ours.get_or_init(make);
        });
        Self(Some(instance))
    }

    /// The number of the calling thread; `None` when it can't be known here.
    pub fn own(&self) -> Option<i32> {
        match &self.0 {
            None => Some(rustix::thread::gettid().as_raw_nonzero().get()),
            Some(instance) => instance.get_or_init(make).as_ref()?.own_tid().ok(),
        }
    }
}

/// None if nothing can be traced, since the numbers are not needed then.
fn make() -> Option<Instance> {
    Instance::create(&Tracefs::locate().ok()?, Some(BUFFER_KB)).ok()
}
