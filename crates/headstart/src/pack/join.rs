//! Joins a start into its pack file: reads it under a lock, merges, and replaces it atomically. The
//! driver of [`super::merge`].

use super::Pack;
use super::merge::{Rule, accepts, merge};
use super::store::{self, Locked, StoreError};

/// A pack file after a start was joined.
#[derive(Debug)]
pub struct Joined {
    /// The pack in the file.
    pub pack: Pack,
    /// Bytes of the file, if it was written: a lossy start does not replace a clean
    /// pack.
    pub written: Option<u64>,
    /// Why the previous file was invalid and was replaced, if so.
    pub replaced: Option<StoreError>,
    /// The lock.
    pub locked: Locked,
}

/// Joins `new` into the pack file that the user `uid` has locked. A missing file is created, from
/// `known`, which comes from another place, if given. `finish` gets the previous pack, and returns
/// what may change the result: the previous pack is dropped before that is made.
///
/// # Errors
/// The file may not be used, or can't be written.
pub fn join<F: FnOnce(&mut Pack)>(
    locked: Locked,
    uid: u32,
    new: Pack,
    known: Option<Pack>,
    rule: Rule,
    finish: impl FnOnce(Option<&Pack>) -> F,
) -> Result<Joined, StoreError> {
    let path = locked.path();
    // Another start may have been learned since this one began.
    let (old, replaced) = match store::read(path, uid) {
        Ok(old) => {
            drop(known);
            (Some(old), None)
        }
        // A pack of the image is the base of the pack that is learned here.
        Err(StoreError::Missing(_)) => (known, None),
        Err(error @ StoreError::Content { .. }) => (None, Some(error)),
        Err(error) => return Err(error),
    };
    // Page numbers of another page size have another meaning.
    let old = old.filter(|old| old.origin.page_shift == new.origin.page_shift);
    if let Some(old) = old.as_ref().filter(|old| !accepts(old, new.origin.lost_events)) {
        let mut pack = old.clone();
        // The next start gets a larger buffer.
        if new.origin.buffer_kb > pack.origin.buffer_kb {
            pack.origin.buffer_kb = new.origin.buffer_kb;
            locked.write(&pack)?;
        }
        return Ok(Joined { pack, written: None, replaced, locked });
    }
    let finish = finish(old.as_ref());
    let mut pack = match old {
        Some(old) => merge(old, new, rule),
        None => new,
    };
    finish(&mut pack);
    let written = Some(locked.write(&pack)?);
    Ok(Joined { pack, written, replaced, locked })
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    #[test]
    fn a_start_that_lost_events_leaves_nothing_but_the_buffer_it_lacked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        let uid = rustix::process::geteuid().as_raw();
        let start = |lost_events, buffer_kb| Pack {
            origin: Origin {
                page_shift: 12,
                starts: 1,
                lost_events,
                buffer_kb,
                ..Origin::default()
            },
            ..Pack::default()
        };
        let rule = Rule::NextStart { keep: 4, metadata_seen: true, keep_time_us: 0 };
        for (name, new, written, starts, kb) in [
            ("the first", start(0, 1000), true, 1, 1000),
            ("one that lost events", start(5, 2000), false, 1, 2000),
            ("with a smaller buffer", start(5, 500), false, 1, 2000),
            ("a whole one", start(0, 1000), true, 2, 1000),
        ] {
            let joined =
                join(store::lock(&path).unwrap(), uid, new, None, rule, |_| |_: &mut _| ())
                    .unwrap();
            assert_eq!(joined.written.is_some(), written, "{name}");
            let pack = store::read(&path, uid).unwrap();
            let origin = &pack.origin;
            assert_eq!((origin.starts, origin.buffer_kb, origin.lost_events), (starts, kb, 0));
        }
    }
}
