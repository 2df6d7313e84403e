//! Keeps the state in a file, and says each week what was gained. The file is replaced as a whole.

use super::shared::{Shared, now_s};
use crate::state::{State, decode, encode};
use headstart::pack::store::{StoreError, TrustedDirectory};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The name of the file.
const FILE: &str = "state.json";
/// How often it is written, if it changes.
const INTERVAL: Duration = Duration::from_secs(60);
/// Only root sees who uses which programs.
const MODE: u32 = 0o700;

/// The state in a directory; and what is wrong with it, where there is one that can't be used.
pub(super) fn read(dir: &Path) -> (State, Option<String>) {
    let uid = rustix::process::geteuid().as_raw();
    let read = || -> Result<Option<Vec<u8>>, StoreError> {
        let Some(dir) = TrustedDirectory::open(dir, uid)? else { return Ok(None) };
        dir.read(OsStr::new(FILE)).map(Some)
    };
    let broken = |why: &dyn std::fmt::Display| {
        let path = dir.join(FILE);
        let path = headstart::host::names::path(&path);
        (State::default(), Some(format!("{path} is not used, and what it knew is lost: {why}")))
    };
    match read() {
        Ok(None) | Err(StoreError::Missing(_)) => Default::default(),
        Ok(Some(bytes)) => match decode(&bytes) {
            Ok(state) => (state, None),
            Err(error) => broken(&error),
        },
        Err(error) => broken(&headstart::host::error::causes(&error)),
    }
}

/// Keeps the state as it is in the end, when no thread changes it any more.
pub(super) fn keep_last(shared: &Shared) {
    if let Err(error) = write(&shared.places.state, &encode(&shared.state())) {
        not_written(shared, &error);
    }
}

fn not_written(shared: &Shared, error: &io::Error) {
    let path = shared.places.state.join(FILE);
    let path = headstart::host::names::path(&path);
    (shared.tell)(&format!("{path} is not written, and stays as it was until it can be: {error}"));
}

/// Keeps the state until the service ends.
///
/// # Errors
/// There is no thread.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("keep".into()).spawn(move || keep(&shared))
}

fn keep(shared: &Shared) {
    let mut written = Vec::new();
    let mut failed = false;
    loop {
        shared.sleep(INTERVAL);
        if shared.stops() {
            return;
        }
        let line = shared.state().week.end(now_s());
        line.iter().for_each(|line| (shared.tell)(line));
        let bytes = encode(&shared.state());
        if bytes != written {
            match write(&shared.places.state, &bytes) {
                Ok(()) => (written, failed) = (bytes, false),
                // Once: a full disk stays full for a while.
                Err(error) if !failed => {
                    failed = true;
                    not_written(shared, &error);
                }
                Err(_) => {}
            }
        }
    }
}

fn write(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let dir = TrustedDirectory::open_or_create(dir, uid, MODE).map_err(io::Error::other)?;
    // The directory is closed for others.
    dir.write_for_all(OsStr::new(FILE), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{Id, Program};

    #[test]
    fn a_state_is_kept_and_a_damaged_one_is_one_sentence_and_a_fresh_begin() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("daemon");
        assert_eq!(read(&place), (State::default(), None));
        let id = Id { uid: 0, file_name: "a.pack".into() };
        let program = Program { cold_starts: 1, ..Program::default() };
        let state = State { table: [(id, program)].into_iter().collect(), ..State::default() };
        write(&place, &encode(&state)).unwrap();
        assert_eq!(read(&place), (state, None));
        write(&place, b"{").unwrap();
        let (state, why) = read(&place);
        let why = why.unwrap();
        assert_eq!(state, State::default());
        assert!(why.contains("state.json is not used") && why.lines().count() == 1, "{why}");
    }
}
