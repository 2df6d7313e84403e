//! Paths and configuration of boots, and whether headstart is switched off in this one.
//!
//! The driver of history and configuration ([`super::packs`] has the packs). All paths may be below
//! another root directory, for images and tests.

use super::history::{self, BootRecord};
use super::phases::{ConfigError, Phase, built_in, with_config};
use super::timeline::Timeline;
use crate::host::contents;
use crate::host::error::causes;
use crate::host::names;
use crate::outcome::last_run::ParseError;
use crate::pack::Pack;
use crate::pack::store::below::Below;
use crate::pack::store::{self, StoreError};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A configuration, record or other file of ours that can't be used.
#[derive(Debug, Error)]
pub enum MachineError {
    /// It can't be read.
    #[error("Can't read {path}", path = names::path(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It says something that is not understood.
    #[error("{path}, {source}", path = names::path(.path))]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The timeline of a boot is invalid.
    #[error("{path} is not used; each further boot has one of its own", path = names::path(.path))]
    Timeline {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ParseError,
    },
    /// It can't be written.
    #[error("Can't write {path}", path = names::path(.path))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Its directory can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The places of one machine.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
}

/// Says that something is not wanted in this boot, and by what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unwanted(pub &'static str);

/// Where packs and history are kept.
pub(super) const STATE: &str = "/var/lib/headstart/boot";

/// Where units may be, the stronger first (systemd.unit(5), "UNIT FILE LOAD PATH").
pub(crate) const UNIT_DIRS: [&str; 9] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator",
    "/run/systemd/generator.late",
];

/// What switches headstart off on the kernel's command line.
pub const OFF: &str = "headstart=off";

impl Machine {
    /// The machine whose root directory this is.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A place on it, given as it is seen from there.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// What is on it: links that are followed don't lead out of it.
    pub(crate) fn below(&self) -> io::Result<Below> {
        Below::open(&self.place("/"))
    }

