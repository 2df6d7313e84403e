//! Spans of time in µs, and the kernel's monotonic clock.

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
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
