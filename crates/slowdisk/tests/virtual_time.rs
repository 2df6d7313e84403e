//! The model core against closed forms, in virtual time: needs no root, no
//! disk and no clock.
#![allow(clippy::disallowed_methods)] // Its files end.

use proptest::prelude::*;
use slowdisk::model::{BUILT_IN, Device, Model, Seek};
use slowdisk::sched::{Nanos, Op, Request, Scheduler};
use slowdisk::sim::{alternating_reads, closed_loop, random_reads, sequential_reads};

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;

fn device(name: &str) -> Device {
    Model::find(name).ok().and_then(|model| model.device).expect("a built-in, modelled disk")
}

fn flat(latency_us: f64, queue_depth: u32, bandwidth_mb_s: f64, iops: Option<f64>) -> Device {
    let (read_latency_us, write_latency_us) = (latency_us, latency_us / 2.0);
    Device { read_latency_us, write_latency_us, queue_depth, bandwidth_mb_s, iops, seek: None }
}

#[track_caller]
fn close(measured: f64, expected: f64, tolerance: f64) {
    let error = measured / expected - 1.0;
    assert!(error.abs() <= tolerance, "{measured} is {:+.2} % off {expected}", error * 100.0);
}

#[test]
fn latency_at_depth_1_is_the_models_latency_and_the_transfer() {
    for (name, _) in BUILT_IN {
        let Some(device) = Model::find(name).unwrap().device else { continue };
        if device.seek.is_some() {
            continue;
        }
        let run = closed_loop(&device, GIB, 1, &random_reads(GIB, PAGE, 500, 1));
        let expected = device.read_latency_us + PAGE as f64 / device.bandwidth_mb_s;
        close(run.mean_latency(), expected * 1000.0, 0.001);
    }
}

#[test]
fn throughput_at_depth_is_what_latency_queue_rate_and_channel_allow() {
    for (device, clients, len, expected) in [
        (flat(1000.0, 8, 1000.0, None), 8, PAGE, 8e6 / 1004.096),
        (flat(1000.0, 8, 1000.0, None), 64, PAGE, 8e6 / 1004.096),
        (flat(1000.0, 64, 1000.0, None), 16, PAGE, 16e6 / 1004.096),
        (flat(1000.0, 64, 1000.0, Some(3000.0)), 64, PAGE, 3000.0),
        (flat(1000.0, 64, 100.0, None), 64, 65_536, 100e6 / 65_536.0),
        (device("cloud-lazy"), 32, PAGE, 3000.0),
        (device("sata-ssd"), 32, PAGE, 50_000.0),
        (device("emmc"), 32, PAGE, 1e6 / (300.0 + 4096.0 / 150.0)),
    ] {
        let run = closed_loop(&device, GIB, clients, &random_reads(GIB, len, 20_000, 2));
        close(run.requests_per_s(), expected, 0.01);
    }
}

#[test]
fn large_reads_in_order_come_at_the_models_bandwidth() {
    const MIB: u64 = 1 << 20;
    for name in ["hdd", "sata-ssd", "cloud", "cloud-lazy"] {
        let device = device(name);
        let run = closed_loop(&device, GIB, 4, &sequential_reads(GIB, MIB, 1000));
        close(run.requests_per_s() * MIB as f64, device.bandwidth_mb_s * 1e6, 0.02);
    }
}

#[test]
fn the_mean_seek_at_random_is_eight_fifteenths_of_a_full_stroke() {
    // The mean of sqrt(|x - y|) over the unit square is 8/15.
    let device = device("hdd");
    let seek = device.seek.clone().unwrap();
    let arm = seek.settle_us + (seek.full_stroke_us - seek.settle_us) * 8.0 / 15.0;
    let transfer = PAGE as f64 / device.bandwidth_mb_s;
    let expected = device.read_latency_us + arm + seek.half_turn_us() + transfer;
    let run = closed_loop(&device, GIB, 1, &random_reads(GIB, PAGE, 20_000, 3));
    close(run.mean_latency(), expected * 1000.0, 0.01);
    close(expected, 8330.0, 0.01);
}

