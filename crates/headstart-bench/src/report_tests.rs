//! Tests of the report, on made-up runs.

use super::*;
use crate::arm::arms;
use crate::run::{Prefetch, Run};
use headstart::replay::report::Stopped;

/// Ten values round `centre` that differ by a few per cent.
fn around(centre: f64, seed: u32) -> Vec<f64> {
    let wobble = |i: u32| f64::from((i * 7 + seed * 3) % 11) / 11.0 - 0.5;
    (0..10).map(|i| centre * (1.0 + 0.04 * wobble(i))).collect()
}

fn arm(name: &str, times: &[f64], read_bytes: u64) -> ArmRuns {
    let run = |(i, time): (usize, &f64)| Run {
        round: i + 1,
        wall_s: Some(*time).filter(|time| time.is_finite()),
        failure: (!time.is_finite()).then(|| "it ended with status 1".into()),
        read_bytes: Some(read_bytes),
        ..Run::default()
    };
    ArmRuns { name: name.into(), runs: times.iter().enumerate().map(run).collect() }
}

const MIB: u64 = 1 << 20;

/// Cold 2 s, prefetched 0.3 s, hot 0.1 s, floor 0.2 s.
fn usual() -> (Vec<Arm>, Vec<ArmRuns>) {
    let arms = arms(&[CacheState::Cold, CacheState::Prefetched, CacheState::Hot], &[], true);
    let runs = vec![
        arm("cold", &around(2.0, 1), 16 * MIB),
        arm("prefetched", &around(0.3, 2), 16 * MIB),
        arm("hot", &around(0.1, 3), 0),
        arm("floor", &around(0.2, 4), 15 * MIB),
    ];
    (arms, runs)
}

#[test]
fn a_usual_benchmark_is_summed_up_with_a_verdict_and_no_warning() {
    let (arms, runs) = usual();
    let found = report(&arms, &[], &runs, &[], 0.02);
    assert_eq!(found.warnings, [""; 0]);
    let median = |i: usize| found.arms[i].time().unwrap().median;
    assert!((median(0) - 2.0).abs() < 0.05 && (median(3) - 0.2).abs() < 0.01);
    let pairs: Vec<(&str, &str)> =
        found.comparisons.iter().map(|c| (c.arm.as_str(), c.with.as_str())).collect();
    assert_eq!(pairs, [("prefetched", "cold"), ("hot", "cold")]);
    assert!(matches!(found.verdict(), Some(Verdict::Helps { by }) if (by.times - 6.7).abs() < 0.3));
    let limit = found.limit.unwrap();
    assert_eq!(limit.bound, Bound::Floor);
    assert!((limit.ratio.ratio - 1.5).abs() < 0.05);
    let [part] = &found.io_parts[..] else { panic!("{:?}", found.io_parts) };
    assert!((part.change_s.estimate + 1.7).abs() < 0.05);
    let left = part.left.as_ref().unwrap().estimate;
    assert!((left - 0.2 / 1.9).abs() < 0.01, "{left}");
}

#[test]
fn without_cold_starts_selectively_cold_ones_are_what_is_compared_with() {
    let (_, mut runs) = usual();
    runs[0].name = "selective".into();
    let arms = arms(&[CacheState::Selective, CacheState::Prefetched, CacheState::Hot], &[], true);
    let found = report(&arms, &[], &runs, &[], 0.02);
    assert_eq!(found.comparisons[0].with, "selective");
    assert_eq!(found.comparisons.len(), 2, "nothing is compared with itself");
    let without_hot = report(&arms[..2], &[], &runs[..2], &[], 0.02);
    assert!(without_hot.limit.is_none() && without_hot.io_parts.is_empty());
}

