//! What the rules are applied to: the recording, what is learned of the program, and the machine.
//! Values only; the command reads them.

use crate::observed::Observed;
use headstart::outcome::last_run::LastRun;
use headstart::pack::Pack;
use headstart::replay::benefit::Expected;
use headstart::replay::model::Model;
use headstart_faults::tables::{Row, Sum};
use headstart_faults::waits::Kind;
use headstart_faults::waits::sums::Sums;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// All that is known.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// The command; empty for a process that was running.
    pub command: Vec<OsString>,
    /// How long the start took, in ns.
    pub wall_ns: u64,
    /// All its faults.
    pub total: Row,
    /// Where they were.
    pub observed: Observed,
    /// What the first thread waited for files, if waits were recorded.
    pub waits: Option<FileWaits>,
    /// What is known of the files with faults.
    pub files: HashMap<PathBuf, FileFacts>,
    /// What is learned of the program.
    pub learned: Option<Learned>,
    /// The device that most of its files are on, if it was measured.
    pub model: Option<Model>,
    /// The machine.
    pub host: Host,
}

/// Waits for files: faults, reads and look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileWaits {
    /// How many, and how long.
    pub sum: Sum,
    /// What disks read meanwhile, in bytes.
    pub read_bytes: u64,
}

impl FileWaits {
    /// The kinds.
    pub const KINDS: [Kind; 6] =
        [Kind::Fault, Kind::Read, Kind::Open, Kind::Lookup, Kind::Directory, Kind::Execute];

    /// Those in the sums of a recording.
    pub fn of(sums: &Sums) -> Self {
        let mut found = Self::default();
        for sum in Self::KINDS.iter().filter_map(|kind| sums.main.waits.get(kind)) {
            found.sum.count += sum.count;
            found.sum.time_ns = found.sum.time_ns.saturating_add(sum.time_ns);
        }
        let bytes = sums.devices.iter().map(|(_, device)| device.read_bytes);
        found.read_bytes = bytes.fold(0, u64::saturating_add);
        found
    }
}

/// A file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FileFacts {
    /// Bytes of it.
    pub size: u64,
    /// The type of its file system.
    pub file_system: String,
    /// The kernel's readahead window there, in bytes, and the file in sysfs that sets it.
    pub readahead: Option<(u64, String)>,
    /// The device, if it was measured.
    pub model: Option<Model>,
    /// Its relocations, if `headstart elf repack` can pack them.
    pub relocations: Option<Relocations>,
}

/// Relocations of a file. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relocations {
    /// Their table in the file.
    pub bytes: u64,
    /// What packing takes from it.
    pub saved: u64,
    /// How many it packs.
    pub packed: u64,
}

/// What is learned of a program.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Learned {
    /// Its pack.
    pub pack: Pack,
    /// The benefit estimate of it, if the device was measured.
    pub expected: Option<Expected>,
    /// The record of its last start.
    pub last_run: Option<LastRun>,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Host {
    /// Version of the kernel, its first two numbers.
    pub kernel: (u32, u32),
    /// What `/sys/kernel/mm/transparent_hugepage/enabled` is set to; empty without huge pages.
    pub huge_pages: String,
    /// Bytes of a huge page.
    pub huge_page_bytes: u64,
}

impl Host {
    /// Of the texts that the kernel has of itself: its release, the setting of transparent huge
    /// pages, and their size.
    pub fn new(release: &str, enabled: &str, size: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let kernel = (number(), number());
        let chosen = enabled.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Self {
            kernel,
            huge_pages: chosen.map_or_else(String::new, |(chosen, _)| chosen.to_owned()),
            huge_page_bytes: size.trim().parse().unwrap_or(0),
        }
    }
}

impl Facts {
    /// The command line for a shell; `CMD` for a process that was running.
    pub(crate) fn command_line(&self) -> String {
        if self.command.is_empty() {
            return "CMD".to_owned();
        }
        self.command
            .iter()
            .map(|word| crate::text::word(word.as_bytes()))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// The readahead window of a file, in pages.
    pub(crate) fn readahead_pages(&self, path: &std::path::Path) -> u64 {
        let set = self.files.get(path).and_then(|file| file.readahead.as_ref());
        set.map_or(headstart::replay::benefit::WINDOW, |(bytes, _)| *bytes) / crate::observed::PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_what_its_kernel_says() {
        let host = Host::new("6.18.44-cloud", "always [madvise] never\n", "2097152\n");
        assert_eq!((host.kernel, &*host.huge_pages), ((6, 18), "madvise"));
        assert_eq!(host.huge_page_bytes, 2 << 20);
        assert_eq!(Host::new("", "", "x"), Host::default());
    }

    #[test]
    fn a_command_line_is_quoted() {
        let command = vec!["git".into(), "log x".into()];
        assert_eq!(Facts { command, ..Facts::default() }.command_line(), "git 'log x'");
        assert_eq!(Facts::default().command_line(), "CMD");
    }
}
