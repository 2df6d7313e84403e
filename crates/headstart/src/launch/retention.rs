//! Bounds the store of packs: a full store forgets the packs of least benefit. `surplus` is pure,
//! the others remove files.

use super::learned_packs::{LearnedPack, learned_packs};
use crate::host::json_path::JsonPath;
use crate::outcome::last_run::file as last_run;
use crate::pack::share::forget_shared;
use crate::pack::store::{self, Locked, StoreError, packs_in};
use crate::pack::{key, subcommand};
use crate::replay::models::Models;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Packs of programs that a user has at most.
pub const MOST_PACKS: usize = 1000;
/// Their bytes at most, with the files next to them.
pub const MOST_BYTES: u64 = 256 << 20;
/// Packs that the jobs of one program have at most.
pub const MOST_JOBS: usize = 32;
/// A full store is emptied to this part, in percent: it is full again a while later.
const EMPTIED_TO: u64 = 90;
/// The age from which on the benefit of a pack counts less, in seconds.
const YOUNG: u64 = 24 * 60 * 60;
/// What a device that was not measured reads in a second, in bytes.
const USUAL_BYTES_PER_SECOND: u64 = 100 << 20;

/// Forgets a pack: the file, its record, and the shared copy.
///
/// # Errors
/// It is missing, is no pack, or can't be removed.
pub fn forget(path: &Path) -> Result<(), StoreError> {
    forget_locked(&store::lock_existing(path)?, path)
}

fn forget_locked(locked: &Locked, path: &Path) -> Result<(), StoreError> {
    locked.remove_pack(path)?;
    // The record is useless without its pack.
    let failed = |source| StoreError::Write { path: path.into(), source };
    last_run::remove(locked, path).map_err(failed)?;
    forget_shared(path, rustix::process::geteuid().as_raw()).map_err(failed)
}

/// Forgets the packs of least benefit in the directory of `newest` if it is full, but not `newest`.
/// Returns how many packs were.
///
/// # Errors
/// A pack can't be removed.
pub fn bound(newest: &Path, uid: u32) -> Result<usize, StoreError> {
    let dir = newest.parent().unwrap_or(Path::new("."));
    // Usually the store is not full, and nothing is read.
    if !may_be_full(&packs_in(dir, uid)?, newest) {
        return Ok(0);
    }
    let packs = learned_packs(&[dir.into()], &Models::here(), uid)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let packs: Vec<_> = packs.iter().filter(|pack| JsonPath::from(newest) != pack.path).collect();
    let all: Vec<_> = packs.iter().map(|pack| Stored::of(pack, now)).collect();
    let surplus = surplus(&all, bytes_of(newest));
    if surplus.is_empty() {
        return Ok(0);
    }
    let locked = store::lock_trusted(newest)?;
    for &number in &surplus {
        forget_locked(&locked, &packs[number].path.to_path())?;
    }
    Ok(surplus.len())
}

fn may_be_full(files: &[PathBuf], newest: &Path) -> bool {
    let program = program_of(newest);
    let jobs = files.iter().filter(|path| program_of(path) == program).count();
    let bytes = || files.iter().map(|path| bytes_of(path)).sum::<u64>();
    files.len() > MOST_PACKS || jobs > MOST_JOBS + 1 || bytes() > MOST_BYTES
}

/// Bytes of a pack and of the record next to it.
fn bytes_of(pack: &Path) -> u64 {
    let bytes = |path: &Path| path.symlink_metadata().map_or(0, |meta| meta.len());
    bytes(pack).saturating_add(bytes(&last_run::path_of(pack)))
}

/// The file name of the pack of its program.
fn program_of(pack: &Path) -> String {
    subcommand::of_program(&pack.file_name().unwrap_or_default().to_string_lossy())
}

