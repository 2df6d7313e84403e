//! Whether there is memory to prefetch into. Pure.

use super::check::Check;

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
}
