//! What the kernel says of power and memory.

use crate::early::conditions::{Conditions, Supply, is_idle, on_battery, spare};
use headstart::host::contents;
use headstart::host::memory;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const SUPPLIES: &str = "/sys/class/power_supply";
/// A task that waited for memory within this time says that there is little.
const LATELY: Duration = Duration::from_secs(10);

/// Watches the machine.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// How long tasks have waited for memory, and when that changed.
    stalled_us: Option<u64>,
    stalled_at: Option<Instant>,
}

impl Machine {
    /// As it is now. Where the kernel says nothing, nothing is spare.
    pub(super) fn now(&mut self) -> Conditions {
        let text = |path: &str| contents::text(path).unwrap_or_default();
        let page_size = rustix::param::page_size() as u64;
        let stalled_us = memory::stalled_us();
        if self.stalled_us.is_some() && stalled_us != self.stalled_us {
            self.stalled_at = Some(Instant::now());
        }
        self.stalled_us = stalled_us;
        Conditions {
            on_battery: on_battery(&supplies(Path::new(SUPPLIES))),
            available: memory::available().unwrap_or(0),
            spare: spare(&text("/proc/meminfo"), &text("/proc/zoneinfo"), page_size).unwrap_or(0),
            stalled: self.stalled_at.is_some_and(|at| at.elapsed() < LATELY),
        }
    }
}

impl Machine {
    /// Whether its load is below so many percent of its CPUs.
    pub(super) fn is_idle(percent: u64) -> bool {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        is_idle(&contents::text("/proc/loadavg").unwrap_or_default(), cpus, percent)
    }
}

fn supplies(dir: &Path) -> Vec<Supply> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let supply = |entry: fs::DirEntry| {
        let value = |name: &str| {
            contents::text(entry.path().join(name)).unwrap_or_default().trim().to_owned()
        };
        let [kind, scope, online, status] = ["type", "scope", "online", "status"].map(value);
        Supply { kind, scope, online, status }
    };
    entries.map(supply).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplies_are_read_from_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file, value) in [
            ("AC", "type", "Mains\n"),
            ("AC", "online", "0\n"),
            ("BAT0", "type", "Battery\n"),
            ("BAT0", "status", "Discharging\n"),
        ] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join(file), value).unwrap();
        }
        assert!(on_battery(&supplies(dir.path())));
        fs::write(dir.path().join("AC/online"), "1\n").unwrap();
        assert!(!on_battery(&supplies(dir.path())));
    }

    #[test]
    fn this_machine_has_memory() {
        let now = Machine::default().now();
        assert!(now.available > 0 && now.may_read() <= now.available, "{now:?}");
    }
}
