//! Looks at the files of packs after an upgrade, and takes the packs over to those that
//! replaced them. The driver of [`super::renew`].

use super::renew::{Now, Renewal, renew};
use super::store::{self, StoreError};
use super::{FileSystem, Identity};
use crate::host::error::causes;
use crate::host::fsid;
use crate::host::identity::identity_of;
use crate::host::mounts::{MountTable, MountsError};
use crate::host::open::stat_learned;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What was done to packs.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What became of their files.
    pub renewal: Renewal,
    /// Packs that were written.
    pub packs: u64,
    /// Files that were not looked at because the time was up.
    pub not_looked_at: u64,
    /// Packs that could not be used or written.
    pub problems: Vec<String>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    File(Identity),
    /// Something else, or nobody knows.
    Else,
}

/// Looks at files, at each of them once.
struct Files {
    mounts: MountTable,
    uuids: HashMap<u32, Option<[u8; 16]>>,
    found: HashMap<PathBuf, Found>,
    until: Instant,
    not_looked_at: u64,
}

/// Takes these packs of the user `uid` over to the files that are there now. What is not
/// looked at within `limit` stays as it is.
///
/// # Errors
/// The mounts can't be read.
pub fn follow(packs: Vec<PathBuf>, uid: u32, limit: Duration) -> Result<Outcome, MountsError> {
    // Package managers also fill new root directories, where `/proc` may be missing.
    if packs.is_empty() {
        return Ok(Outcome::default());
    }
    let mut files = Files {
        mounts: MountTable::read()?,
        uuids: HashMap::new(),
        found: HashMap::new(),
        until: Instant::now() + limit,
        not_looked_at: 0,
    };
    let mut out = Outcome::default();
    for path in packs {
        match follow_one(&path, uid, &mut files) {
            Ok(renewal) => {
                out.renewal.followed += renewal.followed;
                out.renewal.stale += renewal.stale;
                out.renewal.gone += renewal.gone;
                out.packs += u64::from(renewal.changes());
            }
            Err(StoreError::Missing(_)) => {}
            Err(error) => out.problems.push(causes(&error)),
        }
    }
    out.not_looked_at = files.not_looked_at;
    Ok(out)
}

fn follow_one(path: &Path, uid: u32, files: &mut Files) -> Result<Renewal, StoreError> {
    // Without the lock, for it may take a while, and learners wait for that.
    let (_, renewal) = renew(&store::read(path, uid)?, |path, on, was| files.now(path, on, was));
    if !renewal.changes() {
        return Ok(renewal);
    }
    let locked = store::lock_until(path, files.until)?;
    let (renewed, renewal) =
        renew(&store::read(path, uid)?, |path, on, was| files.now(path, on, was));
    locked.write(&renewed)?;
    Ok(renewal)
}

impl Files {
    fn now(&mut self, path: &Path, on: &FileSystem, was: &Identity) -> Now {
        // Below a mount that is missing or another one now there are other files; and a
        // look at one of a server that is away, or that mounts something, takes its time.
        if !self.is_on(path, on) {
            return Now::Same;
        }
        let not_looked_at = &mut self.not_looked_at;
        let is_over = || Instant::now() >= self.until;
        let found = *self.found.entry(path.to_owned()).or_insert_with(|| match is_over() {
            true => {
                *not_looked_at += 1;
                Found::Else
            }
            false => look(path),
        });
        match found {
            Found::File(is) if is != *was => Now::Other(is),
            Found::Nothing => Now::Gone,
            Found::File(_) | Found::Else => Now::Same,
        }
    }

    /// Whether a path is on this file system, which has to have a UUID.
    fn is_on(&mut self, path: &Path, on: &FileSystem) -> bool {
        if on.uuid.is_none() {
            return false;
        }
        let Some(mount) = self.mounts.at(path) else { return false };
        let uuid = self.uuids.entry(mount.id);
        let uuid = uuid.or_insert_with(|| fsid::uuid(mount).ok().flatten().map(|uuid| uuid.0));
        *uuid == on.uuid
    }
}

fn look(path: &Path) -> Found {
    match stat_learned(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => {
            Found::File(identity_of(&stat))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Found::Nothing,
        Ok(_) | Err(_) => Found::Else,
    }
}
