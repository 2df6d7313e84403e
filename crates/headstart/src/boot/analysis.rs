//! A recorded boot as it is shown: its record, its timeline, and what follows from both. Pure.

use super::bins::{Gap, Row};
use super::history::{BootRecord, us_of_ms};
use super::timeline::Timeline;
use super::unit_times::UnitTimes;
use serde::Serialize;

/// Shorter times without I/O do not count as idle, in µs.
pub const LEAST_GAP_US: u64 = 50_000;

/// A boot.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// Its number in the history.
    pub number: u64,
    /// Its record.
    pub boot: BootRecord,
    /// Its timeline, if there is one.
    pub timeline: Option<Timeline>,
    /// Until when it was followed, in µs.
    pub end_us: u64,
    /// Bytes in all.
    pub sums: Sums,
    /// The idle times, in which nothing was read.
    pub idle: Vec<Gap>,
}

/// Bytes of a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sums {
    /// Prefetched.
    pub prefetched_bytes: u64,
    /// Of that, not touched.
    pub wasted_bytes: u64,
    /// Brought in by the boot itself.
    pub demand_bytes: u64,
    /// Touched before it was prefetched.
    pub late_bytes: u64,
    /// Touched and not in the pack.
    pub missing_bytes: u64,
}

impl Analysis {
    /// Of a boot of the history.
    pub fn of(number: u64, boot: BootRecord, timeline: Option<Timeline>) -> Self {
        let phases = boot.phases.iter().filter_map(|phase| phase.end_ms);
        let known = phases.chain(boot.default_target_ms).map(us_of_ms);
        let end = known.max().or(timeline.as_ref().map(|t| t.recorded_until_us)).unwrap_or(0);
        // What a boot is followed for is a few minutes at most.
        let end_us = end.min(86_400_000_000);
        let row = |row| timeline.as_ref().map_or(0, |t| t.bins.sum(row));
        let sums = Sums {
            prefetched_bytes: row(Row::Prefetched),
            wasted_bytes: row(Row::Wasted),
            demand_bytes: row(Row::Demand),
            late_bytes: row(Row::Late),
            missing_bytes: row(Row::Missing),
        };
        let idle = timeline
            .as_ref()
            .map_or_else(Vec::new, |t| t.bins.gaps(t.recorded_from_us, end_us, LEAST_GAP_US));
        Self { number, boot, timeline, end_us, sums, idle }
    }

    /// The time in which nothing came in, in µs.
    pub fn idle_us(&self) -> u64 {
        self.idle.iter().map(|gap| gap.to_us - gap.from_us).sum()
    }

    /// The units that took longest to become active, with that time in µs.
    pub fn slowest(&self) -> Vec<(&UnitTimes, u64)> {
        let units = self.timeline.iter().flat_map(|timeline| &timeline.units);
        let started = units.filter(|unit| unit.began().is_some_and(|at| at <= self.end_us));
        let mut slow: Vec<_> = started.filter_map(|unit| Some((unit, unit.took_us()?))).collect();
        slow.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.name.cmp(&b.0.name)));
        slow
    }
}
