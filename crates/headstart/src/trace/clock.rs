//! Compares the clock of a trace with the monotonic one.

use super::instance::Instance;
use super::tracefs::TraceError;
use crate::host::clock::monotonic_ns;

/// How often two clocks are read to compare them; a reading takes some 30 µs.
const READINGS: usize = 5;

/// How far the clock of a trace is ahead of the monotonic one, in nanoseconds. Whoever runs in
/// between, as at a boot others do, makes them look further apart, so the closest of some readings
/// counts.
pub(super) fn ahead_of_monotonic(instance: &Instance) -> Result<i64, TraceError> {
    let readings: Result<Vec<_>, TraceError> =
        (0..READINGS).map(|_| Ok((monotonic_ns(), instance.now_ns()?, monotonic_ns()))).collect();
    Ok(closest(&readings?))
}

/// The difference by that reading whose times of the monotonic clock before and after it are closest
/// to each other; all in nanoseconds.
fn closest(readings: &[(u64, u64, u64)]) -> i64 {
    let closest = readings.iter().min_by_key(|(before, _, after)| after.saturating_sub(*before));
    closest.map_or(0, |&(before, trace, after)| {
        trace.wrapping_sub(before.midpoint(after)).cast_signed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_are_compared_where_nobody_ran_in_between() {
        let readings = [(100, 9_105, 5_110), (200, 1_204, 208), (300, 1_400, 400)];
        assert_eq!(closest(&readings), 1_000);
        assert_eq!(closest(&[(5_000, 1_000, 5_000)]), -4_000);
        assert_eq!(closest(&[]), 0);
    }
}
