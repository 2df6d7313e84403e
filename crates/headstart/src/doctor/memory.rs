//! Whether there is memory to prefetch into, and whether it stays there. Pure.

use super::check::Check;
use crate::host::reclaim::Switch;

/// Below this a replay is too small to be of use: the pages of a small program.
const LITTLE: u64 = 64 << 20;

/// Bytes that are available on the machine.
pub fn available(bytes: Option<u64>) -> Check {
    const ID: &str = "memory";
    match bytes {
        None => Check::degraded(ID, "The available memory is not known, so little is prefetched"),
        Some(bytes) if bytes < LITTLE => {
            Check::degraded(ID, format!("Only {} MiB of memory are available", bytes >> 20))
        }
        Some(bytes) => Check::ok(ID, format!("{} MiB of memory are available", bytes >> 20)),
    }
}

/// Bytes left to the control group.
pub fn group(headroom: Option<u64>) -> Check {
    const ID: &str = "memory_group";
    match headroom {
        None => Check::ok(ID, "No control group limits the memory"),
        Some(bytes) if bytes < LITTLE => Check::degraded(
            ID,
            format!("The control group leaves {} MiB, so little is prefetched", bytes >> 20),
        ),
        Some(bytes) => Check::ok(ID, format!("The control group leaves {} MiB", bytes >> 20)),
    }
}

/// What reclaims pages without memory pressure; `None` if that is not known.
pub fn reclaim(by: Option<&[Switch]>) -> Check {
    const ID: &str = "memory_reclaim";
    match by {
        None => Check::ok(ID, "Only root may know whether DAMON's proactive reclaim is on"),
        Some([]) => Check::ok(ID, "DAMON's proactive reclaim is off"),
        Some(switches) => Check::degraded(
            ID,
            "DAMON's proactive reclaim is on: it also takes pages that were just prefetched, so that a start may \
             read them again. Virtual machines use it to give memory back to their host",
        )
        .fix(off(switches)),
    }
}

/// The command that turns all of them off.
fn off(switches: &[Switch]) -> String {
    let off = |Switch { file, off }: &Switch| format!("echo {off} | sudo tee {}", file.display());
    switches.iter().map(off).collect::<Vec<_>>().join(" && ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    #[test]
    fn little_memory_degrades_and_no_limit_does_not() {
        for (bytes, machine, in_group) in [
            (None, State::Degraded, State::Ok),
            (Some(1 << 20), State::Degraded, State::Degraded),
            (Some(1 << 30), State::Ok, State::Ok),
        ] {
            assert_eq!(available(bytes).state, machine, "{bytes:?}");
            assert_eq!(group(bytes).state, in_group, "{bytes:?}");
        }
        assert!(group(None).meaning.starts_with("No"));
    }

    #[test]
    fn proactive_reclaim_degrades_and_its_switches_are_the_fix() {
        for by in [None, Some(&[][..])] {
            assert_eq!((reclaim(by).state, reclaim(by).fix), (State::Ok, None), "{by:?}");
        }
        let on = |file: &str, off| Switch { file: file.into(), off };
        let check = reclaim(Some(&[on("/sys/x/enabled", "N"), on("/sys/y/state", "off")]));
        assert_eq!(check.state, State::Degraded);
        let fix = "echo N | sudo tee /sys/x/enabled && echo off | sudo tee /sys/y/state";
        assert_eq!(check.fix.as_deref(), Some(fix));
    }
}
