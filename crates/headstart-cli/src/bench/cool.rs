//! Empties the page cache of what a start needs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use headstart::cache::evict::drop_pages;
use headstart::cache::metadata;
use headstart::pack::Pack;

use super::start::{last_line, messages_file};
use crate::output;

/// How everything is dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cooling {
    /// From the whole machine, by /proc/sys/vm/drop_caches.
    DropCaches,
    /// By a command of the user's.
    Command(String),
    /// Only the pages of the pack's files, which needs no privileges.
    Evict,
}

impl Cooling {
    /// What it does to the machine, for other users.
    pub fn announcement(&self) -> Option<String> {
        match self {
            Self::DropCaches => Some(
                "before each cold start everything cached on this machine is dropped \
                 (drop_caches=3), so everybody's next reads are slower; --cold-cmd can do with less"
                    .into(),
            ),
            Self::Command(command) => Some(format!("before each cold start runs: {command}")),
            Self::Evict => None,
        }
    }
}

/// Drops what a program uses, or everything.
#[derive(Clone, Debug)]
pub struct Cooler {
    /// How a cold start is prepared.
    pub cooling: Cooling,
    files: Vec<PathBuf>,
    /// A file on each of their file systems.
    homes: Vec<PathBuf>,
    is_root: bool,
    warned: Cell<bool>,
}

impl Cooler {
    /// Knows of no files yet.
    pub fn new(cooling: Cooling) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self { cooling, files: Vec::new(), homes: Vec::new(), is_root, warned: Cell::new(false) }
    }

    /// Takes over the files of a pack.
    pub fn know(&mut self, pack: &Pack) {
        let mut homes = BTreeMap::new();
        self.files.clear();
        for path in pack.files.iter().map(|file| pack.paths.path(file.node)) {
            if let Ok(meta) = path.symlink_metadata()
                && meta.is_file()
            {
                homes.entry(meta.dev()).or_insert_with(|| path.clone());
                self.files.push(path);
            }
        }
        self.homes = homes.into_values().collect();
    }

    /// Prepares a cold start.
    pub fn cold(&self) -> anyhow::Result<()> {
        match &self.cooling {
            Cooling::DropCaches => {
                // Dirty pages can't be dropped.
                rustix::fs::sync();
                let path = "/proc/sys/vm/drop_caches";
                std::fs::write(path, "3").with_context(|| {
                    format!(
                        "Can't drop caches through {path}; give a command that does it: --cold-cmd"
                    )
                })
            }
            Cooling::Command(command) => persist(|| shell(command)),
            Cooling::Evict => self.evict_files(),
        }
    }

    /// Drops only what the program uses: pages of its files and, as root, the
    /// metadata of their file systems. What other processes hold stays.
    pub fn selective(&self) -> anyhow::Result<()> {
        self.evict_files()?;
        if !self.is_root {
            return Ok(());
        }
        // Before names are dropped, because it opens files.
        let mut devices = Vec::new();
        for home in &self.homes {
            metadata::write_out(home)?;
            let device = metadata::home(home)?.block_device;
            devices.extend(device);
        }
        metadata::drop_names_and_inodes()?;
        for error in drop_pages(&devices, false) {
            // Said once: it is the same in every round.
            if !self.warned.replace(true) {
                let error = output::causes(&error);
                output::message(format_args!("selective: some metadata stays in memory: {error}"));
            }
        }
        Ok(())
    }

    fn evict_files(&self) -> anyhow::Result<()> {
        // What is gone, as a lock that a start removed, or forbidden is not prefetched either.
        let mut errors = drop_pages(&self.files, true).into_iter();
        let error = errors.find(|error| !error.is_gone() && !error.is_permission());
        error.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Tries again for some seconds: a file system is busy as long as any process
/// looks at it, and a mount namespace that is being made holds it for a while.
fn persist(attempt: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    const TRIES: u32 = 10;
    for _ in 1..TRIES {
        let Err(error) = attempt() else { return Ok(()) };
        output::message(format_args!("{error:#}; trying again"));
        thread::sleep(Duration::from_secs(1));
    }
    attempt()
}

/// Runs a command of the user's that has to succeed.
pub fn shell(command: &str) -> anyhow::Result<()> {
    // Not a pipe: what the command leaves running in the background would keep that open.
    let messages = messages_file()?;
    let status = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages.try_clone()?)
        .status()
        .context("Can't run /bin/sh")?;
    if !status.success() {
        let said = last_line(&messages).unwrap_or_else(|| "it said nothing".into());
        bail!("{command:?} failed ({status}): {said}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_start_removed_needs_no_evicting() {
        let path = PathBuf::from("/proc/headstart-never-was");
        let cooler = Cooler { files: vec![path], ..Cooler::new(Cooling::Evict) };
        cooler.cold().unwrap();
    }

    #[test]
    fn a_command_that_fails_says_what_it_said() {
        shell("exit 0").unwrap();
        let error = shell("echo first >&2; echo no such disk >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("no such disk"), "{error}");
    }

    #[test]
    fn what_changes_the_machine_for_others_is_announced() {
        assert!(Cooling::DropCaches.announcement().unwrap().contains("drop_caches=3"));
        assert!(Cooling::Command("umount /x".into()).announcement().unwrap().contains("umount /x"));
        assert_eq!(Cooling::Evict.announcement(), None);
    }
}
