//! Finds paths of files that were waited for and of which only the inode is known.

use crate::recording::Recording;
use headstart::host::id::Dev;
use headstart::host::mounts::{MountTable, MountsError};
use headstart::profile::resolve::{ResolveOptions, resolve};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// No longer is looked for them.
const LIMIT: Duration = Duration::from_secs(2);

/// Adds the names of such files to a recording; how many have none. None is looked for on a file system
/// that is `silent`: that would wait for its server.
///
/// # Errors
/// The mounts can't be read.
pub fn find(recording: &mut Recording, silent: &HashSet<Dev>) -> Result<u64, MountsError> {
    let Some(waits) = &mut recording.waits else { return Ok(0) };
    let used: HashSet<u32> = waits.waits.iter().filter_map(|wait| wait.file).collect();
    let is_used = |at: usize| u32::try_from(at).is_ok_and(|at| used.contains(&at));
    let unnamed: Vec<_> = waits
        .files
        .iter()
        .enumerate()
        .filter(|(at, file)| file.name.is_none() && is_used(*at))
        .filter_map(|(at, file)| Some((file.id?, at)))
        .collect();
    if unnamed.is_empty() {
        return Ok(0);
    }
    let mounts = MountTable::read()?;
    let deadline = Some(Instant::now() + LIMIT);
    let options = ResolveOptions { deadline, ..ResolveOptions::new(&mounts) };
    let ids = unnamed.iter().map(|(id, _)| *id).filter(|id| !silent.contains(&id.dev));
    let ids: Vec<_> = ids.collect();
    let found: HashMap<_, _> = resolve(&ids, &options).files.into_iter().collect();
    let mut missing = 0;
    for (id, at) in unnamed {
        let (Some(file), Some(entry)) = (found.get(&id), waits.files.get_mut(at)) else {
            missing += 1;
            continue;
        };
        entry.name = Some(recording.names.len() as u32);
        recording.names.push(file.path.as_os_str().as_bytes().to_vec());
    }
    Ok(missing)
}
