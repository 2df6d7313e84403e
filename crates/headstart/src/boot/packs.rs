//! The packs of a machine's boots: one of each phase for each file system, learned here or
//! brought by the image. The driver.

use super::machine::Machine;
use super::mounted::Mounted;
use super::pack_name::{file_name, key, parse};
use super::split::{is_empty, share};
use crate::host::error::causes;
use crate::pack::store::StoreError;
use crate::pack::{FileSystem, Pack};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A file that is named like a pack of a boot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackFile {
    /// The phase.
    pub phase: String,
    /// The key of the file system.
    pub key: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it was learned here, and did not come with the image.
    pub is_own: bool,
}

impl PackFile {
    /// Its file system, and the part for that file system; other parts are skipped.
    ///
    /// # Errors
    /// It can't be used.
    pub fn read(&self, machine: &Machine) -> Result<(FileSystem, Pack), StoreError> {
        let pack = machine.read_pack(&self.path)?;
        // A kill may come between the last write and the removal of one that is used up.
        if is_empty(&pack) {
            return Err(StoreError::Missing(self.path.clone()));
        }
        share(pack, |fs| key(fs) == self.key).ok_or_else(|| StoreError::Untrusted {
            path: self.path.clone(),
            why: "it has nothing of the file system in its name; remove it".into(),
        })
    }
}

/// A pack that can be used.
#[derive(Clone, Debug)]
pub struct KnownPack {
    /// Its file.
    pub file: PackFile,
    /// The file system that it is of.
    pub of: FileSystem,
    /// Whether that is mounted.
    pub is_mounted: bool,
    /// What is in it.
    pub pack: Pack,
}

/// The packs of these phases, those that were learned here before those of the image. What
/// can't be used is among the `problems`.
pub fn known(
    machine: &Machine,
    phases: &[&str],
    mounted: &mut Mounted,
    problems: &mut Vec<String>,
) -> Vec<KnownPack> {
    let mut out = Vec::new();
    for file in machine.packs() {
        if !phases.contains(&file.phase.as_str()) {
            continue;
        }
        match file.read(machine) {
            Ok((of, pack)) => {
                out.push(KnownPack { is_mounted: mounted.has(&of), file, of, pack });
            }
            Err(StoreError::Missing(_)) => {}
            Err(error) => problems.push(causes(&error)),
        }
    }
    out
}

impl Machine {
    /// The pack of a phase and a file system, where it is learned.
    pub fn pack(&self, phase: &str, of: &FileSystem) -> PathBuf {
        self.state().join(file_name(phase, of))
    }

    /// All packs of boots, those that were learned here first. What has another name is
    /// none.
    pub fn packs(&self) -> Vec<PackFile> {
        [self.packs_in(&self.state(), true), self.packs_in(&self.shipped(), false)].concat()
    }

    /// In the order of their names.
    fn packs_in(&self, dir: &Path, is_own: bool) -> Vec<PackFile> {
        let pack = |name: OsString| {
            let (phase, key) = parse(name.to_str()?)?;
            Some(PackFile { phase: phase.into(), key: key.into(), path: dir.join(&name), is_own })
        };
        let mut out: Vec<PackFile> = self.names(dir).into_iter().filter_map(pack).collect();
        out.sort_by(|a, b| a.path.cmp(&b.path));
        out
    }
}

/// The number of packs of unmounted file systems that are kept for each phase: of the other root of
/// an A/B machine, or of removable disks. Others are learned again when they are needed.
const MOST_AWAY: usize = 8;

/// The packs to forget among those of one phase whose file systems are `away`: all but the last
/// learned ones. Each comes with its time.
pub(super) fn forgotten<T>(mut away: Vec<(u64, T)>) -> Vec<T> {
    away.sort_by_key(|(learned_at, _)| std::cmp::Reverse(*learned_at));
    away.into_iter().skip(MOST_AWAY).map(|(_, pack)| pack).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::test_packs::{here, pack_of_a_file_on};
    use crate::pack::store;
    use std::fs;

    fn fs(tag: u8) -> FileSystem {
        FileSystem { uuid: Some([tag; 16]), kind: "ext4".into(), ..Default::default() }
    }

    #[test]
    fn packs_are_found_by_their_names_those_learned_here_first_and_other_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        assert_eq!(machine.packs(), []);
        let shipped = machine.shipped().join(file_name("mounts", &fs(1)));
        let own = [machine.pack("mounts", &fs(2)), machine.pack("system", &fs(1))];
        for path in own.iter().chain([
            &shipped,
            &machine.state().join("mounts.pack"),
            &machine.state().join("history/000001.json"),
        ]) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = machine.packs();
        let paths: Vec<_> = found.iter().map(|file| (&file.path, file.is_own)).collect();
        assert_eq!(paths, [(&own[0], true), (&own[1], true), (&shipped, false)]);
        assert_eq!((found[1].phase.as_str(), &found[1].key), ("system", &key(&fs(1))));
    }

    #[test]
    fn a_pack_under_the_name_of_another_file_system_is_refused_in_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        let here = here("proc");
        for (name, of) in [(&here, &here), (&fs(2), &fs(2)), (&fs(3), &fs(1))] {
            let path = machine.pack("mounts", name);
            store::lock(&path).unwrap().write(&pack_of_a_file_on(of)).unwrap();
        }
        let (mut mounted, mut problems) = (Mounted::default(), Vec::new());
        mounted.look().unwrap();
        let found = known(&machine, &["mounts"], &mut mounted, &mut problems);
        let of: Vec<_> = found.iter().map(|known| (&known.of, known.is_mounted)).collect();
        assert_eq!(of, [(&fs(2), false), (&here, true)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("it has nothing of the file system in its name"));
        assert!(known(&machine, &["system"], &mut mounted, &mut problems).is_empty());
        // An empty one counts as none.
        let used_up = machine.pack("system", &here);
        let nothing = Pack { ranges: Vec::new(), files: Vec::new(), ..pack_of_a_file_on(&here) };
        store::lock(&used_up).unwrap().write(&nothing).unwrap();
        assert!(known(&machine, &["system"], &mut mounted, &mut problems).is_empty());
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    #[test]
    fn of_file_systems_that_are_away_the_packs_that_were_learned_last_are_kept() {
        let away = |count: u64| (0..count).map(|n| (n * 7 % 11, n * 7 % 11)).collect();
        for (count, expected) in [(0, vec![]), (8, vec![]), (9, vec![0]), (11, vec![2, 1, 0])] {
            assert_eq!(forgotten(away(count)), expected, "{count}");
        }
    }
}
