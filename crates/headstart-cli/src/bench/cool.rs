//! Getting what a start needs out of memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use headstart::cache::evict::{Target, evict};
use headstart::cache::metadata;
use headstart::pack::Pack;

use crate::output;

/// How everything is dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cooling {
    /// From the whole machine, by /proc/sys/vm/drop_caches.
    DropCaches,
    /// By a command of the user's.
    Command(String),
    /// Only the pages of the pack's files, which takes no rights.
    Evict,
}

impl Cooling {
    /// What it does to the machine, for those who use it too.
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
    files: Vec<Target>,
    /// A file on each of their file systems.
    homes: Vec<PathBuf>,
    is_root: bool,
    told: Cell<bool>,
}

impl Cooler {
    /// Knows of no files yet.
    pub fn new(cooling: Cooling) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        Self { cooling, files: Vec::new(), homes: Vec::new(), is_root, told: Cell::new(false) }
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
                self.files.push(Target { path, pages: None });
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
        // Before names are dropped, because it looks at files.
        let mut devices = Vec::new();
        for home in &self.homes {
            metadata::write_out(home)?;
            let device = metadata::home(home)?.block_device;
            devices.extend(device.map(|path| Target { path, pages: None }));
        }
        metadata::drop_names_and_inodes()?;
        for error in evict(&devices, false).files.into_iter().filter_map(Result::err) {
            // Said once: it is the same in every round.
            if !self.told.replace(true) {
                let error = output::causes(&error);
                output::message(format_args!("selective: some metadata stays in memory: {error}"));
            }
        }
        Ok(())
    }

    fn evict_files(&self) -> anyhow::Result<()> {
        // A file that is gone is missed by the program first.
        evict(&self.files, true).files.into_iter().try_for_each(|file| file.map(drop))?;
        Ok(())
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
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(std::process::Stdio::null())
        .output()
        .context("Can't run /bin/sh")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or("it said nothing").to_owned();
        bail!("{command:?} failed ({}): {said}", output.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
