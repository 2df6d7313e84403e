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
use message::{Property, Value, unit_path};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use systemctl::Systemctl;

/// When systemd activated units, as far as it is known.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Activations {
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
/// What limits the memory of a service (systemd.resource-control(5)), and since systemd 257 the
/// least of that and of its slices' limits.
const MEMORY: [&str; 4] = ["MemoryMax", "MemoryHigh", "EffectiveMemoryMax", "EffectiveMemoryHigh"];
const SLICE: &str = "Slice";

impl Activations {
    /// Asks systemd, which listens at `socket`, or else `systemctl`, for what is not known yet of these units.
    ///
    /// # Errors
    /// It can't be asked, as in the first moments of a boot.
    pub fn query(
        &mut self,
        (socket, systemctl): (&Path, &Systemctl),
        units: &[&str],
    ) -> io::Result<()> {
        let open: Vec<&str> =
            units.iter().copied().filter(|unit| !self.units.contains_key(*unit)).collect();
        let (user_space, active) = match self.query_bus(socket, &open) {
            Ok(values) => values,
            Err(_) => self.query_systemctl(systemctl, &open)?,
        };
        self.user_space = self.user_space.or(user_space);
        let found = open.iter().zip(active);
        self.units.extend(found.filter_map(|(unit, at)| Some(((*unit).to_owned(), at?))));
        Ok(())
    }

    fn query_bus(
        &self,
        socket: &Path,
        open: &[&str],
    ) -> io::Result<(Option<u64>, Vec<Option<u64>>)> {
        let paths: Vec<String> = open.iter().map(|unit| unit_path(unit)).collect();
        let unit = |path| Property { path, interface: UNIT, name: ACTIVE };
        let mut properties: Vec<Property<'_>> = paths.iter().map(|path| unit(path)).collect();
        properties.push(of_manager(USER_SPACE));
        let mut values: Vec<Option<u64>> = known(bus::query(socket, &properties)?);
        Ok((values.pop().flatten(), values))
    }

