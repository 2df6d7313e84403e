//! When units became active, as systemd tells.
//!
//! While a boot goes on systemd is asked over its own socket (`bus`), for a process costs
//! a boot more than all else that recording does. Where that can't be had, and when it
//! does not matter, `systemctl show` is asked, which has had the same form since long; its
//! answer is parsed here.

pub mod bus;
pub mod message;
pub mod systemctl;

use super::phases::{DEFAULT_TARGET, Phase, Until};
use super::unit_times::{self, UnitTimes};
use message::{Property, unit_path};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use systemctl::Systemctl;

/// What systemd told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Told {
    /// When the machine's own init process began, in µs of the monotonic clock.
    pub user_space: Option<u64>,
    /// Units that are active or were, with that time.
    pub units: HashMap<String, u64>,
    /// The processes that were started to ask: not a part of the boot.
    pub askers: Vec<i32>,
}

/// The units that end phases.
pub fn units_of(phases: &[Phase]) -> Vec<&str> {
    let unit = |phase| match phase {
        &Phase { until: Until::Unit(ref unit), .. } => Some(unit.as_str()),
        _ => None,
    };
    phases.iter().filter_map(unit).collect()
}

const USER_SPACE: &str = "UserspaceTimestampMonotonic";
const FINISHED: &str = "FinishTimestampMonotonic";
const ACTIVE: &str = "ActiveEnterTimestampMonotonic";
const STARTED: &str = "ExecMainStartTimestampMonotonic";

const MANAGER: (&str, &str) = ("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// What limits the memory of a service (systemd.resource-control(5)).
const MEMORY: [&str; 2] = ["MemoryMax", "MemoryHigh"];

impl Told {
    /// Asks systemd, which listens at `socket`, or else `systemctl`, for what is not known yet of these units.
    ///
    /// # Errors
    /// It can't be asked, as in the first moments of a boot.
    pub fn ask(
        &mut self,
        (socket, systemctl): (&Path, &Systemctl),
        units: &[&str],
    ) -> io::Result<()> {
        let open: Vec<&str> =
            units.iter().copied().filter(|unit| !self.units.contains_key(*unit)).collect();
        let (user_space, active) = match self.ask_bus(socket, &open) {
            Ok(told) => told,
            Err(_) => self.ask_systemctl(systemctl, &open)?,
        };
        self.user_space = self.user_space.or(user_space);
        let found = open.iter().zip(active);
        self.units.extend(found.filter_map(|(unit, at)| Some(((*unit).to_owned(), at?))));
        Ok(())
    }

    fn ask_bus(&self, socket: &Path, open: &[&str]) -> io::Result<(Option<u64>, Vec<Option<u64>>)> {
        let paths: Vec<String> = open.iter().map(|unit| unit_path(unit)).collect();
        let unit = |path| Property { path, interface: UNIT, name: ACTIVE };
        let mut properties: Vec<Property<'_>> = paths.iter().map(|path| unit(path)).collect();
        properties.push(of_manager(USER_SPACE));
        let mut values: Vec<Option<u64>> = told(bus::ask(socket, &properties)?);
        Ok((values.pop().flatten(), values))
    }

    fn ask_systemctl(
        &mut self,
        systemctl: &Systemctl,
        open: &[&str],
    ) -> io::Result<(Option<u64>, Vec<Option<u64>>)> {
        let mut user_space = None;
        if self.user_space.is_none() {
            let answer = show(systemctl, &["--property", USER_SPACE], &mut self.askers)?;
            user_space = blocks(&answer, USER_SPACE).next().flatten();
        }
        if open.is_empty() {
            return Ok((user_space, Vec::new()));
        }
        let args = [&["--property", ACTIVE, "--"], open].concat();
        let answer = show(systemctl, &args, &mut self.askers)?;
        Ok((user_space, blocks(&answer, ACTIVE).collect()))
    }
}

fn of_manager(name: &str) -> Property<'_> {
    Property { path: MANAGER.0, interface: MANAGER.1, name }
}

/// For systemd 0 is a time that has not come.
fn told(values: Vec<Option<u64>>) -> Vec<Option<u64>> {
    values.into_iter().map(|value| value.filter(|at| *at > 0)).collect()
}

/// When systemd had started all that it was to start, in µs of the monotonic clock: at or
/// just after the default target. It still knows when that target is stopped and forgotten,
/// as when the machine is being switched off.
///
/// # Errors
/// systemd can't be asked.
pub fn finished((socket, systemctl): (&Path, &Systemctl)) -> io::Result<Option<u64>> {
    if let Ok(values) = bus::ask(socket, &[of_manager(FINISHED)]) {
        return Ok(told(values).pop().flatten());
    }
    let answer = show(systemctl, &["--property", FINISHED], &mut Vec::new())?;
    Ok(blocks(&answer, FINISHED).next().flatten())
}

