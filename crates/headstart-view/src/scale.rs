//! From values of an axis to pixels, and ticks at round values.

use crate::picture::{Axis, Unit};
use crate::units::{grouped, shown_in};

/// How the values of an axis map to a line of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    unit: Unit,
    /// Where `low` is drawn.
    start: f64,
    /// Where `high` is drawn.
    end: f64,
}

impl Scale {
    /// From pixel `start` to pixel `end`.
    pub(crate) fn new(axis: &Axis, start: f64, end: f64) -> Self {
        let Axis { low, high, log, unit, .. } = *axis;
        Self { low, high, log: log && low > 0.0, unit, start, end }
    }

    /// The pixel of a value, kept to the axis.
    pub(crate) fn pixel(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        self.start + share * (self.end - self.start)
    }

    /// At most about `most` values to mark, ascending, each with its label.
    pub(crate) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let most = most.max(2) as f64;
        let ticks = if self.log { self.log_ticks(most) } else { self.linear_ticks(most) };
        let (one, name) = shown_in(self.unit, self.high);
        let digits = |value: f64| (0..4).find(|d| is_whole(value * 10f64.powi(*d))).unwrap_or(4);
        // All have the decimals that one of them needs.
        let decimals = ticks.iter().map(|tick| digits(tick / one)).max().unwrap_or(0) as usize;
        let label = |tick: f64| {
            let own = if self.log { digits(tick / one) as usize } else { decimals };
            let number = grouped(tick / one, own);
            if name.is_empty() { number } else { format!("{number} {name}") }
        };
        ticks.into_iter().map(|tick| (tick, label(tick))).collect()
    }

    /// Multiples of 1, 2 or 5 times a power of ten; of bytes, multiples of a power of two.
    fn linear_ticks(&self, most: f64) -> Vec<f64> {
        let rough = ((self.high - self.low) / most).max(f64::MIN_POSITIVE);
        let is_binary = matches!(self.unit, Unit::Bytes | Unit::BytesPerSecond);
        let step = if is_binary {
            2f64.powf(rough.log2().ceil())
        } else {
            let power = 10f64.powf(rough.log10().floor());
            let steps = [1.0, 2.0, 5.0].map(|times| times * power);
            steps.into_iter().find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(10.0 * power)
        };
        let step = step.max(1.0);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// 1, 2 and 5 of every decade, or fewer when there are many decades.
    fn log_ticks(&self, most: f64) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = match decades / most * 8.0 {
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            d if d < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let every = (to - from) as usize / most as usize + 1;
        (from..=to)
            .step_by(every)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|tick| (self.low..=self.high).contains(tick))
            .collect()
    }
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() <= 1e-6 * value.abs().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::MOST;
    use proptest::prelude::*;

    fn axis(unit: Unit, low: f64, high: f64, log: bool) -> Axis {
        Axis { log, ..Axis::new("", unit, low, high) }
    }

    #[test]
    fn ticks_are_round_numbers_with_their_unit() {
        for (unit, low, high, log, expected) in [
            (Unit::Ns, 0.0, 950e6, false, "0 ms 200 ms 400 ms 600 ms 800 ms"),
            (Unit::Ns, 0.0, 2.4e9, false, "0.0 s 0.5 s 1.0 s 1.5 s 2.0 s"),
            (Unit::Ns, 0.0, 3.0, false, "0 ns 1 ns 2 ns 3 ns"),
            (Unit::Bytes, 0.0, 3e6, false, "0.0 MiB 0.5 MiB 1.0 MiB 1.5 MiB 2.0 MiB 2.5 MiB"),
            (Unit::Count, 0.0, 7.0, false, "0 2 4 6"),
            (Unit::Ns, 7e8, 2e10, true, "1 s 2 s 5 s 10 s 20 s"),
        ] {
            let labels = Scale::new(&axis(unit, low, high, log), 0.0, 1.0).ticks(6);
            let labels: Vec<_> = labels.into_iter().map(|tick| tick.1).collect();
            assert_eq!(labels.join(" "), expected);
        }
    }

    proptest! {
        #[test]
        fn every_value_and_tick_lies_on_the_axis_in_order(
            mut values in prop::collection::vec(
                prop_oneof![0.0..1e12f64, 0.0..f64::MAX, Just(0.0)], 0..20),
            ends in prop::array::uniform2(prop_oneof![0.0..1e12f64, 0.0..MOST as f64]),
            log in any::<bool>(),
            unit in prop_oneof![Just(Unit::Ns), Just(Unit::Bytes), Just(Unit::Count)],
            most in 0usize..20,
        ) {
            values.sort_by(f64::total_cmp);
            let axis = axis(unit, ends[0], ends[1], log);
            let scale = Scale::new(&axis, 10.0, 90.0);
            let pixels: Vec<f64> = values.iter().map(|value| scale.pixel(*value)).collect();
            prop_assert!(pixels.iter().all(|pixel| (10.0..=90.0).contains(pixel)));
            prop_assert!(pixels.is_sorted());
            let ticks = scale.ticks(most);
            prop_assert!(ticks.len() <= 3 * most.max(2) + 3, "{:?}", ticks);
            prop_assert!(ticks.is_sorted_by(|a, b| a.0 < b.0), "{:?}", ticks);
        }
    }
}