#[test]
fn peers_are_compared_with_the_cold_start_and_with_headstart() {
    let peers: Vec<Peer> = ["v=x", "old:=x"].iter().map(|text| text.parse().unwrap()).collect();
    let arms = arms(&[CacheState::Cold, CacheState::Prefetched, CacheState::Hot], &peers, false);
    let mut runs = usual().1[..3].to_vec();
    runs.push(arm("v", &around(1.0, 5), 30 * MIB));
    runs.push(arm("old cold", &around(2.6, 6), 16 * MIB));
    runs.push(arm("old hot", &around(0.2, 7), 0));
    let found = report(&arms, &peers, &runs, &[], 0.02);
    let text: Vec<String> = found
        .comparisons
        .iter()
        .map(|c| format!("{}/{} {:.1}", c.arm, c.with, c.ratio.as_ref().unwrap().ratio))
        .collect();
    assert_eq!(
        text,
        [
            "prefetched/cold 0.2",
            "v/cold 0.5",
            "prefetched/v 0.3",
            "old cold/cold 1.3",
            "old hot/hot 2.0",
            "hot/cold 0.1"
        ]
    );
    let old = found.io_parts.iter().find(|part| part.arm == "old cold").unwrap();
    assert!((old.change_s.estimate - 0.5).abs() < 0.1, "{old:?}");
}

#[test]
fn a_difference_that_may_be_chance_is_not_called() {
    let ratio = |p| PairedRatio {
        pairs: 20,
        skipped: 0,
        ratio: 1.1,
        interval: crate::stats::Interval { low: 1.03, high: 1.2, confidence: 0.95 },
        p,
        exact: true,
    };
    assert!(matches!(judge(Some(&ratio(0.009)), 0.02), Verdict::Hurts { .. }));
    assert!(matches!(judge(Some(&ratio(0.03)), 0.02), Verdict::Unresolved { between: Some(_) }));
    assert!(matches!(judge(None, 0.02), Verdict::Unresolved { between: None }));
}

#[test]
fn runs_that_failed_were_warm_left_files_out_or_ended_early_are_reported() {
    let (arms, mut runs) = usual();
    runs[0].runs[3].read_bytes = Some(MIB);
    runs[0].runs[5].wall_s = None;
    runs[0].runs[5].failure = Some("it ended with status 1".into());
    runs[1].runs[0].prefetch = Some(Prefetch {
        files_skipped: 3,
        stopped: Some(Stopped::Reclaimed),
        ..Prefetch::default()
    });
    runs[2].runs.iter_mut().for_each(|run| run.read_bytes = Some(2 * MIB));
    let warnings = report(&arms, &[], &runs, &[], 0.02).warnings;
    for (warning, expected) in warnings.iter().zip([
        "cold: The first run that failed: it ended with status 1",
        "cold: 1 of 10 runs gave no usable value",
        "cold: One run was not cold: round 4 read less than half of the usual 16.0 MiB",
        "prefetched: 3 of the pack's files were not prefetched",
        "prefetched: 1 of 10 replays ended early: memory is being reclaimed. Free memory",
        "hot: Hot starts read 2048 KiB, where cold ones read 16384",
    ]) {
        assert!(warning.starts_with(expected), "{warning}");
    }
    assert_eq!(warnings.len(), 6, "{warnings:#?}");
}

#[test]
fn what_concerns_several_arms_is_said_once() {
    let (arms, runs) = usual();
    let few = |arm: &ArmRuns| ArmRuns { runs: arm.runs[..3].to_vec(), ..arm.clone() };
    let warnings =
        report(&arms, &[], &runs.iter().map(few).collect::<Vec<_>>(), &[], 0.02).warnings;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.starts_with("cold, prefetched, hot, floor: 3 runs are too few"), "{warning}");
}

#[test]
fn programs_without_io_have_no_share_of_it_left() {
    let arms = arms(&[CacheState::Cold, CacheState::Prefetched, CacheState::Hot], &[], false);
    let runs = vec![
        arm("cold", &around(0.1, 1), 0),
        arm("prefetched", &around(0.1, 2), 0),
        arm("hot", &around(0.1, 3), 0),
    ];
    let found = report(&arms, &[], &runs, &[], 0.05);
    assert!(found.io_parts[0].left.is_none());
    assert!(matches!(found.verdict(), Some(Verdict::NoDifferenceBiggerThan { .. })));
}

#[test]
fn accuracy_splits_the_plan_by_class() {
    let outcome =
        PageCounts { late_pages: 2, wasted_pages: 3, missing_pages: 4, ..PageCounts::default() };
    let found = Accuracy::of(&outcome, 10, 4096);
    let expected = Accuracy {
        planned: 40_960,
        used: 5 * 4096,
        late: 2 * 4096,
        wasted: 3 * 4096,
        missing: 4 * 4096,
    };
    assert_eq!(found, expected);
    assert_eq!(Accuracy::of(&outcome, 1, 4096).used, 0, "packs change under a trace");
}