/// What decides whether a pack is forgotten.
#[derive(Clone, Debug)]
struct Stored {
    bytes: u64,
    /// What a cold start gains, in µs.
    gain_us: u64,
    /// Since it was last used, in seconds.
    age: u64,
    /// Whether it is of inline code, which seldom runs again.
    of_code: bool,
    /// The file name of the program's pack, if this is a pack of a subcommand.
    job_of: Option<String>,
}

impl Stored {
    fn of(pack: &LearnedPack, now: u64) -> Self {
        let path = pack.path.to_path();
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let program = program_of(&path);
        let unmeasured = pack.data_bytes.saturating_mul(1_000_000) / USUAL_BYTES_PER_SECOND;
        Self {
            bytes: bytes_of(&path),
            gain_us: pack.expected.map_or(unmeasured, |expected| expected.gain_us().1),
            age: now.saturating_sub(pack.used_at),
            of_code: key::program_of(&file_name).is_some_and(|name| name.ends_with("-code")),
            job_of: Some(program).filter(|program| *program != file_name),
        }
    }

    /// The sort key; the smallest is forgotten first: inline code by its age, others by gain per
    /// age.
    fn benefit(&self) -> (bool, u64) {
        if self.of_code {
            return (false, u64::MAX - self.age);
        }
        // A gain of less than a millisecond counts, too.
        (true, self.gain_us.saturating_mul(1000) / (self.age + YOUNG))
    }
}

