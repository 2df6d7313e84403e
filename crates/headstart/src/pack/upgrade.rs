//! Renews packs after an upgrade: compares their files with those at the same paths now. The driver
//! of [`super::renew`].

use super::renew::{Now, Renewal, renew};
use super::store::{self, StoreError};
use super::{FileSystem, Identity, Pack};
use crate::host::error::causes;
use crate::host::fsid;
use crate::host::identity::identity_of;
use crate::host::mounts::{MountTable, MountsError};
use crate::host::open::stat_learned;
use rustix::fs::FileType;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The result for some packs.
#[derive(Debug, Default)]
pub struct RenewalReport {
    /// The results for their files.
    pub renewal: Renewal,
    /// Packs that were written.
    pub packs: u64,
    /// Files that were not looked at because the time was up.
    pub not_looked_at: u64,
    /// Packs that were not looked at for the same reason.
    pub packs_not_looked_at: u64,
    /// Files that were not looked at because their file system has no UUID, so that it may be
    /// another one.
    pub without_uuid: u64,
    /// Packs that could not be used or written.
    pub problems: Vec<String>,
}

/// Packs that are written together: a learner waits so long for the lock.
const TOGETHER: usize = 64;

/// What is at a path.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    File(Identity),
    /// Something else, or it is unknown.
    Else,
}

/// Looks at files, at each of them once.
struct Files {
    /// Whether the first pack was looked at, which is done in any case.
    looked: bool,
    mounts: MountTable,
    uuids: HashMap<u32, Option<[u8; 16]>>,
    found: HashMap<PathBuf, Found>,
    until: Instant,
    not_looked_at: u64,
    without_uuid: HashSet<PathBuf>,
}

/// Renews these packs of the user `uid` for the files that are at their paths now. What is not
/// looked at within `limit` stays as it is.
///
/// # Errors
/// The mounts can't be read.
pub fn renew_packs(
    packs: Vec<PathBuf>,
    uid: u32,
    limit: Duration,
) -> Result<RenewalReport, MountsError> {
    // Package managers also fill new root directories, where `/proc` may be missing.
    if packs.is_empty() {
        return Ok(RenewalReport::default());
    }
    let mut files = Files {
        looked: false,
        mounts: MountTable::read()?,
        uuids: HashMap::new(),
        found: HashMap::new(),
        until: Instant::now() + limit,
        not_looked_at: 0,
        without_uuid: HashSet::new(),
    };
    let mut out = RenewalReport::default();
    let of_one_directory = |a: &PathBuf, b: &PathBuf| a.parent() == b.parent();
    for packs in packs.chunk_by(of_one_directory).flat_map(|packs| packs.chunks(TOGETHER)) {
        // Without the lock, for it may take a while, and learners wait for that.
        let changed: Vec<_> =
            packs.iter().filter(|path| files.change(path, uid, &mut out)).collect();
        if let Some(first) = changed.first()
            && let Err(error) = write(first, &changed, uid, &mut files, &mut out)
        {
            out.problems.push(causes(&error));
        }
    }
    out.not_looked_at = files.not_looked_at;
    out.without_uuid = files.without_uuid.len() as u64;
    Ok(out)
}

/// Renews packs of one directory, of which `first` is one.
fn write(
    first: &Path,
    packs: &[&PathBuf],
    uid: u32,
    files: &mut Files,
    out: &mut RenewalReport,
) -> Result<(), StoreError> {
    let locked = store::lock_until(first, files.until)?;
    let mut renewed = Vec::new();
    let mut all = Renewal::default();
    for path in packs {
        match files.renewed(path, uid) {
            Ok((pack, renewal)) => {
                all.add(renewal);
                renewed.push((path.as_path(), pack));
            }
            Err(StoreError::Missing(_)) => {}
            Err(error) => out.problems.push(causes(&error)),
        }
    }
    locked.write_all(&renewed)?;
    out.renewal.add(all);
    out.packs += renewed.len() as u64;
    Ok(())
}

impl Files {
    /// Whether there is something to renew in a pack.
    fn change(&mut self, path: &Path, uid: u32, out: &mut RenewalReport) -> bool {
        if self.looked && self.is_over() {
            out.packs_not_looked_at += 1;
            return false;
        }
        self.looked = true;
        match self.renewed(path, uid) {
            Ok((_, renewal)) => {
                if !renewal.changes() {
                    out.renewal.add(renewal);
                }
                renewal.changes()
            }
            Err(StoreError::Missing(_)) => false,
            Err(error) => {
                out.problems.push(causes(&error));
                false
            }
        }
    }

    /// A pack as it is now, renewed.
    fn renewed(&mut self, path: &Path, uid: u32) -> Result<(Pack, Renewal), StoreError> {
        Ok(renew(&store::read(path, uid)?, |path, on, was| self.now(path, on, was)))
    }

    fn now(&mut self, path: &Path, on: &FileSystem, was: &Identity) -> Now {
        // Below a mount that is missing or another one now there are other files; and a
        // look at one of a server that is away, or that mounts something, takes its time.
        if on.uuid.is_none() {
            self.without_uuid.insert(path.to_owned());
            return Now::Same;
        }
        if !self.is_on(path, on) {
            return Now::Same;
        }
        let is_over = self.is_over();
        let not_looked_at = &mut self.not_looked_at;
        let found = *self.found.entry(path.to_owned()).or_insert_with(|| match is_over {
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

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether a path is on this file system, which has a UUID.
    fn is_on(&mut self, path: &Path, on: &FileSystem) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::paths::{NodeId, PathTable};
    use crate::pack::{File, Origin, Pack};

    /// A pack of one file, on a file system with this UUID.
    fn pack(dir: &Path, uuid: Option<[u8; 16]>) -> PathBuf {
        let mut paths = PathTable::default();
        let node = paths.push(NodeId::ROOT, b"file").unwrap();
        let origin = Origin { page_shift: 12, ..Origin::default() };
        let pack = Pack {
            origin,
            paths,
            file_systems: vec![FileSystem { uuid, ..FileSystem::default() }],
            files: vec![File { node, ..File::default() }],
            ..Pack::default()
        };
        let path = dir.join(format!("{}.pack", uuid.is_some()));
        store::lock(&path).unwrap().write(&pack).unwrap();
        path
    }

    #[test]
    fn what_is_not_looked_at_is_counted_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let packs = [Some([7; 16]), None].map(|uuid| pack(dir.path(), uuid)).to_vec();
        let out = renew_packs(packs.clone(), uid, Duration::from_secs(60)).unwrap();
        assert_eq!((out.without_uuid, out.packs_not_looked_at), (1, 0), "{:?}", out.problems);
        let out = renew_packs(packs, uid, Duration::ZERO).unwrap();
        assert_eq!((out.without_uuid, out.packs_not_looked_at), (0, 1), "{:?}", out.problems);
    }
}
