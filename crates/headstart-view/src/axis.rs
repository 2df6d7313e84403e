//! A value axis: from values to pixels, and ticks at round values.

use super::units::grouped;

/// Wider spans than this factor are drawn on a logarithmic scale.
const LOG_FROM: f64 = 20.0;

/// Smaller values are noise of a start time, and would be drawn decades away.
const LOG_TO: f64 = 1e-6;

/// How values map to a line of pixels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    pub(super) log: bool,
    /// Where `low` is drawn.
    start: f64,
    /// Where `high` is drawn.
    end: f64,
}

impl Axis {
    /// An axis for all of the values (finite, at least 0), drawn from pixel
    /// `start` to pixel `end`. It begins at 0 unless the values lie so close
    /// together that this would hide how they differ.
    pub(super) fn new(values: &[f64], start: f64, end: f64) -> Axis {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(0.0, f64::max);
        // From the smallest time a picture can show to the longest start
        // anyone waited for: pixels stay finite.
        if !(1e-9..1e15).contains(&max) {
            return Axis {
                low: 0.0,
                high: if max > 1.0 { 1e15 } else { 1.0 },
                log: false,
                start,
                end,
            };
        }
        if min >= LOG_TO && max / min > LOG_FROM {
            let pad = (max / min).powf(0.04);
            return Axis { low: min / pad, high: max * pad, log: true, start, end };
        }
        let low = if min > 0.6 * max && min < max {
            min - 0.3 * (max - min).max(0.02 * max)
        } else {
            0.0
        };
        Axis { low, high: max + 0.06 * (max - low), log: false, start, end }
    }

    /// The pixel of a value, kept to the axis.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Values to mark, ascending, each with its label.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    /// Multiples of 1, 2 or 5 times a power of ten: four to eight of them.
    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let rough = (self.high - self.low) / 8.0;
        let power = rough.log10().floor();
        let unit = 10f64.powf(power);
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|times| times * unit)
            .into_iter()
            .find(|step| *step >= rough * (1.0 - 1e-9))
            .unwrap_or(10.0 * unit);
        let decimals = (-(step.log10() + 1e-9).floor()).max(0.0) as usize;
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|i| i as f64 * step)
            .map(|tick| (tick, grouped(tick, decimals)))
            .collect()
    }

    /// 1, 2 and 5 of every decade, or fewer when there are many decades.
    fn log_ticks(&self) -> Vec<(f64, String)> {
        let decades = (self.high / self.low).log10();
        let digits: &[f64] = match decades {
            d if d < 2.5 => &[1.0, 2.0, 5.0],
            d if d < 4.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        // So many decades that even their ends would overlap.
        let every = (to - from) as usize / 10 + 1;
        (from..=to)
            .step_by(every)
            .flat_map(|power| digits.iter().map(move |digit| (digit * 10f64.powi(power), power)))
            .filter(|(tick, _)| (self.low..=self.high).contains(tick))
            .map(|(tick, power)| (tick, grouped(tick, (-power).max(0) as usize)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(values: &[f64]) -> Vec<String> {
        Axis::new(values, 0.0, 100.0).ticks().into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (values, expected) in [
            (vec![120.0, 950.0], "0 200 400 600 800 1,000"),
            (vec![411.0, 418.0], "410 412 414 416 418"),
            (vec![0.3, 0.31], "0.298 0.300 0.302 0.304 0.306 0.308 0.310"),
            (vec![702.0, 18_849.0], "1,000 2,000 5,000 10,000 20,000"),
            (vec![0.02, 3.0], "0.02 0.05 0.1 0.2 0.5 1 2"),
            (vec![1.0, 1e6], "1 10 100 1,000 10,000 100,000 1,000,000"),
            (vec![7.0], "0 1 2 3 4 5 6 7"),
            (vec![], "0.0 0.2 0.4 0.6 0.8 1.0"),
            (vec![0.0, 0.0], "0.0 0.2 0.4 0.6 0.8 1.0"),
        ] {
            assert_eq!(labels(&values).join(" "), expected, "{values:?}");
        }
    }

    #[test]
    fn a_span_beyond_twenty_times_is_logarithmic() {
        assert!(!Axis::new(&[10.0, 200.0], 0.0, 1.0).log);
        assert!(Axis::new(&[10.0, 201.0], 0.0, 1.0).log);
        assert!(!Axis::new(&[0.0, 201.0], 0.0, 1.0).log, "0 has no logarithm");
    }

    proptest! {
        #[test]
        fn every_value_and_tick_lies_on_the_axis_in_order(
            mut values in prop::collection::vec(
                prop_oneof![0.0..1e5f64, 0.0..f64::MAX, Just(0.0), Just(f64::MIN_POSITIVE)], 0..20),
        ) {
            values.sort_by(f64::total_cmp);
            let axis = Axis::new(&values, 10.0, 90.0);
            let pixels: Vec<f64> = values.iter().map(|value| axis.pixel(*value)).collect();
            prop_assert!(pixels.iter().all(|pixel| (10.0..=90.0).contains(pixel)));
            prop_assert!(pixels.is_sorted());
            let ticks = axis.ticks();
            prop_assert!(ticks.len() <= 14, "{:?}", ticks);
            prop_assert!(ticks.is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1), "{:?}", ticks);
        }
    }
}
