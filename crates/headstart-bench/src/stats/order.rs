//! The order of the arms of a benchmark.
//!
//! Each round runs every arm once in a random order, so that neither drift nor the arm before
//! favours one of them. The order follows from a seed: a report that names the seed names the
//! design.

/// Sebastiano Vigna's SplitMix64: one addition and one mixing step a number.
/// Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers, on every machine and in every
    /// version.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `end`; 0 when `end` is 0. The most and the least
    /// likely result differ by less than `end` in 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }
}

/// The order of the arms, round after round, without end.
#[derive(Debug, Clone)]
pub struct Order {
    rng: Rng,
    arms: usize,
}

impl Order {
    /// Orders for this many arms. Later rounds do not change earlier ones, so a
    /// design can grow.
    pub fn new(seed: u64, arms: usize) -> Order {
        Order { rng: Rng::new(seed), arms }
    }
}

impl Iterator for Order {
    type Item = Vec<usize>;

    /// The arms of the next round (numbered from 0), every order as likely.
    fn next(&mut self) -> Option<Vec<usize>> {
        let mut arms: Vec<usize> = (0..self.arms).collect();
        for i in (1..arms.len()).rev() {
            arms.swap(i, self.rng.below(i as u64 + 1) as usize);
        }
        Some(arms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference_implementation() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_seed_names_the_design() {
        let design = |seed| Order::new(seed, 4).take(5).collect::<Vec<_>>();
        assert_eq!(design(7), design(7));
        assert_ne!(design(7), design(8));
        assert_eq!(design(7)[..], Order::new(7, 4).take(9).collect::<Vec<_>>()[..5]);
    }

    #[test]
    fn every_round_runs_every_arm_once_and_every_order_comes_up_as_often() {
        let mut seen = std::collections::BTreeMap::new();
        for mut round in Order::new(1, 3).take(6000) {
            *seen.entry(round.clone()).or_insert(0) += 1;
            round.sort();
            assert_eq!(round, [0, 1, 2]);
        }
        assert_eq!(seen.len(), 6);
        // 1000 expected, standard deviation 29.
        assert!(seen.values().all(|&n| (880..1120).contains(&n)), "{seen:?}");
    }

    #[test]
    fn no_arms_and_no_range_are_no_trouble() {
        assert_eq!(Order::new(1, 0).next(), Some(vec![]));
        assert_eq!(Order::new(1, 1).next(), Some(vec![0]));
        assert_eq!((Rng::new(1).below(0), Rng::new(1).below(1)), (0, 0));
    }
}