/// The indices of the packs to forget, if one more pack of `kept` bytes stays.
fn surplus(packs: &[Stored], kept: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..packs.len()).collect();
    order.sort_by_key(|&number| packs[number].benefit());
    let mut jobs: HashMap<&str, usize> = HashMap::new();
    for program in packs.iter().filter_map(|pack| pack.job_of.as_deref()) {
        *jobs.entry(program).or_default() += 1;
    }
    let mut count = packs.len();
    let mut bytes = packs.iter().fold(kept, |sum, pack| sum.saturating_add(pack.bytes));
    let is_full = count > MOST_PACKS || bytes > MOST_BYTES;
    let most_packs = if is_full { MOST_PACKS * EMPTIED_TO as usize / 100 } else { MOST_PACKS };
    let most_bytes = if is_full { MOST_BYTES * EMPTIED_TO / 100 } else { MOST_BYTES };
    order.retain(|&number| {
        let pack = &packs[number];
        let jobs = pack.job_of.as_deref().and_then(|program| jobs.get_mut(program));
        let is_surplus = count > most_packs
            || bytes > most_bytes
            || jobs.as_ref().is_some_and(|jobs| **jobs > MOST_JOBS);
        if is_surplus {
            count -= 1;
            bytes -= pack.bytes;
            jobs.into_iter().for_each(|jobs| *jobs -= 1);
        }
        is_surplus
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{Origin, Pack};
    use tempfile::TempDir;

    fn stored(gain_us: u64, age: u64) -> Stored {
        Stored { bytes: 1, gain_us, age, of_code: false, job_of: None }
    }

    #[test]
    fn a_full_store_forgets_inline_code_first_and_then_by_gain_and_age() {
        let code = |age| Stored { of_code: true, ..stored(u64::MAX, age) };
        let mut packs = vec![
            stored(1000, 0),
            stored(2000, YOUNG),
            stored(900, 0),
            code(5),
            stored(3000, 9 * YOUNG),
            code(7),
        ];
        packs[0].bytes = MOST_BYTES * 9 / 10 - 3;
        for (more, expected) in [(0, &[][..]), (MOST_BYTES / 10, &[5, 3, 4])] {
            let mut packs = packs.clone();
            packs[4].bytes += more;
            assert_eq!(surplus(&packs, 0), expected, "{more}");
        }
        // The newest stays, so all else that is large goes.
        for (newest, expected) in [(0, &[][..]), (MOST_BYTES / 10, &[5, 3, 4, 2, 0])] {
            assert_eq!(surplus(&packs, newest), expected, "{newest}");
        }
        packs[0].bytes = MOST_BYTES + 1;
        // Equal ones as they come.
        assert_eq!(surplus(&packs, 0), [5, 3, 4, 2, 0]);
    }

    #[test]
    fn a_store_of_too_many_packs_is_emptied_to_nine_tenths() {
        for (count, expected) in [(MOST_PACKS, 0), (MOST_PACKS + 1, MOST_PACKS / 10 + 1)] {
            let packs: Vec<_> = (0..count as u64).map(|gain| stored(gain, 0)).collect();
            let found = surplus(&packs, 0);
            assert_eq!(found, (0..expected).collect::<Vec<_>>(), "{count}");
        }
    }

    #[test]
    fn the_jobs_of_one_program_have_so_many_packs_and_others_stay() {
        let job = |of: &str, gain| Stored { job_of: Some(of.into()), ..stored(gain, 0) };
        let mut packs: Vec<_> = (0..=MOST_JOBS as u64).map(|gain| job("git", 9 + gain)).collect();
        packs.extend([job("cargo", 1), stored(1, 0)]);
        assert_eq!(surplus(&packs, 0), [0]);
        packs.remove(0);
        assert!(surplus(&packs, 0).is_empty());
    }

    fn write(dir: &TempDir, name: &str) -> std::path::PathBuf {
        let path = dir.path().join(name);
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let pack = Pack { origin, ..Pack::default() };
        store::lock(&path).unwrap().write(&pack).unwrap();
        path
    }

    #[test]
    fn a_new_pack_stays_and_one_that_is_surplus_goes_with_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let name = |job: usize| format!("git-0123456789abcdef+{job:016x}.pack");
        let packs: Vec<_> = (0..=MOST_JOBS).map(|job| write(&dir, &name(job))).collect();
        let program = write(&dir, "git-0123456789abcdef.pack");
        let shared = crate::pack::share::path_of(&packs[0]);
        std::fs::create_dir(shared.parent().unwrap()).unwrap();
        for beside in [&shared, &last_run::path_of(&packs[0])] {
            std::fs::write(beside, "").unwrap();
        }
        let newest = packs.last().unwrap();
        assert_eq!(bound(newest, uid).unwrap(), 0, "the new one counts not");
        let newest = write(&dir, &name(MOST_JOBS + 1));
        assert_eq!(bound(&newest, uid).unwrap(), 1);
        let left = packs_in(dir.path(), uid).unwrap();
        assert_eq!(left.len(), MOST_JOBS + 2);
        assert!(left.contains(&newest) && left.contains(&program) && !left.contains(&packs[0]));
        assert!(!shared.exists() && !last_run::path_of(&packs[0]).exists());
    }

    #[test]
    fn the_record_next_to_a_pack_counts_and_goes_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [big, small, newest] =
            ["big.pack", "small.pack", "newest.pack"].map(|n| write(&dir, n));
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(bound(&newest, uid).unwrap(), 0);
        let record = last_run::path_of(&big);
        std::fs::write(&record, r#"{"schema":"headstart/last-run/3"}"#).unwrap();
        let record = std::fs::File::options().write(true).open(record).unwrap();
        record.set_len(MOST_BYTES).unwrap();
        assert_eq!(bound(&newest, uid).unwrap(), 1);
        assert!(!big.exists() && !last_run::path_of(&big).exists(), "nothing gains less");
        assert!(small.exists() && newest.exists());
    }

    #[test]
    fn only_a_pack_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let pack = write(&dir, "a.pack");
        let text = dir.path().join("notes.pack");
        std::fs::write(&text, "mine").unwrap();
        assert!(matches!(forget(&text), Err(StoreError::NotAPack(_))));
        assert!(text.exists());
        forget(&pack).unwrap();
        assert!(matches!(forget(&pack), Err(StoreError::Missing(_))));
        let absent = dir.path().join("no/where/a.pack");
        assert!(matches!(forget(&absent), Err(StoreError::Missing(_))));
        assert!(!absent.parent().unwrap().exists());
    }
}
