//! Puts the big files of pinned programs into large folios while the machine is idle: their hot starts
//! then have fewer page faults (`doc/replay.md`, "Large folios"). What a process has mapped stays as it is.

use super::machine::Machine;
use super::shared::Shared;
use crate::programs::Id;
use headstart::host::error::causes;
use headstart::pack::store;
use headstart::replay::folios::refill::refill;
use headstart_sys::ioprio::{IoPriority, set_for_thread};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it is checked whether the machine is idle.
const LOOK: Duration = Duration::from_secs(5);
/// A program is checked again after this time: its pages may have been reclaimed and read again.
const AGAIN: Duration = Duration::from_secs(60 * 60);

/// Starts the thread.
///
/// # Errors
/// There is no thread.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let folios = Folios { shared, machine: Machine::default(), done: HashMap::new() };
    thread::Builder::new().name("folios".into()).spawn(move || folios.run())
}

struct Folios {
    shared: Arc<Shared>,
    machine: Machine,
    /// When programs were looked at, and after how many learned starts.
    done: HashMap<Id, (u64, Instant)>,
}

impl Folios {
    fn run(mut self) {
        // Otherwise it takes the disk from others for a while.
        let _ = set_for_thread(IoPriority::Idle);
        loop {
            self.shared.sleep(LOOK);
            if self.shared.stops() {
                return;
            }
            self.look();
        }
    }

    /// Refills one program, if the machine is idle.
    fn look(&mut self) {
        let Some((id, learned)) = self.due() else { return };
        if self.shared.paused_s().is_some() || !Machine::is_idle(self.shared.config.idle_load) {
            return;
        }
        let budget = self.machine.now().may_read();
        let Ok(pack) = store::read(&self.shared.pack_of(&id), 0) else { return };
        match refill(&pack, budget) {
            Ok(refilled) => self.shared.count(|counters| counters.large_folios += refilled.made),
            Err(error) => {
                (self.shared.tell)(&format!(
                    "no large folios for {}: {}",
                    id.file_name,
                    causes(&error)
                ));
            }
        }
        self.done.insert(id, (learned, Instant::now()));
    }

    /// A pinned program whose pack is new, or that was not looked at for long.
    fn due(&mut self) -> Option<(Id, u64)> {
        let state = self.shared.state();
        let done = &mut self.done;
        done.retain(|id, _| state.table.get(id).is_some_and(|program| program.pinned));
        let is_due = |id: &Id, learned: u64| match done.get(id) {
            Some((before, at)) => *before != learned || at.elapsed() >= AGAIN,
            None => true,
        };
        let pinned =
            state.table.iter().filter(|(_, program)| program.pinned && program.learned > 0);
        let mut pinned = pinned.map(|(id, program)| (id, program.learned));
        pinned.find(|(id, learned)| is_due(id, *learned)).map(|(id, learned)| (id.clone(), learned))
    }
}
