//! Every figure of `fixtures/stats/scipy.json` (made by `make.py` next to it).

use headstart_bench::stats::{Interval, fdr, paired, summary, trend, unpaired};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    sets: Vec<Set>,
    pairs: Vec<Pair>,
    ties: Vec<Ties>,
    tied_trends: Vec<TiedTrend>,
    fdr: Fdr,
}

#[derive(Deserialize)]
struct Set {
    name: String,
    x: Vec<f64>,
    summary: Summary,
    signed_rank: Location,
    trend: Trend,
}

#[derive(Deserialize)]
struct Summary {
    mean: f64,
    stddev: f64,
    median: f64,
    mad: f64,
    mean_interval: [f64; 2],
    median_interval: [f64; 3],
}

#[derive(Deserialize)]
struct Location {
    estimate: f64,
    interval: [f64; 2],
    #[serde(default)]
    p: f64,
}

#[derive(Deserialize)]
struct Trend {
    slope: f64,
    p: f64,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    a: Vec<f64>,
    b: Vec<f64>,
    shift: Location,
    welch: Welch,
}

#[derive(Deserialize)]
struct Welch {
    t: f64,
    df: f64,
    p: f64,
    interval: [f64; 2],
}

#[derive(Deserialize)]
struct Ties {
    x: Vec<f64>,
    p: f64,
}

#[derive(Deserialize)]
struct TiedTrend {
    x: Vec<f64>,
    trend: Trend,
}

#[derive(Deserialize)]
struct Fdr {
    p: Vec<f64>,
    adjusted: Vec<f64>,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("../../../../fixtures/stats/scipy.json"))
        .expect("make.py writes what this reads")
}

#[track_caller]
fn same(what: &str, found: f64, expected: f64) {
    let error = (found - expected).abs() / expected.abs().max(1e-300);
    assert!(found == expected || error < 1e-9, "{what}: {found} instead of {expected}");
}

#[track_caller]
fn same_ends(what: &str, found: Interval, expected: [f64; 2]) {
    same(&format!("{what}, low"), found.low, expected[0]);
    same(&format!("{what}, high"), found.high, expected[1]);
}

#[test]
fn summaries_are_those_of_scipy() {
    for set in fixture().sets {
        let (found, expected) = (summary::summarise(&set.x).unwrap(), set.summary);
        let name = &set.name;
        same(name, found.mean, expected.mean);
        same(name, found.stddev.unwrap(), expected.stddev);
        same(name, found.median, expected.median);
        same(name, found.mad, expected.mad);
        same_ends(name, found.mean_interval.unwrap(), expected.mean_interval);
        let [low, high, confidence] = expected.median_interval;
        same_ends(name, found.median_interval.unwrap(), [low, high]);
        same(name, found.median_interval.unwrap().confidence, confidence);
    }
}

#[test]
fn signed_rank_intervals_are_what_scipys_test_accepts() {
    for set in fixture().sets {
        let found = paired::location(&set.x).unwrap();
        same(&set.name, found.estimate, set.signed_rank.estimate);
        same_ends(&set.name, found.interval, set.signed_rank.interval);
        same(&set.name, found.p, set.signed_rank.p);
        assert_eq!(found.exact, set.x.len() <= 50, "{}", set.name);
    }
}

#[test]
fn signed_rank_p_values_with_ties_and_zeros_count_every_assignment_of_signs() {
    for (i, case) in fixture().ties.into_iter().enumerate() {
        same(&format!("case {i}"), paired::location(&case.x).unwrap().p, case.p);
    }
}

#[test]
fn shifts_and_welch_tests_are_those_of_scipy() {
    for pair in fixture().pairs {
        let name = &pair.name;
        let found = unpaired::shift(&pair.a, &pair.b).unwrap();
        same(name, found.estimate, pair.shift.estimate);
        same_ends(name, found.interval, pair.shift.interval);
        let found = unpaired::welch(&pair.a, &pair.b).unwrap();
        same(name, found.t, pair.welch.t);
        same(name, found.df, pair.welch.df);
        same(name, found.p, pair.welch.p);
        same_ends(name, found.interval, pair.welch.interval);
    }
}

#[test]
fn trends_are_those_of_scipy() {
    let fixture = fixture();
    let sets = fixture.sets.into_iter().map(|set| (set.name, set.x, set.trend));
    let tied = fixture.tied_trends.into_iter().map(|case| ("tied".to_owned(), case.x, case.trend));
    for (name, x, expected) in sets.chain(tied) {
        let found = trend::trend(&x).unwrap();
        same(&name, found.slope, expected.slope);
        same(&name, found.p, expected.p);
    }
}

#[test]
fn adjusted_p_values_are_those_of_scipy() {
    let Fdr { p, adjusted } = fixture().fdr;
    for (found, expected) in fdr::adjust(&p).into_iter().zip(adjusted) {
        same("adjusted", found, expected);
    }
}
