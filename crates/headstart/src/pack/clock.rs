//! Computes when a start would have touched what only an earlier start touched. Pure.
//!
//! A start under ptrace or with a cold disk takes several times as long as the next one. Without a
//! correction, ranges that no later start sees (such as metadata that replays keep resident) would
//! come long after what needs them.

/// From the times of one start to those of another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Times that correspond, in µs, both in order.
    knots: Vec<(u32, u32)>,
}

impl Clock {
    /// From the times of the first touches of files in both starts, and the starts' durations, in
    /// µs. The nth touch of one start corresponds to the nth of the other, whatever the file:
    /// threads run in any order.
    pub fn between(files: impl Iterator<Item = (u32, u32)>, ends: (u64, u64)) -> Self {
        let (mut from, mut to): (Vec<_>, Vec<_>) = files.unzip();
        from.sort_unstable();
        to.sort_unstable();
        let last = |times: &[u32], end: u64| {
            u32::try_from(end).unwrap_or(u32::MAX).max(times.last().copied().unwrap_or(0))
        };
        let end = (last(&from, ends.0), last(&to, ends.1));
        let mut knots = vec![(0, 0)];
        knots.extend(from.into_iter().zip(to));
        knots.push(end);
        Self { knots }
    }

    /// The time in the other start.
    pub fn at(&self, time: u32) -> u32 {
        // Of equal times the first counts.
        let next = self.knots.partition_point(|(from, _)| *from < time);
        let Some(before) = next.checked_sub(1).and_then(|i| self.knots.get(i)) else { return time };
        let Some(after) = self.knots.get(next) else {
            // Behind the end of both.
            return before.1.saturating_add(time - before.0);
        };
        let (part, whole) = (u64::from(time - before.0), u64::from(after.0 - before.0));
        // Not more than the distance of the two, which fits.
        before.1 + (u64::from(after.1 - before.1) * part / whole.max(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_lies_between_two_files_stays_between_them() {
        let clock = Clock::between([(900, 90), (100, 50)].into_iter(), (2000, 400));
        for (name, time, expected) in [
            ("the beginning", 0, 0),
            ("before the first", 50, 25),
            ("as the first", 100, 50),
            ("between", 500, 70),
            ("as the last", 900, 90),
            ("behind it", 1450, 245),
            ("the end", 2000, 400),
            ("behind the end", 2010, 410),
        ] {
            assert_eq!(clock.at(time), expected, "{name}");
        }
    }

    #[test]
    fn what_comes_with_several_files_comes_with_the_first_of_them() {
        let clock = Clock::between([(100, 50), (100, 70), (100, 60)].into_iter(), (100, 80));
        assert_eq!(clock.at(100), 50);
    }

    #[test]
    fn without_a_clock_times_stay() {
        assert_eq!(Clock::default().at(77), 77);
    }

    proptest! {
        #[test]
        fn the_order_is_kept(
            files in proptest::collection::vec(any::<(u32, u32)>(), 0..9),
            ends: (u64, u64), mut times in proptest::collection::vec(any::<u32>(), 0..9)
        ) {
            let clock = Clock::between(files.into_iter(), ends);
            times.sort_unstable();
            let found: Vec<_> = times.iter().map(|time| clock.at(*time)).collect();
            prop_assert!(found.is_sorted());
        }
    }
}
