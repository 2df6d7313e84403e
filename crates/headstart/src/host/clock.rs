//! Spans of time in µs, and clocks of the kernel.

use rustix::time::ClockId;
use std::time::Duration;

/// A span of time in µs, `u64::MAX` at most.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Now, in µs of the monotonic clock.
pub fn monotonic_us() -> u64 {
    monotonic_ns() / 1000
}

/// Now, in ns of the monotonic clock.
pub fn monotonic_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// Since boot, in ns, including the time in which the machine was suspended.
pub fn boot_ns() -> u64 {
    ns_of(ClockId::Boottime)
}

/// The CPU time of this process, in ns.
pub fn process_ns() -> u64 {
    ns_of(ClockId::ProcessCPUTime)
}

fn ns_of(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
