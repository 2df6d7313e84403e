//! `bench --waits`: more starts of each state, of which the waits are recorded, and where the difference
//! between prefetched and hot starts is. They are no part of what is measured, since recording takes
//! time.

use super::measure::Bench;
use crate::waited::{PARTS, Part};
use anyhow::bail;
use headstart::outcome::waited::Waited;
use headstart_bench::arm::{Arm, CacheState};
use headstart_view::table::Table;
use headstart_view::units::millis;
use serde::Serialize;

/// Recorded starts of each state; of these the one in the middle is told.
const STARTS: usize = 3;

/// What a start of a state waited for.
#[derive(Serialize, Debug)]
pub struct StateWaits {
    /// The state.
    pub state: &'static str,
    /// How many starts were recorded.
    pub starts: usize,
    /// That of the start in the middle, by its time.
    pub waited: Waited,
}

/// Records starts of these states; none after an interrupt.
///
/// # Errors
/// Waits can't be recorded, or the program fails.
pub fn measure(bench: &Bench, states: &[CacheState]) -> anyhow::Result<Vec<StateWaits>> {
    let mut all = Vec::new();
    for state in states {
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            let Some(run) = bench.measure_waits(Arm::Program { state: *state })? else {
                return Ok(Vec::new());
            };
            match (run.failure, run.waited) {
                (None, Some(waited)) => starts.push(waited),
                (why, _) => bail!("A start with --waits failed: {}", why.unwrap_or_default()),
            }
        }
        starts.sort_by_key(|waited| waited.wall_us);
        let waited = starts.swap_remove(STARTS / 2);
        all.push(StateWaits { state: state.name(), starts: STARTS, waited });
    }
    Ok(all)
}

/// The parts by state, and the difference between prefetched and hot.
pub fn table(all: &[StateWaits]) -> Table {
    let mut table = Table::new().words("ms to the end");
    for state in all {
        table = table.numbers(state.state);
    }
    let of = |state: CacheState| all.iter().find(|waits| waits.state == state.name());
    let both = of(CacheState::Prefetched).zip(of(CacheState::Hot));
    if both.is_some() {
        table = table.numbers("prefetched − hot");
    }
    let ms = |us: f64| if us == 0.0 { String::new() } else { millis(us / 1000.0) };
    let all_of_it: (_, Part) = ("all", |waited| waited.wall_us);
    for (name, part) in PARTS.into_iter().chain([all_of_it]) {
        let mut cells = vec![name.to_owned()];
        cells.extend(all.iter().map(|waits| ms(part(&waits.waited) as f64)));
        cells.extend(both.map(|(prefetched, hot)| {
            ms(part(&prefetched.waited) as f64 - part(&hot.waited) as f64)
        }));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_each_part_is_told_and_that_of_all() {
        let state = |state: CacheState, wall_us, cpu_us, in_flight_us| StateWaits {
            state: state.name(),
            starts: 3,
            waited: Waited { wall_us, cpu_us, in_flight_us, ..Waited::default() },
        };
        let hot = state(CacheState::Hot, 100_000, 100_000, 0);
        let all = [state(CacheState::Prefetched, 150_000, 90_000, 60_000), hot];
        let text = table(&all).text();
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line[name.len()..].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("all"), ["150", "100", "50.0"], "{text}");
        assert_eq!(row("pages in flight"), ["60.0", "60.0"], "{text}");
        assert_eq!(row("on the CPU")[2], "-10.0", "{text}");
        assert!(!table(&all[..1]).text().contains('−'));
    }
}
