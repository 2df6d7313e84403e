//! The numbers of our threads as the kernel itself counts, which traces have and a PID
//! namespace hides. The driver.
//!
//! No call tells them from inside: each thread writes a mark into a trace instance that
//! is ours alone, and looks whom the kernel says it is from.

use super::instance::Instance;
use super::tracefs::Tracefs;
use crate::host::proc::in_first_pid_namespace;
use std::sync::{Arc, OnceLock};
use std::thread;

/// Room for the marks of more threads than a replay has, for each CPU in KiB.
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

/// None where nothing can be traced: then nobody needs the numbers either.
fn make() -> Option<Instance> {
    Instance::create(&Tracefs::locate().ok()?, Some(BUFFER_KB)).ok()
}