    fn query_systemctl(
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
fn known(values: Vec<Option<Value>>) -> Vec<Option<u64>> {
    values.into_iter().map(|value| value?.number().filter(|at| *at > 0)).collect()
}

/// When systemd had started all that it was to start, in µs of the monotonic clock: at or
/// just after the default target. It still knows when that target is stopped and forgotten,
/// as when the machine is being switched off.
///
/// # Errors
/// systemd can't be asked.
pub fn finished((socket, systemctl): (&Path, &Systemctl)) -> io::Result<Option<u64>> {
    if let Ok(values) = bus::query(socket, &[of_manager(FINISHED)]) {
        return Ok(known(values).pop().flatten());
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

/// How much memory a service may use, in bytes, by its own settings and those of its slices,
/// whether it runs or not; `None` where nothing limits it, or systemd does not listen at `socket`.
/// `of_group` says what limits a control group, and all above it, by its path; it is asked where
/// systemd does not know that.
pub fn memory_limit(
    socket: &Path,
    service: &str,
    of_group: impl Fn(&str) -> Option<u64>,
) -> Option<u64> {
    let path = &unit_path(service);
    let names = MEMORY.into_iter().chain([SLICE]);
    let properties: Vec<_> =
        names.map(|name| Property { path, interface: SERVICE, name }).collect();
    let mut values = bus::query(socket, &properties).ok()?;
    let slice = values.pop().flatten();
    let limits: Vec<Option<u64>> = values.iter().map(|value| value.as_ref()?.number()).collect();
    let of_slices = match (limits.get(2), slice) {
        (Some(None), Some(Value::Text(slice))) => of_group(&path_of_slice(&slice)),
        _ => None,
    };
    // For systemd the largest number is no limit.
    limits.into_iter().chain([of_slices]).flatten().min().filter(|limit| *limit < u64::MAX)
}

/// Where the control group of a slice is: a dash in its name separates it from the slice above
/// (systemd.slice(5)).
fn path_of_slice(slice: &str) -> String {
    let name = slice.strip_suffix(".slice").unwrap_or_default();
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    let above = ends.map(|end| &name[..end]).filter(|part| !part.is_empty() && *part != "-");
    above.map(|part| format!("/{part}.slice")).collect()
}

/// Whether the default target, and with it the boot proper, was reached.
pub fn is_booted(activations: &Activations) -> bool {
    activations.units.contains_key(DEFAULT_TARGET)
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
    fn a_slice_has_its_control_group_below_those_of_the_slices_above() {
        for (slice, path) in [
            ("system.slice", "/system.slice"),
            ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
            ("system-x\\x2dy.slice", "/system.slice/system-x\\x2dy.slice"),
            ("-.slice", ""),
            ("", ""),
        ] {
            assert_eq!(path_of_slice(slice), path);
        }
    }

    #[test]
    fn the_lowest_limit_of_memory_counts_and_the_largest_number_is_none() {
        const MIB: u64 = 1 << 20;
        const NONE: u64 = u64::MAX;
        // What systemd says of the service, and of all above it, if it knows that; what limits
        // the slice's group.
        for (max, high, effective, of_group, expected) in [
            (NONE, NONE, None, None, None),
            (200 * MIB, NONE, None, None, Some(200 * MIB)),
            (NONE, 100 * MIB, None, None, Some(100 * MIB)),
            (200 * MIB, 100 * MIB, None, None, Some(100 * MIB)),
            (200 * MIB, NONE, Some((50 * MIB, NONE)), Some(10 * MIB), Some(50 * MIB)),
            (200 * MIB, NONE, Some((NONE, 60 * MIB)), Some(10 * MIB), Some(60 * MIB)),
            (200 * MIB, NONE, None, Some(50 * MIB), Some(50 * MIB)),
            (40 * MIB, NONE, None, Some(50 * MIB), Some(40 * MIB)),
            (NONE, NONE, None, Some(50 * MIB), Some(50 * MIB)),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("private");
            let listener = UnixListener::bind(&socket).unwrap();
            let listening = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").unwrap();
                let number =
                    |value: u64| (2, [&b"\x01t\0\0\0\0\0\0"[..], &value.to_le_bytes()].concat());
                let error = || (3, b"\x04\0\0\0none\0".to_vec());
                let (of_max, of_high) = effective.unzip();
                let effective = [of_max, of_high].map(|value| value.map_or_else(error, number));
                let slice = (2, b"\x01s\0\0\x0b\0\0\0a-web.slice\0".to_vec());
                let answers = [number(max), number(high)].into_iter().chain(effective);
                for (serial, (kind, body)) in (1..).zip(answers.chain([slice])) {
                    let start = [b'l', kind, 1, 1, body.len() as u8, 0, 0, 0, 1, 0, 0, 0];
                    let fields = [8, 0, 0, 0, 5, 1, b'u', 0, serial, 0, 0, 0];
                    stream.write_all(&[&start[..], &fields, &body].concat()).unwrap();
                }
                let mut request = Vec::new();
                // Until the asker is gone.
                let _ = stream.read_to_end(&mut request);
                request
            });
            let of_group = |path: &str| {
                assert_eq!(path, "/a.slice/a-web.slice");
                of_group
            };
            let found = memory_limit(&socket, "web.service", of_group);
            assert_eq!(found, expected, "{max} {high} {effective:?}");
            let request = listening.join().unwrap();
            for name in [&b"\0MemoryMax"[..], b"\0MemoryHigh", b"Slice", b"/unit/web_2eservice"] {
                assert!(request.windows(name.len()).any(|part| part == name));
            }
        }
        let nowhere = Path::new("/nonexistent/private");
        assert_eq!(memory_limit(nowhere, "web.service", |_| Some(1)), None);
    }

    #[test]
    fn the_units_of_all_phases_are_requested() {
        let phases = with_config("phase web until nginx.service").unwrap();
        assert_eq!(units_of(&phases), ["local-fs.target", "default.target", "nginx.service"]);
    }
}