#[test]
fn a_move_over_a_known_distance_takes_the_formulas_time() {
    let device = device("hdd");
    let seek = device.seek.clone().unwrap();
    for share in [0.01, 0.1, 0.5, 0.9] {
        let distance = (GIB as f64 * share) as u64;
        let reads = alternating_reads(distance, PAGE, 1001);
        let run = closed_loop(&device, GIB, 1, &reads);
        let arm = seek.settle_us + (seek.full_stroke_us - seek.settle_us) * share.sqrt();
        let expected = device.read_latency_us + arm + seek.half_turn_us() + 40.96;
        close(run.mean_latency(), expected * 1000.0, 0.005);
    }
}

#[test]
fn a_short_gap_ahead_is_read_over_but_not_one_behind() {
    let device = device("hdd");
    let ahead = [Request::read(0, PAGE), Request::read(2 * PAGE, PAGE)];
    let run = closed_loop(&device, GIB, 1, &ahead);
    assert_eq!(run.latencies[1], 100_000 + 2 * 40_960, "a gap of one page and the page itself");
    let behind = [Request::read(0, PAGE), Request::read(0, PAGE)];
    assert!(closed_loop(&device, GIB, 1, &behind).latencies[1] > 4_000_000);
}

#[test]
fn a_deep_queue_makes_the_hard_disk_faster_by_shorter_seeks() {
    let device = device("hdd");
    let reads = random_reads(GIB, PAGE, 20_000, 4);
    let one = closed_loop(&device, GIB, 1, &reads).requests_per_s();
    let deep = closed_loop(&device, GIB, 32, &reads).requests_per_s();
    close(one, 120.0, 0.02);
    close(deep, 171.0, 0.02);
}

#[test]
fn the_arm_takes_the_nearest_ahead_and_turns_back_at_the_end() {
    let mut scheduler = Scheduler::new(device("hdd"), GIB);
    for (i, place) in [500, 900, 100, 600, 400].into_iter().enumerate() {
        scheduler.arrive(0, Request::read(place * PAGE, PAGE), i);
    }
    let mut order = Vec::new();
    while let Some(done) = scheduler.complete(Nanos::MAX) {
        order.push(done.request.offset / PAGE);
    }
    assert_eq!(order, [500, 600, 900, 100, 400]);
}

#[test]
fn the_arm_sees_only_the_oldest_of_its_window() {
    let mut device = device("hdd");
    device.seek = device.seek.map(|seek| Seek { window: 2, ..seek });
    let mut scheduler = Scheduler::new(device, GIB);
    for place in [0, 900, 800, 10] {
        scheduler.arrive(0, Request::read(place * PAGE, PAGE), ());
    }
    let order: Vec<_> = std::iter::from_fn(|| scheduler.complete(Nanos::MAX))
        .map(|done| done.request.offset / PAGE)
        .collect();
    assert_eq!(order, [0, 800, 900, 10]);
}

#[test]
fn a_flush_takes_the_write_latency_and_leaves_head_and_channel_alone() {
    let mut scheduler = Scheduler::new(flat(1000.0, 8, 1.0, Some(1.0)), GIB);
    scheduler.arrive(0, Request { op: Op::Flush, offset: 0, len: 0 }, ());
    scheduler.arrive(0, Request { op: Op::Discard, offset: 0, len: GIB }, ());
    scheduler.arrive(0, Request::read(0, 1000), ());
    let due: Vec<_> =
        std::iter::from_fn(|| scheduler.complete(Nanos::MAX)).map(|d| d.due).collect();
    assert_eq!(due, [500_000, 500_000, 2_000_000]);
}

#[test]
fn a_completion_is_not_handed_out_before_it_is_due() {
    let mut scheduler = Scheduler::new(flat(1000.0, 1, 1000.0, None), GIB);
    scheduler.arrive(7, Request::read(0, 1000), ());
    assert_eq!(scheduler.next_due(), Some(1_001_007));
    assert!(scheduler.complete(1_001_006).is_none());
    assert!(scheduler.complete(1_001_007).is_some());
    assert_eq!(scheduler.next_due(), None);
}

#[test]
fn another_device_takes_over_what_waits_and_has_its_own_depth() {
    let rate = |old: u32, new: u32| {
        let mut scheduler = Scheduler::new(flat(1000.0, old, 1e6, None), GIB);
        for _ in 0..100 {
            scheduler.arrive(0, Request::read(0, 0), ());
        }
        scheduler.set_device(flat(2000.0, new, 1e6, None));
        let due: Vec<_> =
            std::iter::from_fn(|| scheduler.complete(Nanos::MAX)).map(|d| d.due).collect();
        assert_eq!(due.len(), 100);
        due[99] - due[49]
    };
    assert_eq!(rate(8, 1), 100_000_000);
    assert_eq!(rate(1, 5), 20_000_000);
}

