//! What must hold for any data.

use headstart_bench::stats::order::Rng;
use headstart_bench::stats::verdict::Verdict;
use headstart_bench::stats::{fdr, hot, paired, quality, sequential, summary, trend, unpaired};
use proptest::prelude::*;

/// Ordinary times, with ties.
fn times(n: std::ops::Range<usize>) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![3 => 0.001..1e4f64, 1 => (1..5u32).prop_map(f64::from)], n)
}

/// Anything a broken clock or a hostile file may hold.
fn anything() -> impl Strategy<Value = Vec<f64>> {
    let odd = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE];
    let value = prop_oneof![any::<f64>(), prop::sample::select(odd.to_vec()), 0.0..9.0f64];
    prop::collection::vec(value, 0..60)
}

fn shuffled(values: &[f64], seed: u64) -> Vec<f64> {
    let mut values = values.to_vec();
    let mut rng = Rng::new(seed);
    for i in (1..values.len()).rev() {
        values.swap(i, rng.below(i as u64 + 1) as usize);
    }
    values
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-6)
}

proptest! {
    #[test]
    fn no_input_makes_anything_panic(a in anything(), b in anything(), c in any::<f64>()) {
        for warning in quality::check(&a) {
            prop_assert!(!warning.to_string().is_empty());
        }
        summary::summarise(&a);
        trend::trend(&a);
        fdr::adjust(&a);
        unpaired::shift(&a, &b);
        unpaired::Ranks::default().ratio(&a, &b);
        unpaired::welch(&a, &b);
        paired::location(&a);
        let verdict = Verdict::of(paired::ratio(&a, &b).as_ref(), c);
        prop_assert!(!verdict.to_string().is_empty());
        hot::ratio_to_ideal(&a, &b, &[c]);
        let arms = hot::ColdAndHot { cold: &a, hot: &b };
        hot::improvement(arms, arms);
        let rule = sequential::Rule { precision: c, least: 0, most: 5 };
        rule.after_runs(&a);
    }

    #[test]
    fn every_interval_holds_its_estimate(a in times(1..40), b in times(1..40)) {
        let summary = summary::summarise(&a).unwrap();
        if let (Some(mean), Some(median)) = (summary.mean_interval, summary.median_interval) {
            prop_assert!(mean.contains(summary.mean) && median.contains(summary.median));
        }
        let ratio = paired::ratio(&a, &b).unwrap();
        prop_assert!(ratio.interval.contains(ratio.ratio));
        let shift = unpaired::shift(&a, &b).unwrap();
        prop_assert!(shift.interval.contains(shift.estimate));
        for p in [ratio.p, trend::trend(&a).map_or(0.5, |t| t.p)] {
            prop_assert!((0.0..=1.0).contains(&p));
        }
    }

    #[test]
    fn swapping_the_arms_gives_the_reciprocal(a in times(1..40), b in times(1..40)) {
        let n = a.len().min(b.len());
        let there = paired::ratio(&a[..n], &b[..n]).unwrap();
        let back = paired::ratio(&b[..n], &a[..n]).unwrap();
        prop_assert!(close(there.ratio, 1.0 / back.ratio));
        prop_assert!(close(there.interval.low, 1.0 / back.interval.high));
        prop_assert!(close(there.interval.high, 1.0 / back.interval.low));
        prop_assert_eq!(there.p, back.p);

        let there = unpaired::Ranks::default().ratio(&a, &b).unwrap();
        let back = unpaired::Ranks::default().ratio(&b, &a).unwrap();
        prop_assert!(close(there.estimate, 1.0 / back.estimate));
        prop_assert!(close(there.interval.low, 1.0 / back.interval.high));
        if let (Some(there), Some(back)) = (unpaired::welch(&a, &b), unpaired::welch(&b, &a)) {
            prop_assert!(close(there.t, -back.t) || there.t == -back.t);
            prop_assert!(close(there.p, back.p));
        }
    }

    #[test]
    fn the_order_of_unpaired_values_does_not_matter(a in times(2..40), b in times(2..40), seed: u64) {
        let (x, y) = (shuffled(&a, seed), shuffled(&b, seed ^ 1));
        prop_assert_eq!(unpaired::shift(&a, &b), unpaired::shift(&x, &y));
        prop_assert_eq!(unpaired::welch(&a, &b), unpaired::welch(&x, &y));
        prop_assert_eq!(summary::summarise(&a), summary::summarise(&x));
    }

    #[test]
    fn the_order_of_the_rounds_does_not_matter_to_a_paired_ratio(a in times(2..40), seed: u64) {
        let b: Vec<f64> = a.iter().map(|x| (x + 1.0) / 2.0).collect();
        let (x, y) = (shuffled(&a, seed), shuffled(&b, seed));
        prop_assert_eq!(paired::ratio(&a, &b), paired::ratio(&x, &y));
    }

    #[test]
    fn adding_to_and_scaling_the_values_moves_the_answers_along(
        a in times(3..40),
        b in times(3..40),
        add in 0.0..100f64,
        scale in 0.01..100f64,
    ) {
        let moved = |values: &[f64]| values.iter().map(|x| scale * x + add).collect::<Vec<_>>();
        let along = |x: f64| scale * x + add;
        let (before, after) = (summary::summarise(&a).unwrap(), summary::summarise(&moved(&a)).unwrap());
        prop_assert!(close(after.mean, along(before.mean)));
        prop_assert!(close(after.median, along(before.median)));
        let (low, high) = (before.median_interval.unwrap().low, before.median_interval.unwrap().high);
        prop_assert!(close(after.median_interval.unwrap().low, along(low)));
        prop_assert!(close(after.median_interval.unwrap().high, along(high)));
        let tolerance = 1e-9 * scale * 1e4;
        prop_assert!((after.mad - scale * before.mad).abs() < tolerance);
        prop_assert!((after.stddev.unwrap() - scale * before.stddev.unwrap()).abs() < tolerance);

        let (before, after) =
            (paired::location(&a).unwrap(), paired::location(&moved(&a)).unwrap());
        prop_assert!(close(after.estimate, along(before.estimate)));
        prop_assert!(close(after.interval.low, along(before.interval.low)));

        // A shift knows nothing of what is added to both sides …
        let (before, after) =
            (unpaired::shift(&a, &b).unwrap(), unpaired::shift(&moved(&a), &moved(&b)).unwrap());
        prop_assert!((after.estimate - scale * before.estimate).abs() < tolerance);
        prop_assert!((after.interval.low - scale * before.interval.low).abs() < tolerance);
        // … and a ratio nothing of the unit.
        let scaled = |values: &[f64]| values.iter().map(|x| scale * x).collect::<Vec<_>>();
        let before = paired::ratio(&a, &b).unwrap();
        let after = paired::ratio(&scaled(&a), &scaled(&b)).unwrap();
        prop_assert!(close(after.ratio, before.ratio));
        prop_assert!(close(after.interval.high, before.interval.high));
    }

    #[test]
    fn adjusted_p_values_are_no_smaller_and_in_the_same_order(
        p in prop::collection::vec(0.0..=1.0f64, 0..30),
    ) {
        let adjusted = fdr::adjust(&p);
        for i in 0..p.len() {
            prop_assert!(adjusted[i] >= p[i] && adjusted[i] <= 1.0);
            for j in 0..p.len() {
                prop_assert!(p[i] > p[j] || adjusted[i] <= adjusted[j]);
            }
        }
    }
}
