//! Settings of the machine that are changed while it is measured: each is named
//! before and undone after, also when the benchmark is interrupted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use headstart::measure::bench::machine::{BOOST, NO_TURBO, chosen, governor_file, queue_dir};

use crate::output;

/// Files that hold other values now, with their old ones.
#[derive(Debug, Default)]
pub struct Settings {
    old: Vec<(PathBuf, String)>,
    /// What was changed, in words.
    pub changes: Vec<String>,
}

impl Settings {
    /// Sets the frequency governor of all processors.
    pub fn governor(&mut self, governor: &str) -> anyhow::Result<()> {
        let files = (0..).map(governor_file).take_while(|file| Path::new(file).exists());
        let files: Vec<String> = files.collect();
        if files.is_empty() {
            bail!("This machine has no CPU frequency governor to choose; leave --governor out");
        }
        files.iter().try_for_each(|file| self.set(Path::new(file), governor))
    }

    /// Keeps the processors at their nominal frequency.
    pub fn no_turbo(&mut self) -> anyhow::Result<()> {
        match [(NO_TURBO, "1"), (BOOST, "0")].iter().find(|(file, _)| Path::new(file).exists()) {
            Some((file, value)) => self.set(Path::new(file), value),
            None => bail!("This machine has no setting for turbo; leave --no-turbo out"),
        }
    }

    /// Sets the I/O scheduler of disks.
    pub fn scheduler(&mut self, disks: &[String], scheduler: &str) -> anyhow::Result<()> {
        if disks.is_empty() {
            bail!("The program's files are on no disk with a scheduler; leave --scheduler out");
        }
        let read = |path: &str| fs::read_to_string(path).ok();
        disks.iter().try_for_each(|disk| {
            self.set(&Path::new(&queue_dir(disk, read)).join("scheduler"), scheduler)
        })
    }

    /// Says so and sets a value, unless it is set already.
    fn set(&mut self, file: &Path, value: &str) -> anyhow::Result<()> {
        let text =
            fs::read_to_string(file).with_context(|| format!("Can't read {}", file.display()))?;
        let old = chosen(&text).unwrap_or(text.trim());
        if old == value {
            return Ok(());
        }
        let change = format!("{}: {old} becomes {value}", file.display());
        output::message(format_args!("{change}, and {old} again afterwards"));
        fs::write(file, value)
            .with_context(|| format!("Can't write {value:?} to {}", file.display()))?;
        self.old.push((file.to_owned(), old.to_owned()));
        self.changes.push(change);
        Ok(())
    }

    /// Sets everything back.
    pub fn undo(&mut self) {
        // In reverse: a file may have been set twice.
        while let Some((file, old)) = self.old.pop() {
            if let Err(e) = fs::write(&file, &old) {
                output::message(format_args!(
                    "can't set {} back to {old}: {e}; do it by hand",
                    file.display()
                ));
            }
        }
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_set_back_when_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (governor, scheduler) = (dir.path().join("governor"), dir.path().join("scheduler"));
        fs::write(&governor, "powersave\n").unwrap();
        fs::write(&scheduler, "none [bfq] kyber\n").unwrap();
        let mut settings = Settings::default();
        settings.set(&governor, "performance").unwrap();
        settings.set(&scheduler, "none").unwrap();
        settings.set(&governor, "performance").unwrap();
        assert_eq!(settings.changes.len(), 2, "what is so already is no change");
        assert_eq!(fs::read_to_string(&scheduler).unwrap(), "none");
        drop(settings);
        assert_eq!(fs::read_to_string(&governor).unwrap(), "powersave");
        assert_eq!(fs::read_to_string(&scheduler).unwrap(), "bfq");
    }

    #[test]
    fn a_setting_that_is_not_there_says_what_to_do() {
        let mut settings = Settings::default();
        let error = settings.scheduler(&[], "none").unwrap_err().to_string();
        assert!(error.contains("leave --scheduler out"), "{error}");
        assert!(settings.set(Path::new("/nowhere"), "x").is_err());
    }
}
