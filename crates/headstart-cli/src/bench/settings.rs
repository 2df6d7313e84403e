//! Settings of the machine that are changed while it is measured: each is named
//! before and undone after, whatever ends the benchmark.

use headstart::host::contents;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context, bail};
use headstart_bench::machine::{BOOST, NO_TURBO, chosen, governor_files, queue_dir};

use crate::output;

/// Sets back what is on its list, the last first, when its input ends: a killed
/// benchmark can't. It is told each file before that is changed. Told that all is
/// done it goes, for by the time its input ends another benchmark may have begun.
const GUARD: &str = r#"
trap '' HUP INT TERM
while read -r old file; do
    [ "$old $file" != "done " ] || exit 0
    set -- "$old" "$file" "$@"
done
while [ $# -gt 1 ]; do echo "$1" > "$2"; shift 2; done
"#;

/// A process that outlives this one.
#[derive(Debug)]
struct Guard(ChildStdin);

impl Guard {
    /// Starts one. Its parent ends at once, so that it is no child of ours, and
    /// is not ended with what programs leave behind.
    fn start() -> anyhow::Result<Self> {
        let mut parent = Command::new("/bin/sh")
            // The shell gives what it puts into the background no input.
            .args(["-c", "exec 3<&0; /bin/sh -c \"$1\" <&3 3<&- &", "sh", GUARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("Can't run /bin/sh, which would set everything back")?;
        let input = parent.stdin.take().context("The guard has no input")?;
        let ended = parent.wait().context("Can't wait for /bin/sh")?;
        if !ended.success() {
            bail!("The guard that would set everything back can't be started ({ended})");
        }
        Ok(Self(input))
    }

    fn tell(&mut self, file: &Path, old: &str) -> anyhow::Result<()> {
        writeln!(self.0, "{old} {}", output::shown(file)).context("The guard is gone")
    }

    fn dismiss(&mut self) {
        // One that is gone does nothing either.
        let _ = writeln!(self.0, "done");
    }
}

/// Files that hold other values now, with their old ones.
#[derive(Debug, Default)]
pub struct Settings {
    old: Vec<(PathBuf, String)>,
    guard: Option<Guard>,
    /// What was changed, in words.
    pub changes: Vec<String>,
}

impl Settings {
    /// Gets ready to change something; before this process adopts orphans.
    pub fn guarded() -> anyhow::Result<Self> {
        let guard = Some(Guard::start()?);
        Ok(Self { old: Vec::new(), guard, changes: Vec::new() })
    }

    /// Sets the frequency governor of all processors.
    pub fn governor(&mut self, governor: &str) -> anyhow::Result<()> {
        let files = governor_files(|path| contents::text(path).ok());
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
        let read = |path: &str| contents::text(path).ok();
        disks.iter().try_for_each(|disk| {
            self.set(&Path::new(&queue_dir(disk, read)).join("scheduler"), scheduler)
        })
    }

    /// Says so and sets a value, unless it is set already.
    fn set(&mut self, file: &Path, value: &str) -> anyhow::Result<()> {
        let text =
            contents::text(file).with_context(|| format!("Can't read {}", output::shown(file)))?;
        let old = chosen(&text).unwrap_or(text.trim());
        if old == value {
            return Ok(());
        }
        let change = format!("{}: {old} becomes {value}", output::shown(file));
        output::message(format_args!("{change}, and {old} again afterwards"));
        if let Some(guard) = &mut self.guard {
            guard.tell(file, old)?;
        }
        fs::write(file, value)
            .with_context(|| format!("Can't write {value:?} to {}", output::shown(file)))?;
        self.old.push((file.to_owned(), old.to_owned()));
        self.changes.push(change);
        Ok(())
    }

    /// Sets everything back.
    pub fn undo(&mut self) {
        if self.old.is_empty() {
            return;
        }
        // In reverse: a file may have been set twice.
        while let Some((file, old)) = self.old.pop() {
            if let Err(e) = fs::write(&file, &old) {
                output::message(format_args!(
                    "can't set {} back to {old}: {e}; do it by hand",
                    output::shown(&file)
                ));
            }
        }
        self.guard.iter_mut().for_each(Guard::dismiss);
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
    fn a_guard_sets_back_what_nobody_else_did() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (first, second) = (at("a governor"), at("scheduler"));
        fs::write(&first, "powersave\n").unwrap();
        fs::write(&second, "none [bfq]\n").unwrap();
        let mut settings = Settings::guarded().unwrap();
        settings.set(&first, "performance").unwrap();
        settings.set(&second, "none").unwrap();
        settings.set(&first, "schedutil").unwrap();
        // As when it is killed: nothing is undone, but its end of the pipe closes.
        settings.old.clear();
        drop(settings);
        let is = |file: &Path, value: &str| fs::read_to_string(file).unwrap().trim() == value;
        while !(is(&first, "powersave") && is(&second, "bfq")) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_guard_of_what_was_set_back_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("governor");
        fs::write(&file, "powersave").unwrap();
        let mut settings = Settings::guarded().unwrap();
        settings.set(&file, "performance").unwrap();
        settings.undo();
        assert_eq!(fs::read_to_string(&file).unwrap(), "powersave");
        fs::write(&file, "of another benchmark").unwrap();
        let guard = settings.guard.as_mut().unwrap();
        // It is gone when nobody reads what it is told.
        while guard.tell(&file, "powersave").is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "of another benchmark");
    }

    #[test]
    fn a_setting_that_is_not_there_says_what_to_do() {
        let mut settings = Settings::default();
        let error = settings.scheduler(&[], "none").unwrap_err().to_string();
        assert!(error.contains("leave --scheduler out"), "{error}");
        assert!(settings.set(Path::new("/nowhere"), "x").is_err());
    }
}
