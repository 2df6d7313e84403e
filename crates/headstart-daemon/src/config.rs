//! `headstartd.conf`: what the administrator may set, and the defaults. Pure.
//!
//! Each line is `NAME = VALUE`; empty lines and those that begin with `#` are skipped.

use std::time::Duration;
use thiserror::Error;

/// Where the file is.
pub const PATH: &str = "/etc/headstart/headstartd.conf";

/// The settings of the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Whether programs are learned. Known ones are prefetched anyway.
    pub learn: bool,
    /// A start is recorded for this time at most.
    pub window: Duration,
    /// A start that waited less than this for disks, as estimated, is not learned.
    pub threshold: Duration,
    /// Starts that are recorded at the same time, at most.
    pub recordings: usize,
    /// Memory for what is recorded, in bytes.
    pub trace_memory: usize,
    /// Replays at the same time, at most.
    pub replays: usize,
    /// The share of the available memory that all replays together may fill, in percent.
    pub memory_percent: u64,
    /// The login pack of a user has this many bytes at most; none is made if it is 0.
    pub login_memory: u64,
    /// Whether programs that probably start next are prefetched.
    pub predict: bool,
    /// The machine is idle while its load is below this share of its CPUs, in percent.
    pub idle_load: u64,
    /// Executables in these directories, or with these paths, are ignored.
    pub ignore: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            learn: true,
            window: Duration::from_secs(10),
            threshold: Duration::from_millis(100),
            recordings: 4,
            trace_memory: 4 << 20,
            replays: 8,
            memory_percent: 25,
            login_memory: 64 << 20,
            predict: false,
            idle_load: 20,
            ignore: Vec::new(),
        }
    }
}

/// A line that can't be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}; see headstartd.conf(5)")]
pub struct ConfigError {
    /// Its number, from 1.
    pub line: usize,
    what: String,
}

/// Directories that are ignored at most.
const MOST_IGNORED: usize = 256;

impl Config {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// The first line that can't be used.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            config.set(line).map_err(|what| ConfigError { line: number + 1, what })?;
        }
        Ok(config)
    }

    fn set(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once('=').ok_or("write `NAME = VALUE`")?;
        let (name, value) = (name.trim(), value.trim());
        match name {
            "learn" => self.learn = yes_or_no(value)?,
            "window" => self.window = seconds(value, 1, 300)?,
            "threshold" => self.threshold = millis(value, 10, 60_000)?,
            "recordings" => self.recordings = number(value, 1, 64)?,
            "trace-memory" => self.trace_memory = number::<usize>(value, 1, 512)? << 20,
            "replays" => self.replays = number(value, 1, 32)?,
            "memory-percent" => self.memory_percent = number(value, 1, 50)?,
            "login-memory" => self.login_memory = number::<u64>(value, 0, 1024)? << 20,
            "predict" => self.predict = yes_or_no(value)?,
            "idle-load" => self.idle_load = number(value, 1, 1000)?,
            "ignore" => {
                if !value.starts_with('/') {
                    return Err("`ignore` takes an absolute path".into());
                }
                if self.ignore.len() >= MOST_IGNORED {
                    return Err(format!("`ignore` stands more than {MOST_IGNORED} times"));
                }
                self.ignore.push(value.trim_end_matches('/').to_owned());
            }
            // A name may be anything.
            _ => return Err("there is no setting of this name".into()),
        }
        Ok(())
    }

    /// Whether an executable is ignored: it has one of these paths, or is below one.
    pub fn ignores(&self, executable: &[u8]) -> bool {
        self.ignore.iter().any(|path| {
            let rest = executable.strip_prefix(path.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        })
    }
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("the value is `yes` or `no`".into()),
    }
}

fn number<T: TryFrom<u64>>(value: &str, least: u64, most: u64) -> Result<T, String> {
    let in_range = |number: &u64| (least..=most).contains(number);
    let number = value.parse().ok().filter(in_range).and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("the value is a whole number from {least} to {most}"))
}

fn with_unit(value: &str, unit: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = value.strip_suffix(unit).map(str::trim_end);
    digits
        .ok_or_else(String::new)
        .and_then(|digits| number(digits, least, most))
        .map_err(|_| format!("the value is a time from {least}{unit} to {most}{unit}"))
}

fn seconds(value: &str, least: u64, most: u64) -> Result<Duration, String> {
    with_unit(value, "s", least, most).map(Duration::from_secs)
}

fn millis(value: &str, least: u64, most: u64) -> Result<Duration, String> {
    with_unit(value, "ms", least, most).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_file_leaves_the_defaults_and_each_setting_changes_one() {
        assert_eq!(Config::parse("\n# nothing\n").unwrap(), Config::default());
        let text = "learn = no\nwindow=20s\nthreshold = 250 ms\nrecordings = 2\ntrace-memory = 9\n\
                    replays = 3\nmemory-percent = 10\nlogin-memory = 0\npredict = yes\nidle-load = 5\nignore = /opt/games/\nignore = /usr/bin/top\n";
        let expected = Config {
            learn: false,
            window: Duration::from_secs(20),
            threshold: Duration::from_millis(250),
            recordings: 2,
            trace_memory: 9 << 20,
            replays: 3,
            memory_percent: 10,
            login_memory: 0,
            predict: true,
            idle_load: 5,
            ignore: vec!["/opt/games".into(), "/usr/bin/top".into()],
        };
        assert_eq!(Config::parse(text).unwrap(), expected);
    }

    #[test]
    fn a_wrong_line_is_named_with_what_would_be_right() {
        for (line, what) in [
            ("learn", "write `NAME = VALUE`"),
            ("learn = maybe", "`yes` or `no`"),
            ("window = 10", "from 1s to 300s"),
            ("window = 0s", "from 1s to 300s"),
            ("window = 99999999999999999999s", "from 1s"),
            ("threshold = 1s", "from 10ms to 60000ms"),
            ("memory-percent = 51", "from 1 to 50"),
            ("idle-load = 0", "from 1 to 1000"),
            ("predict = 1", "`yes` or `no`"),
            ("login-memory = 2000", "from 0 to 1024"),
            ("recordings = -1", "from 1 to 64"),
            ("ignore = games", "an absolute path"),
            ("colour = red", "no setting of this name"),
        ] {
            let error = Config::parse(&format!("# a comment\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 2, "{line}");
            assert!(error.to_string().contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn a_path_is_ignored_as_a_whole_and_not_by_its_beginning() {
        let config = Config::parse("ignore = /opt/games\n").unwrap();
        for (path, expected) in [
            ("/opt/games", true),
            ("/opt/games/chess", true),
            ("/opt/games2", false),
            ("/opt", false),
        ] {
            assert_eq!(config.ignores(path.as_bytes()), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused_in_one_line(text in "(\\PC{0,30}(= ?[0-9a-z/]{0,9})?\n){0,3}") {
            if let Err(error) = Config::parse(&text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
