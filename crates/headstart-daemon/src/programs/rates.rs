//! How many execs of each executable are looked at: a compiler that is executed ten thousand times
//! a minute costs next to nothing. Pure.

use std::collections::HashMap;

/// Executables that are counted in a minute. What comes beyond is skipped.
const MOST_EXECUTABLES: usize = 4096;
/// Looks at an executable in a minute: without a program that was ever slow, and with one.
const FEW: u32 = 20;
const MANY: u32 = 600;
/// Looks in a minute at all executables of either kind: each takes 60 µs, and together 0.3 % of a CPU.
const ALL_FEW: u32 = 1000;
const ALL_MANY: u32 = 2000;

/// Counts the looks of the present minute.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    minute: u64,
    all: [u32; 2],
    counts: HashMap<u64, u32>,
}

impl Rates {
    /// Whether one more exec of this executable, by a hash of its path, is looked at.
    /// `is_known`: one of its programs was slow.
    pub fn admits(&mut self, executable: u64, is_known: bool, now_ms: u64) -> bool {
        let minute = now_ms / 60_000;
        if minute != self.minute {
            *self = Self { minute, ..Self::default() };
        }
        let (most, most_of_all) = if is_known { (MANY, ALL_MANY) } else { (FEW, ALL_FEW) };
        let all = &mut self.all[usize::from(is_known)];
        if *all >= most_of_all {
            return false;
        }
        let is_new = !self.counts.contains_key(&executable);
        if is_new && self.counts.len() >= MOST_EXECUTABLES {
            return false;
        }
        let count = self.counts.entry(executable).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        *all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many execs are looked at.
    fn admitted(rates: &mut Rates, execs: u32, of: impl Fn(u32) -> u64, is_known: bool) -> u32 {
        (0..execs).filter(|number| rates.admits(of(*number), is_known, 0)).count() as u32
    }

    #[test]
    fn an_executable_without_slow_programs_is_looked_at_a_few_times_a_minute() {
        let mut rates = Rates::default();
        assert_eq!(admitted(&mut rates, 10_000, |_| 1, false), FEW);
        assert_eq!(admitted(&mut rates, 10_000, |_| 2, true), MANY);
        assert!(rates.admits(1, false, 60_000), "the next minute");
        assert_eq!(rates.counts.len(), 1);
    }

    #[test]
    fn all_executables_together_are_bounded_too() {
        let mut rates = Rates::default();
        let many = |number: u32| u64::from(number / 10);
        assert_eq!(admitted(&mut rates, 50_000, many, false), ALL_FEW);
        assert_eq!(admitted(&mut rates, 50_000, |number| 1 << 40 | many(number), true), ALL_MANY);
        assert!(rates.counts.len() <= MOST_EXECUTABLES);
    }
}