fn any_device() -> impl Strategy<Value = Device> {
    let seek = prop::option::of((0.0..2000.0, 0.0..9000.0, 3600.0..15_000.0, 1u32..40));
    let iops = prop::option::of(50.0..50_000.0);
    (0.0..3000.0, 1u32..20, 1.0..1000.0, iops, seek).prop_map(|(latency, depth, mb_s, iops, s)| {
        let seek = s.map(|(settle_us, more, rpm, window)| Seek {
            settle_us,
            full_stroke_us: settle_us + more,
            rpm,
            window,
        });
        Device { seek, ..flat(latency, depth, mb_s, iops) }
    })
}

fn any_load() -> impl Strategy<Value = Vec<(Nanos, Request)>> {
    let op = prop_oneof![8 => Just(Op::Read), 3 => Just(Op::Write), 1 => Just(Op::Flush)];
    let one = (0u64..3_000_000, op, 0..GIB / PAGE, 1u64..64);
    prop::collection::vec(one, 1..150).prop_map(|list| {
        let mut now = 0;
        let mut place = |(gap, op, page, pages): (u64, Op, u64, u64)| {
            now += gap;
            (now, Request { op, offset: page * PAGE, len: pages * PAGE })
        };
        list.into_iter().map(&mut place).collect()
    })
}

/// Plays a load; completions are taken out whenever `lag` has passed.
fn play(device: &Device, load: &[(Nanos, Request)], lag: Nanos) -> Vec<(usize, Nanos, Nanos)> {
    let mut scheduler = Scheduler::new(device.clone(), GIB);
    let mut out = Vec::new();
    for (i, (at, request)) in load.iter().enumerate() {
        while let Some(done) = scheduler.complete(at.saturating_sub(lag)) {
            out.push((done.tag, done.arrived, done.due));
        }
        scheduler.arrive(*at, *request, i);
    }
    while let Some(done) = scheduler.complete(Nanos::MAX) {
        out.push((done.tag, done.arrived, done.due));
    }
    out.sort_unstable();
    out
}

proptest! {
    #[test]
    fn every_request_is_answered_once_and_not_before_its_latency(
        device in any_device(), load in any_load(),
    ) {
        let done = play(&device, &load, 0);
        prop_assert_eq!(done.len(), load.len());
        for (i, (tag, arrived, due)) in done.into_iter().enumerate() {
            let (at, request) = &load[i];
            prop_assert_eq!((tag, arrived), (i, *at));
            let latency = match request.op {
                Op::Read => device.read_latency_us,
                _ => device.write_latency_us,
            };
            let transfer = if request.transfers() { request.len as f64 } else { 0.0 };
            let least = (latency + transfer / device.bandwidth_mb_s) * 1000.0;
            prop_assert!((due - arrived) as f64 >= least - 2.0);
        }
    }

    #[test]
    fn a_caller_that_is_late_changes_no_completion_time(
        device in any_device(), load in any_load(), lag in 0u64..20_000_000,
    ) {
        prop_assert_eq!(play(&device, &load, 0), play(&device, &load, lag));
    }

    #[test]
    fn neither_rate_nor_bandwidth_is_exceeded(device in any_device(), load in any_load()) {
        let done = play(&device, &load, 0);
        let moved: Vec<_> = load.iter().map(|l| &l.1).filter(|r| r.transfers()).collect();
        let end = done.iter().map(|d| d.2).max().unwrap_or(0) as f64;
        let bytes: u64 = moved.iter().map(|r| r.len).sum();
        let rounding = 2.0 * load.len() as f64;
        prop_assert!(end + rounding >= bytes as f64 / device.bandwidth_mb_s * 1000.0);
        if let Some(iops) = device.iops {
            let spaces = moved.len().saturating_sub(1) as f64;
            prop_assert!(end + rounding >= spaces * 1e9 / iops);
        }
    }

    #[test]
    fn more_clients_are_never_slower_without_seeks(
        device in any_device(), seed in any::<u64>(), clients in 1usize..40,
    ) {
        let device = Device { seek: None, ..device };
        let reads = random_reads(GIB, PAGE, 200, seed);
        let few = closed_loop(&device, GIB, clients, &reads).elapsed;
        prop_assert!(closed_loop(&device, GIB, clients + 1, &reads).elapsed <= few);
    }
}
