//! The record's file, beside the pack. The driver: it reads and writes.
//!
//! It is written after the pack and without waiting for the disk: one that a power
//! cut damaged is refused like any other. The next start writes another, unless something else is
//! in its place.

use super::{LastRun, ParseError};
use crate::host::names;
use crate::pack::Pack;
use crate::pack::store::{self, Locked, StoreError};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A record that can't be shown.
#[derive(Debug, Error)]
pub enum LastRunError {
    /// There is none.
    #[error("Nothing is recorded of the last start of {}; it is when the next one is learned", names::path(.0))]
    Missing(PathBuf),
    /// It can't be read, or not be trusted.
    #[error(transparent)]
    Store(StoreError),
    /// Its content is no good.
    #[error("{path} is not used; remove it, and the next learned start writes another", path = names::path(.path))]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The pack has changed since.
    #[error(
        "{} is of an earlier state of the pack, so it is not used; the next learned start \
         replaces it"
    , names::path(.0))]
    Stale(PathBuf),
}

/// How every record begins.
const BEGIN: &[u8] = b"{\"schema\":\"headstart/last-run/";

/// The name of the record of a pack.
pub fn path_of(pack: &Path) -> PathBuf {
    let mut name = OsString::from(pack.as_os_str());
    name.push(".last");
    name.into()
}

/// Reads the record of the pack at `path` if the user `uid` can trust it.
///
/// # Errors
/// There is none, or it is of no use.
pub fn read(path: &Path, pack: &Pack, uid: u32) -> Result<LastRun, LastRunError> {
    let file = path_of(path);
    let bytes = store::read_bytes(&file, uid).map_err(|error| match error {
        StoreError::Missing(_) => LastRunError::Missing(path.into()),
        other => LastRunError::Store(other),
    })?;
    let run = match LastRun::parse(&bytes) {
        Ok(run) => run,
        Err(source) => return Err(LastRunError::Content { path: file, source }),
    };
    let origin = &pack.origin;
    if (run.starts, run.learned_at) != (origin.starts, origin.learned_at) {
        return Err(LastRunError::Stale(file));
    }
    Ok(run)
}

/// Writes the record beside a pack that was just written and is still locked.
///
/// # Errors
/// Something else than a record is there, or what the file system said.
pub fn write(locked: &Locked, run: &LastRun) -> io::Result<()> {
    locked.write_beside_lazily(&path_of(locked.path()), &serde_json::to_vec(run)?, BEGIN)
}

/// Removes the record of a pack of a directory that is locked. What is no record stays.
///
/// # Errors
/// What the file system said.
pub fn remove(locked: &Locked, pack: &Path) -> io::Result<()> {
    locked.remove_beside(&path_of(pack), BEGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::last_run::SCHEMA;
    use crate::pack::Origin;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_belongs_to_one_state_of_its_pack_and_is_trusted_as_packs_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let uid = rustix::process::getuid().as_raw();
        let mut pack = Pack {
            origin: Origin { page_shift: 12, starts: 3, ..Origin::default() },
            ..Pack::default()
        };
        let run = LastRun { schema: SCHEMA.into(), starts: 3, ..LastRun::default() };
        let refusal = |pack: &Pack| {
            let error = read(&path, pack, uid).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error}: {}", source.unwrap_or_default())
        };
        assert!(refusal(&pack).contains("Nothing is recorded"));
        let locked = store::lock(&path).unwrap();
        locked.write(&pack).unwrap();
        write(&locked, &run).unwrap();
        assert_eq!(read(&path, &pack, uid).unwrap(), run);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "the pack, the record, the lock");
        pack.origin.starts = 4;
        assert!(refusal(&pack).contains("an earlier state of the pack"));
        let file = path_of(&path);
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert!(refusal(&pack).contains("may be written by others"));
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        fs::write(&file, "{}").unwrap();
        assert!(refusal(&pack).contains("no such document"));
    }

    #[test]
    fn a_record_replaces_nothing_but_a_record_or_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let file = path_of(&path);
        let run = LastRun { schema: SCHEMA.into(), ..LastRun::default() };
        let whole = serde_json::to_string(&run).unwrap();
        let locked = store::lock(&path).unwrap();
        for (before, is_replaced) in [
            ("", true),
            (&whole[..], true),
            (&whole[..40], true),
            (r#"{"schema":"headstart/last-run/1"}"#, true),
            ("{}", false),
            ("notes of mine, which are longer than how a record begins", false),
        ] {
            fs::write(&file, before).unwrap();
            assert_eq!(write(&locked, &run).is_ok(), is_replaced, "{before}");
            let expected = if is_replaced { &whole } else { before };
            assert_eq!(fs::read_to_string(&file).unwrap(), expected);
            fs::write(&file, before).unwrap();
            remove(&locked, &path).unwrap();
            assert_eq!(file.exists(), !is_replaced, "{before}");
        }
        fs::remove_file(&file).unwrap();
        let target = dir.path().join("notes");
        std::os::unix::fs::symlink(&target, &file).unwrap();
        assert!(write(&locked, &run).is_err(), "a link");
        remove(&locked, &path).unwrap();
        assert!(file.symlink_metadata().is_ok() && !target.exists());
    }
}
