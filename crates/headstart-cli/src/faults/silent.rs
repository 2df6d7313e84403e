//! Recorded files whose file server does not answer.

use crate::output;
use crate::servers;
use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use headstart_faults::recording::Recording;
use std::collections::HashSet;

/// File systems of recorded files whose server does not answer, which is said.
pub fn of(recording: &Recording) -> HashSet<Dev> {
    let Ok(mounts) = MountTable::read() else { return HashSet::new() };
    let waited = recording.waits.iter().flat_map(|waits| &waits.files);
    let waited = waited.filter_map(|file| Some(file.id?.dev));
    let mapped = recording.mappings.iter().map(|mapping| mapping.file.dev);
    let all: HashSet<Dev> = waited.chain(mapped).collect();
    let silent = servers::silent(&mounts, all.iter().flat_map(|dev| mounts.servers_of(*dev)));
    if silent.is_empty() {
        return silent;
    }
    output::message("A file server does not answer: its files have no names or sections here");
    let waits = |dev: &Dev| mounts.servers_of(*dev).iter().any(|server| silent.contains(server));
    all.into_iter().filter(waits).collect()
}
