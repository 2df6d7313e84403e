//! What the exports of waits have in common: names, and how busy a device is.

use crate::recording::Recording;
use crate::waits::{Request, Wait, Waits};
use headstart::host::id::Dev;
use headstart::host::names;
use std::collections::BTreeMap;

/// The file that was waited for; empty where that is not known.
pub fn file_of(recording: &Recording, waits: &Waits, wait: &Wait) -> String {
    let Some(file) = wait.file.and_then(|file| waits.files.get(file as usize)) else {
        return String::new();
    };
    match (file.name, file.id) {
        (Some(name), _) => names::name(recording.name(name)),
        (None, Some(id)) => format!("[inode {} of {}]", id.ino, id.dev),
        (None, None) => String::new(),
    }
}

/// How many requests each device has in flight, whenever that changes: time and number, by time.
/// Requests whose end is not known stay in flight.
pub fn in_flight(requests: &[Request]) -> BTreeMap<Dev, Vec<(u64, u64)>> {
    let mut changes: BTreeMap<Dev, BTreeMap<u64, i64>> = BTreeMap::new();
    for request in requests {
        let device = changes.entry(request.device).or_default();
        *device.entry(request.issue).or_default() += 1;
        if let Some(complete) = request.complete {
            *device.entry(complete.max(request.issue)).or_default() -= 1;
        }
    }
    let counts = |changes: BTreeMap<u64, i64>| {
        let mut now = 0;
        let count = |(time, change)| {
            now += change;
            // None ends before it begins.
            (time, u64::try_from(now).unwrap_or(0))
        };
        changes.into_iter().map(count).collect()
    };
    changes.into_iter().map(|(device, changes)| (device, counts(changes))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_recordings::request;
    use super::*;

    #[test]
    fn requests_are_in_flight_from_issue_to_completion() {
        let (disk, other) = (Dev::new(8, 0), Dev::new(8, 16));
        let requests = [
            request(disk, 10, Some(30)),
            request(disk, 20, Some(30)),
            request(other, 25, None),
            // A broken record.
            request(disk, 40, Some(5)),
        ];
        let found = in_flight(&requests);
        assert_eq!(found[&disk], [(10, 1), (20, 2), (30, 0), (40, 0)]);
        assert_eq!(found[&other], [(25, 1)]);
    }
}