    /// A place, as it is seen from the machine.
    fn inside<'a>(&self, place: &'a Path) -> &'a Path {
        place.strip_prefix(&self.root).unwrap_or(place)
    }

    /// All of the file at a place, as the machine sees it.
    ///
    /// # Errors
    /// It is missing, or can't be read.
    pub(super) fn bytes(&self, place: &Path) -> io::Result<Vec<u8>> {
        self.below()?.bytes(self.inside(place))
    }

    /// The names in the directory at a place, as the machine sees it; none where there is none.
    pub fn names(&self, place: &Path) -> Vec<OsString> {
        self.below().map(|below| below.names(self.inside(place))).unwrap_or_default()
    }

    /// Whether the machine sees anything at a place.
    pub fn has(&self, place: &Path) -> bool {
        self.below().is_ok_and(|below| below.exists(self.inside(place)))
    }

    /// Reads a pack at a place, if root of the machine can trust it.
    ///
    /// # Errors
    /// It is missing, can't be read, or is not trusted.
    pub fn read_pack(&self, place: &Path) -> Result<Pack, StoreError> {
        let failed = |source| StoreError::Read { path: place.into(), source };
        self.below().map_err(failed)?.pack(self.inside(place), place, 0)
    }

    /// Where packs and history are kept.
    pub fn state(&self) -> PathBuf {
        self.place(STATE)
    }

    /// Where packs are that came with an image.
    pub fn shipped(&self) -> PathBuf {
        self.place("/usr/lib/headstart/boot")
    }

    /// What lasts until the machine is switched off.
    pub fn run(&self) -> PathBuf {
        self.place("/run/headstart")
    }

    /// The configuration.
    pub fn config(&self) -> PathBuf {
        self.place("/etc/headstart/boot.conf")
    }

    /// The phases of its boots.
    ///
    /// # Errors
    /// The configuration is there and can't be used.
    pub fn phases(&self) -> Result<Vec<Phase>, MachineError> {
        let path = self.config();
        match self.below().and_then(|below| below.text(self.inside(&path))) {
            Ok(text) => with_config(&text).map_err(|source| MachineError::Config { path, source }),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(built_in()),
            Err(source) => Err(MachineError::Read { path, source }),
        }
    }

    /// Whether neither recording nor prefetching is wanted in this boot.
    pub fn is_off(&self) -> Option<Unwanted> {
        let command_line = contents::bytes(self.place("/proc/cmdline")).unwrap_or_default();
        has_word(&command_line, OFF)
            .then_some(Unwanted("headstart=off on the kernel's command line"))
    }

    /// Whether nothing is to be prefetched in this boot.
    pub fn keeps_from_replay(&self) -> Option<Unwanted> {
        let is_unwanted = self.run().join("noreplay").exists();
        self.is_off().or(is_unwanted.then_some(Unwanted("/run/headstart/noreplay is there")))
    }

    /// Whether a replay under way is to end.
    pub fn is_cancelled(&self) -> bool {
        self.run().join("cancel").exists()
    }

    /// Notes that a phase of this boot is over.
    ///
    /// # Errors
    /// It can't be written.
    pub fn mark_over(&self, phase: &str) -> Result<(), MachineError> {
        let path = self.over(phase);
        let write = || {
            fs::create_dir_all(self.run().join("over"))?;
            fs::write(&path, "")
        };
        write().map_err(|source| MachineError::Write { path: path.clone(), source })
    }

    /// Whether a phase of this boot is known to be over.
    pub fn is_over(&self, phase: &str) -> bool {
        self.over(phase).exists()
    }

    fn over(&self, phase: &str) -> PathBuf {
        self.run().join("over").join(phase)
    }

    /// The places on which something is to be mounted yet, as units say, before packs can
    /// be looked for. Generators have made these units before any of them starts.
    pub fn mounts_of_state(&self) -> Vec<PathBuf> {
        let above = |dir: &Path| dir.ancestors().map(Path::to_path_buf).collect::<Vec<_>>();
        let is_to_be_mounted = |dir: &PathBuf| {
            let name = dir.to_string_lossy().trim_matches('/').replace('/', "-");
            let unit = format!("{name}.mount");
            // The strongest counts, and one that is masked mounts nothing.
            let mut paths = UNIT_DIRS.iter().map(|at| self.place(at).join(&unit));
            let found = paths.find(|path| path.symlink_metadata().is_ok());
            let is_masked = |path: &PathBuf| {
                fs::read_link(path).is_ok_and(|link| link == Path::new("/dev/null"))
            };
            found.is_some_and(|path| !is_masked(&path))
        };
        above(Path::new(STATE)).into_iter().filter(is_to_be_mounted).collect()
    }

    /// The boots that are kept, the last one first, without records that can't be read.
    pub fn records(&self) -> Vec<BootRecord> {
        self.boots().into_iter().map(|(_, record)| record).collect()
    }

    /// The same, each with its number.
    pub fn boots(&self) -> Vec<(u64, BootRecord)> {
        let dir = self.history();
        let mut numbers = self.numbers(&dir);
        numbers.sort_unstable();
        let read = |number: &u64| -> Option<(u64, BootRecord)> {
            let bytes = self.bytes(&dir.join(history::file_name(*number))).ok()?;
            Some((*number, history::parse(&bytes)?))
        };
        numbers.iter().rev().filter_map(read).collect()
    }

    /// What is kept of a boot over time; `None` when nothing is.
    ///
    /// # Errors
    /// It is of no use.
    pub fn timeline(&self, number: u64) -> Result<Option<Timeline>, MachineError> {
        let path = self.history().join(history::timeline_name(number));
        let uid = rustix::process::geteuid().as_raw();
        let read = |below: Below| below.trusted(self.inside(&path), &path, uid);
        let failed = |source| StoreError::Read { path: path.clone(), source };
        let bytes = match self.below().map_err(failed).and_then(read) {
            Ok(bytes) => bytes,
            Err(StoreError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = Timeline::parse(&bytes);
        read.map(Some).map_err(|source| MachineError::Timeline { path, source })
    }

    /// Keeps the record of a boot and what there is of it over time, and no more than
    /// the last eight boots. A timeline that can't be written is one of the record's
    /// problems.
    ///
    /// # Errors
    /// The record can't be written.
    pub fn keep(
        &self,
        record: &mut BootRecord,
        timeline: Option<&Timeline>,
    ) -> Result<(), MachineError> {
        let dir = self.history();
        let locked = store::lock(&dir.join("record"))?;
        let (next, gone) = history::rotate(self.numbers(&dir));
        // First: a record refers to it.
        if let Some(timeline) = timeline {
            let path = dir.join(history::timeline_name(next));
            let write = || locked.write_beside(&path, &serde_json::to_vec(timeline)?);
            if let Err(source) = write() {
                record.problems.push(causes(&MachineError::Write { path, source }));
            }
        }
        let path = dir.join(history::file_name(next));
        let write = || -> io::Result<()> {
            locked.write_beside(&path, &serde_json::to_vec_pretty(record)?)?;
            for number in gone {
                // It may have none. One that stays is of no boot that is shown.
                let _ = fs::remove_file(dir.join(history::timeline_name(number)));
                // A record that stays once more is gone after the next boot.
                fs::remove_file(dir.join(history::file_name(number)))?;
            }
            Ok(())
        };
        write().map_err(|source| MachineError::Write { path: path.clone(), source })
    }

    fn history(&self) -> PathBuf {
        self.state().join("history")
    }

    fn numbers(&self, dir: &Path) -> Vec<u64> {
        self.names(dir).iter().filter_map(|name| history::number(name.to_str()?)).collect()
    }
}

/// Whether a command line has this word.
fn has_word(command_line: &[u8], word: &str) -> bool {
    command_line.split(u8::is_ascii_whitespace).any(|w| w == word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        for (path, text) in files {
            let path = machine.place(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (dir, machine)
    }

    #[test]
    fn a_boot_is_ignored_when_its_command_line_or_a_file_says_so() {
        for (files, off, no_replay) in [
            (vec![("/proc/cmdline", "quiet headstart=off")], true, true),
            (vec![("/proc/cmdline", "headstart=offline noheadstart=off\n")], false, false),
            (vec![("/run/headstart/noreplay", "")], false, true),
            (vec![], false, false),
        ] {
            let (_dir, machine) = machine(&files);
            assert_eq!(machine.is_off().is_some(), off, "{files:?}");
            assert_eq!(machine.keeps_from_replay().is_some(), no_replay, "{files:?}");
        }
    }

    #[test]
    fn a_phase_is_over_when_it_was_noted() {
        let (_dir, machine) = machine(&[]);
        machine.mark_over("mounts").unwrap();
        assert!(machine.is_over("mounts") && !machine.is_over("system"));
    }

    #[test]
    fn packs_may_be_on_a_file_system_that_units_are_to_mount() {
        for (unit, expected) in [
            ("/run/systemd/generator/var.mount", Some("/var")),
            ("/etc/systemd/system/var-lib.mount", Some("/var/lib")),
            ("/run/systemd/generator/home.mount", None),
            // It is mounted before anything of ours can be.
            ("/run/systemd/generator/-.mount", None),
        ] {
            let (_dir, machine) = machine(&[(unit, "")]);
            let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(machine.mounts_of_state(), expected, "{unit}");
        }
    }

    #[test]
    fn the_last_eight_boots_are_kept_and_broken_records_do_no_harm() {
        let (_dir, machine) = machine(&[
            ("/var/lib/headstart/boot/history/000004.json", "{"),
            ("/var/lib/headstart/boot/history/000005.json", "{\"schema\":\"other/9\"}"),
        ]);
        for boot in 0..9u64 {
            let mut record = BootRecord {
                schema: history::SCHEMA.into(),
                recorded_at: boot,
                ..BootRecord::default()
            };
            let timeline = Timeline {
                schema: crate::boot::timeline::SCHEMA.into(),
                recorded_from_us: boot,
                ..Timeline::default()
            };
            machine.keep(&mut record, (boot != 6).then_some(&timeline)).unwrap();
        }
        let kept: Vec<u64> = machine.records().iter().map(|r| r.recorded_at).collect();
        assert_eq!(kept, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(machine.numbers(&machine.history()).len(), 8);
        let boots = machine.boots();
        assert_eq!(
            boots.iter().map(|(n, _)| *n).collect::<Vec<_>>(),
            [14, 13, 12, 11, 10, 9, 8, 7]
        );
        for (number, record) in boots {
            let kept = machine.timeline(number).unwrap();
            let expected = (record.recorded_at != 6).then_some(record.recorded_at);
            assert_eq!(kept.map(|t| t.recorded_from_us), expected, "{number}");
        }
        let files = fs::read_dir(machine.history()).unwrap().flatten();
        let names = files.map(|f| f.file_name().into_string().unwrap());
        assert_eq!(names.filter(|name| name.contains("timeline")).count(), 7, "none stays alone");
    }

    #[test]
    fn a_timeline_that_can_not_be_written_is_reported_and_the_record_is_kept() {
        let (_dir, machine) =
            machine(&[("/var/lib/headstart/boot/history/000001.timeline.json/x", "")]);
        let mut record = BootRecord { schema: history::SCHEMA.into(), ..BootRecord::default() };
        machine.keep(&mut record, Some(&Timeline::default())).unwrap();
        let kept = &machine.records()[0];
        assert!(kept.problems[0].contains("000001.timeline.json"), "{kept:?}");
        let error = machine.timeline(1).unwrap_err().to_string();
        assert!(error.contains("regular file"), "{error}");
    }

    #[test]
    fn the_configuration_adds_phases_and_a_broken_one_names_its_line() {
        let (_dir, machine) =
            machine(&[("/etc/headstart/boot.conf", "phase web until nginx.service\n")]);
        assert_eq!(machine.phases().unwrap().len(), 5);
        fs::write(machine.config(), "web").unwrap();
        let error = machine.phases().unwrap_err().to_string();
        assert!(error.contains("boot.conf, line 1: this is no phase"), "{error}");
        fs::remove_file(machine.config()).unwrap();
        assert_eq!(machine.phases().unwrap(), built_in());
    }
}
