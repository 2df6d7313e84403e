//! How often the intervals and verdicts are right, over thousands of made-up
//! benchmarks. Fixed seeds: a failure is a change of the code, not bad luck.

use headstart_bench::stats::order::Rng;
use headstart_bench::stats::quality::{self, Warning};
use headstart_bench::stats::sequential::{LEAST, Rule, Step};
use headstart_bench::stats::verdict::Verdict;
use headstart_bench::stats::{paired, summary, unpaired};

/// How the times of a program vary.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Normal,
    Lognormal,
    /// Lognormal, but one run in ten takes up to ten times as long.
    HeavyTailed,
}

const SHAPES: [Shape; 3] = [Shape::Normal, Shape::Lognormal, Shape::HeavyTailed];

fn uniform(rng: &mut Rng) -> f64 {
    ((rng.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * uniform(rng).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

impl Shape {
    fn time(self, rng: &mut Rng) -> f64 {
        match self {
            Shape::Normal => (1.0 + 0.05 * normal(rng)).max(0.01),
            Shape::Lognormal => (0.1 * normal(rng)).exp(),
            Shape::HeavyTailed => {
                let slow = if uniform(rng) < 0.1 { 10f64.powf(uniform(rng)) } else { 1.0 };
                (0.1 * normal(rng)).exp() * slow
            }
        }
    }

    /// The true median; the slow runs move it by 5 %.
    fn median(self) -> f64 {
        let mut many = self.times(&mut Rng::new(99), 400_001);
        *many.select_nth_unstable_by(200_000, f64::total_cmp).1
    }

    fn times(self, rng: &mut Rng, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.time(rng)).collect()
    }
}

/// The share of `trials` in which `holds` is true.
fn share(trials: u64, seed: u64, mut holds: impl FnMut(&mut Rng) -> bool) -> f64 {
    let mut rng = Rng::new(seed);
    (0..trials).filter(|_| holds(&mut rng)).count() as f64 / trials as f64
}

#[test]
fn the_interval_of_a_paired_ratio_covers_the_true_ratio() {
    for (seed, shape) in (1..).zip(SHAPES) {
        let covered = share(4000, seed, |rng| {
            let a = shape.times(rng, 20);
            let b: Vec<f64> = shape.times(rng, 20).iter().map(|x| 3.0 * x).collect();
            paired::ratio(&a, &b).unwrap().interval.contains(3.0)
        });
        assert!((0.935..=0.975).contains(&covered), "{shape:?}: {covered}");
    }
}

#[test]
fn the_intervals_of_a_median_and_of_an_unpaired_ratio_cover_the_truth() {
    for (seed, shape) in (1..).zip(SHAPES) {
        let truth = shape.median();
        let covered = share(4000, seed, |rng| {
            let summary = summary::summarise(&shape.times(rng, 20)).unwrap();
            summary.median_interval.unwrap().contains(truth)
        });
        assert!((0.94..=0.975).contains(&covered), "{shape:?}: {covered}");
        let covered = share(4000, seed, |rng| {
            let (a, b) = (shape.times(rng, 12), shape.times(rng, 18));
            unpaired::Ranks::default().ratio(&a, &b).unwrap().interval.contains(1.0)
        });
        assert!((0.94..=0.965).contains(&covered), "{shape:?}: {covered}");
    }
}

#[test]
fn welchs_interval_covers_the_difference_of_means_with_unlike_spreads() {
    let covered = share(4000, 1, |rng| {
        let a = Shape::Normal.times(rng, 8);
        let b: Vec<f64> = Shape::Normal.times(rng, 20).iter().map(|x| 4.0 * x).collect();
        unpaired::welch(&a, &b).unwrap().interval.contains(3.0)
    });
    assert!((0.94..=0.96).contains(&covered), "{covered}");
}

#[test]
fn comparing_a_thing_with_itself_finds_a_difference_in_at_most_five_of_a_hundred() {
    for (rounds, shape) in [6, 10, 20].into_iter().flat_map(|n| SHAPES.map(|shape| (n, shape))) {
        let wrong = share(4000, 11, |rng| {
            let (a, b) = (shape.times(rng, rounds), shape.times(rng, rounds));
            let verdict = Verdict::of(paired::ratio(&a, &b).as_ref(), 0.02);
            matches!(verdict, Verdict::Helps { .. } | Verdict::Hurts { .. })
        });
        // Three standard errors of 4000 trials are 1 %.
        assert!(wrong <= 0.06, "{shape:?}, {rounds} rounds: {wrong}");
    }
}

#[test]
fn twice_as_fast_is_seen_in_six_rounds() {
    let seen = share(500, 1, |rng| {
        let a: Vec<f64> = Shape::Lognormal.times(rng, 6).iter().map(|x| 2.0 * x).collect();
        let b = Shape::Lognormal.times(rng, 6);
        matches!(Verdict::of(paired::ratio(&a, &b).as_ref(), 0.02), Verdict::Helps { .. })
    });
    assert!(seen > 0.99, "{seen}");
}

#[test]
fn stopping_at_a_precision_keeps_the_coverage() {
    let rule = Rule { precision: 0.05, least: LEAST, most: 300 };
    for shape in SHAPES {
        let truth = shape.median();
        let covered = share(1500, 6, |rng| {
            let mut runs = Vec::new();
            while !stopped(rule.after_runs(&runs)) {
                runs.push(shape.time(rng));
            }
            summary::summarise(&runs).unwrap().median_interval.unwrap().contains(truth)
        });
        assert!((0.935..=0.985).contains(&covered), "{shape:?}: {covered}");
    }
}

fn stopped(step: Step) -> bool {
    !matches!(step, Step::GoOn { .. })
}

#[test]
fn undisturbed_runs_are_seldom_warned_about() {
    for n in [6, 10, 20, 50] {
        let warned = share(3000, 3, |rng| !quality::check(&Shape::Normal.times(rng, n)).is_empty());
        assert!(warned < 0.05, "{n} runs: {warned}");
        let slow = share(300, 4, |rng| {
            let mut runs = Shape::Normal.times(rng, n);
            runs[3] = 2.0;
            matches!(quality::check(&runs)[..], [Warning::Outliers { .. }, ..])
        });
        assert!(slow > 0.8, "{n} runs: {slow}");
    }
}
