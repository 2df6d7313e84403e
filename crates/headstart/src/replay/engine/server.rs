//! Knows whether the server of an engine's files answers, and says it to other processes when it
//! does not. Stops nothing: threads that wait for a server can't be stopped.

use super::progress::Progress;
use crate::host::id::Dev;
use crate::pack::store::silent::ServerCall;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may not answer before others do not ask it any more, and how often it is
/// looked at.
const SILENT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// The server of the files of an engine.
#[derive(Debug)]
pub(super) struct Server {
    /// Lives as long as a thread of the engine does.
    call: Weak<ServerCall>,
}

impl Server {
    /// The nearest of these, and what the engine's threads keep until they have all come back.
    pub(super) fn new(servers: &[Dev]) -> (Self, Arc<ServerCall>) {
        let call = Arc::new(ServerCall::to(servers));
        (Self { call: Arc::downgrade(&call) }, call)
    }

    /// Marks the server as one that does not answer, if a thread still waits for it.
    pub(super) fn mark(&self) {
        self.call.upgrade().iter().for_each(|call| {
            call.mark();
        });
    }

    /// Marks it when nothing has come of it for [`SILENT`]; looks until the threads have ended.
    pub(super) fn watch(&self, progress: &Arc<Progress>) {
        let (call, progress) = (self.call.clone(), progress.clone());
        let look = move || {
            let (mut last, mut since) = (progress.activity(), Instant::now());
            loop {
                thread::sleep(LOOK);
                let Some(call) = call.upgrade() else { return };
                let activity = progress.activity();
                if activity != last {
                    (last, since) = (activity, Instant::now());
                }
                if since.elapsed() >= SILENT && call.mark() {
                    return;
                }
            }
        };
        // Without this thread it is marked at the end of the replay only.
        let _ = thread::Builder::new().name("server".into()).spawn(look);
    }
}