/// When all units were started, with times from `began` (µs of the monotonic clock) on,
/// and how many there was no room for.
///
/// # Errors
/// systemd can't be asked.
pub fn unit_times(systemctl: &Systemctl, began: u64) -> io::Result<(Vec<UnitTimes>, u64)> {
    let answer =
        show(systemctl, &["--property", unit_times::PROPERTIES, "--", "*"], &mut Vec::new())?;
    Ok(unit_times::parse(&answer, began))
}

/// When the main process of a service was last started, in µs of the monotonic clock;
/// `None` when it never was.
///
/// # Errors
/// systemd can't be asked.
pub fn started(service: &str) -> io::Result<Option<u64>> {
    let answer =
        show(&Systemctl::here(), &["--property", STARTED, "--", service], &mut Vec::new())?;
    Ok(blocks(&answer, STARTED).next().flatten())
}

/// How much memory a service may use, in bytes, by its own settings, whether it runs or not;
/// `None` where nothing limits it, or systemd does not listen at `socket`.
pub fn memory_limit(socket: &Path, service: &str) -> Option<u64> {
    let path = &unit_path(service);
    let properties = MEMORY.map(|name| Property { path, interface: SERVICE, name });
    let limits = bus::ask(socket, &properties).ok()?.into_iter().flatten();
    // For systemd the largest number is no limit.
    limits.min().filter(|limit| *limit < u64::MAX)
}

/// Whether the default target, and with it the boot proper, was reached.
pub fn is_booted(told: &Told) -> bool {
    told.units.contains_key(DEFAULT_TARGET)
}

fn show(systemctl: &Systemctl, args: &[&str], askers: &mut Vec<i32>) -> io::Result<String> {
    systemctl.call(&[&["show"], args].concat(), askers)
}

/// The value of a property in each of the blocks of `systemctl show`'s answer, which empty lines separate; `None`
/// where it is 0 or missing.
pub fn blocks<'a>(answer: &'a str, property: &'a str) -> impl Iterator<Item = Option<u64>> + 'a {
    let value = move |block: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(property)?.strip_prefix('='))?;
        line.trim().parse().ok().filter(|at| *at > 0)
    };
    answer.trim().split("\n\n").map(value)
}

#[cfg(test)]
mod tests {
    use super::super::phases::with_config;
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn each_block_of_an_answer_is_one_unit() {
        let answer = "ActiveEnterTimestampMonotonic=1200\n\nActiveEnterTimestampMonotonic=0\n\n\
                      Other=1\nActiveEnterTimestampMonotonic=99\n\nOther=1\n";
        let found: Vec<_> = blocks(answer, ACTIVE).collect();
        assert_eq!(found, [Some(1200), None, Some(99), None]);
        assert_eq!(blocks("", ACTIVE).collect::<Vec<_>>(), [None]);
        assert_eq!(blocks("ActiveEnterTimestampMonotonic=no", ACTIVE).next(), Some(None));
    }

    #[test]
    fn the_lower_limit_of_memory_counts_and_the_largest_number_is_none() {
        const MIB: u64 = 1 << 20;
        for (max, high, expected) in [
            (u64::MAX, u64::MAX, None),
            (200 * MIB, u64::MAX, Some(200 * MIB)),
            (u64::MAX, 100 * MIB, Some(100 * MIB)),
            (200 * MIB, 100 * MIB, Some(100 * MIB)),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("private");
            let listener = UnixListener::bind(&socket).unwrap();
            let listening = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").unwrap();
                for (serial, value) in [(1, max), (2, high)] {
                    let start = b"l\x02\x01\x01\x10\0\0\0\x01\0\0\0\x08\0\0\0\x05\x01u\0";
                    let end = [serial, 0, 0, 0, 1, b't', 0, 0, 0, 0, 0, 0];
                    let answer = [&start[..], &end, &value.to_le_bytes()].concat();
                    stream.write_all(&answer).unwrap();
                }
                let mut asked = Vec::new();
                // Until the asker is gone.
                let _ = stream.read_to_end(&mut asked);
                asked
            });
            assert_eq!(memory_limit(&socket, "web.service"), expected);
            let asked = listening.join().unwrap();
            for name in [&b"MemoryMax"[..], b"MemoryHigh", b"/unit/web_2eservice"] {
                assert!(asked.windows(name.len()).any(|part| part == name));
            }
        }
        assert_eq!(memory_limit(Path::new("/nonexistent/private"), "web.service"), None);
    }

    #[test]
    fn the_units_of_all_phases_are_asked_for() {
        let phases = with_config("phase web until nginx.service").unwrap();
        assert_eq!(units_of(&phases), ["local-fs.target", "default.target", "nginx.service"]);
    }
}
