//! Tests of what is read, in which order and portions.

use super::*;
use crate::host::usage::How;
use crate::pack::{File, History, MetadataRange, Origin, Range};
use proptest::prelude::*;
use std::collections::BTreeSet;

const KIB: u64 = 1 << 10;

/// A pack of so many files of one file system.
fn pack(shift: u8, files: u32, ranges: Vec<Range>, metadata: Vec<MetadataRange>) -> Pack {
    Pack {
        origin: Origin { page_shift: shift, ..Origin::default() },
        file_systems: vec![FileSystem::default()],
        files: vec![File::default(); files as usize],
        ranges,
        metadata,
        ..Pack::default()
    }
}

fn wanted(list: &[(u32, u64, u64, u32)]) -> Vec<PlannedRange> {
    let of = |&(target, offset, length, order): &(u32, u64, u64, u32)| {
        PlannedRange::new(target, ByteRange::of(offset * KIB, length * KIB), order)
    };
    list.iter().map(of).collect()
}

fn steps(wanted: Vec<PlannedRange>, near_us: u32) -> Vec<Step> {
    let mut plan =
        Plan { strategy: ReadStrategy { near_us, ..ReadStrategy::default() }, ..Plan::default() };
    plan.cut(wanted, plan.strategy.gap_bytes, u64::MAX).0
}

fn shape(list: &[(u32, u64, u64, u32)]) -> Vec<(u32, u64, u64)> {
    steps(wanted(list), u32::MAX)
        .iter()
        .map(|s| (s.target, s.bytes.offset / KIB, s.bytes.length() / KIB))
        .collect()
}

#[test]
fn portions_follow_touch_order_and_small_gaps_are_filled() {
    for (name, ranges, expected) in [
        ("order", vec![(0, 0, 4, 9), (1, 0, 4, 3)], vec![(1, 0, 4), (0, 0, 4)]),
        ("small gap", vec![(0, 0, 4, 1), (0, 32, 4, 2)], vec![(0, 0, 36)]),
        ("large gap", vec![(0, 0, 4, 1), (0, 40, 4, 2)], vec![(0, 0, 4), (0, 40, 4)]),
        (
            "earliest counts",
            vec![(0, 8, 4, 1), (0, 0, 4, 9), (1, 0, 4, 5)],
            vec![(0, 0, 12), (1, 0, 4)],
        ),
        ("cut", vec![(0, 0, 1100, 1)], vec![(0, 0, 512), (0, 512, 512), (0, 1024, 76)]),
        ("overlap", vec![(0, 0, 8, 1), (0, 4, 8, 2)], vec![(0, 0, 12)]),
        (
            "overlap with full portions",
            vec![(0, 0, 1024, 9), (0, 1000, 30, 2), (1, 0, 4, 3)],
            vec![(0, 0, 512), (0, 512, 512), (0, 1024, 6), (1, 0, 4)],
        ),
        ("full portion", vec![(0, 0, 512, 1), (0, 516, 4, 9)], vec![(0, 0, 512), (0, 516, 4)]),
    ] {
        assert_eq!(shape(&ranges), expected, "{name}");
    }
}

#[test]
fn what_is_touched_much_later_is_read_later() {
    let late = vec![(0, 0, 4, 10), (0, 4, 40, 900), (0, 44, 4, 60), (1, 0, 4, 500)];
    let apart = vec![(0, 0, 4), (0, 44, 4), (1, 0, 4), (0, 4, 40)];
    let small = vec![(0, 0, 4, 10), (0, 4, 4, 900), (0, 8, 4, 60), (1, 0, 4, 500)];
    let along = vec![(0, 0, 12), (1, 0, 4)];
    for (name, ranges, near, expected) in [
        ("late enough", &late, 1000, vec![(0, 0, 48), (1, 0, 4)]),
        ("later", &late, 100, apart),
        ("small, so that it comes along", &small, 100, along),
        (
            "small and in front",
            &vec![(0, 0, 4, 900), (0, 8, 40, 10), (1, 0, 4, 500)],
            100,
            vec![(0, 0, 48), (1, 0, 4)],
        ),
        (
            "small each, but not all of them",
            &vec![(0, 0, 4, 10), (0, 4, 20, 900), (0, 24, 20, 700), (1, 0, 4, 500)],
            100,
            vec![(0, 0, 24), (1, 0, 4), (0, 24, 20)],
        ),
        (
            "its gap counts too",
            &vec![(0, 0, 40, 10), (0, 64, 12, 900), (1, 0, 4, 500)],
            100,
            vec![(0, 0, 40), (1, 0, 4), (0, 64, 12)],
        ),
    ] {
        let steps = steps(wanted(ranges), near);
        let shape = steps.iter().map(|s| (s.target, s.bytes.offset / KIB, s.bytes.length() / KIB));
        assert_eq!(shape.collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn the_budget_cuts_what_comes_last_and_says_how_much() {
    let entry = |path: &str, length| {
        let ranges = vec![ByteRange::of(0, length)];
        Entry { path: path.into(), ranges }
    };
    let list = [entry("/a", 100 * KIB), entry("/b", 100 * KIB), entry("/c", 10 * KIB)];
    let limits = Limits { budget: 150 * KIB, metadata: false };
    let plan = Plan::of_list(&list, |_| Some(0), limits, ReadStrategy::default());
    assert_eq!((plan.bytes(), plan.over_budget), (150 * KIB, 60 * KIB));
    assert_eq!(plan.steps.len(), 2);
}

#[test]
fn the_largest_ranges_are_planned_as_far_as_the_budget_goes() {
    const FILES: u32 = 1 << 16;
    let pages = u32::MAX;
    let bytes = u64::from(pages) << 16;
    let first = (i64::MAX as u64 >> 16) - u64::from(pages);
    let range = |file| Range { file, first, pages, at_us: 0, how: How::READ, history: History(1) };
    let metadata = MetadataRange { file_system: 0, first, pages, at_us: 0, history: History(1) };
    let pack = pack(16, FILES, (0..FILES).map(range).collect(), vec![metadata]);
    for (metadata, wanted) in [(false, 1 << 16), (true, (1 << 16) + 1)] {
        let budget = (100 << 20) + 1;
        let limits = Limits { budget, metadata };
        let plan =
            Plan::of_pack(&pack, &Frequency::EVER.choice(&pack), limits, ReadStrategy::default());
        assert_eq!((plan.bytes(), plan.steps.len()), (budget, 201));
        assert_eq!(
            plan.over_budget,
            (u128::from(bytes) * wanted - u128::from(budget)).min(u64::MAX.into()) as u64
        );
    }
    let list =
        [Entry { path: "/a".into(), ranges: vec![(0..u64::MAX).into(), (5..u64::MAX).into()] }];
    let limits = Limits { budget: 1 << 20, metadata: false };
    let plan = Plan::of_list(&list, |_| Some(0), limits, ReadStrategy::default());
    assert_eq!((plan.bytes(), plan.over_budget), (1 << 20, u64::MAX - (1 << 20)));
}

#[test]
fn in_a_pass_metadata_goes_up_the_device_and_larger_gaps_are_read() {
    let range = |first, at_us| MetadataRange {
        file_system: 0,
        first,
        pages: 1,
        at_us,
        history: History(1),
    };
    let pack = pack(12, 0, Vec::new(), vec![range(900, 1), range(4, 2), range(40, 3)]);
    let limits = Limits { budget: u64::MAX, metadata: true };
    for (order, expected) in [
        (Order::Touch, vec![(900, 1), (4, 1), (40, 1)]),
        (Order::Elevator, vec![(4, 37), (900, 1)]),
    ] {
        let strategy = ReadStrategy { order, ..ReadStrategy::default() };
        let plan = Plan::of_pack(&pack, &Frequency::EVER.choice(&pack), limits, strategy);
        let pages = plan.steps.iter().map(|s| (s.bytes.offset >> 12, s.bytes.length() >> 12));
        assert_eq!(pages.collect::<Vec<_>>(), expected);
        assert_eq!((plan.metadata, plan.head), (plan.steps.len(), plan.steps.len()));
    }
}

#[test]
fn in_elevator_order_a_part_of_a_step_has_its_own_time() {
    let range = |first, at_us| Range {
        file: 0,
        first,
        pages: 4,
        at_us,
        how: How::READ,
        history: History(1),
    };
    let pack = pack(12, 1, vec![range(0, 10), range(6, 900)], Vec::new());
    let limits = Limits { budget: u64::MAX, metadata: false };
    for (order, expected) in [(Order::Elevator, 900), (Order::Touch, 10)] {
        let strategy = ReadStrategy { order, ..ReadStrategy::default() };
        let plan = Plan::of_pack(&pack, &Frequency::EVER.choice(&pack), limits, strategy);
        let [step] = plan.steps[..] else { panic!("{:?}", plan.steps) };
        let late = plan.touches.part(&step, ByteRange { offset: 4 << 12, end: step.bytes.end });
        assert_eq!((step.touched_us, late.touched_us), (10, expected), "{order:?}");
    }
}

#[test]
fn in_touch_order_data_comes_before_metadata_that_is_touched_much_later() {
    let metadata = |first, at_us| MetadataRange {
        file_system: 0,
        first,
        pages: 16,
        at_us,
        history: History(1),
    };
    let data = Range { file: 0, first: 0, pages: 1, at_us: 0, how: How::READ, history: History(1) };
    let later = vec![metadata(0, 40_000), metadata(100, 50_000), metadata(200, 60_000)];
    let pack = pack(12, 1, vec![data], later);
    let limits = Limits { budget: u64::MAX, metadata: true };
    for (metadata_lead, expected) in [(Some(0), 1), (Some(64 << 10), 2), (None, 3)] {
        let strategy = ReadStrategy { metadata_lead, ..ReadStrategy::default() };
        let plan = Plan::of_pack(&pack, &Frequency::EVER.choice(&pack), limits, strategy);
        assert_eq!((plan.metadata, plan.head), (expected, expected + 1));
        let is_device =
            |step: &Step| matches!(plan.targets[step.target as usize], Target::Device(_));
        assert_eq!(plan.steps.iter().position(|step| !is_device(step)), Some(expected));
    }
}

#[test]
fn what_few_starts_touch_is_skipped_and_counted() {
    let range = |first, pages, history: u8| Range {
        file: 0,
        first,
        pages,
        at_us: 0,
        how: How::READ,
        history: History(history),
    };
    let metadata = |first, history| {
        let history = History(history);
        MetadataRange { file_system: 0, first, pages: 1, at_us: 0, history }
    };
    let ranges = vec![range(0, 4, 0xff), range(90, 2, 0b111), range(200, 1, 0b1111)];
    let mut pack = pack(12, 1, ranges, vec![metadata(0, 0xff), metadata(90, 1)]);
    pack.origin.starts = 8;
    for (often, metadata, steps, seldom) in [
        (Frequency::EVER, true, 5, 0),
        (Frequency::HALF, true, 3, 3),
        (Frequency::HALF, false, 2, 2),
    ] {
        let limits = Limits { budget: u64::MAX, metadata };
        let plan = Plan::of_pack(&pack, &often.choice(&pack), limits, ReadStrategy::default());
        assert_eq!((plan.steps.len(), plan.seldom), (steps, seldom << 12), "{often:?}");
    }
}

#[test]
fn a_whole_file_is_as_long_as_it_is() {
    let list = [Entry { path: "/a".into(), ranges: vec![] }];
    let limits = Limits { budget: u64::MAX, metadata: false };
    assert_eq!(Plan::of_list(&list, |_| Some(77), limits, ReadStrategy::default()).bytes(), 77);
    assert_eq!(Plan::of_list(&list, |_| Some(0), limits, ReadStrategy::default()).steps, []);
    let gone = Plan::of_list(&list, |_| None, limits, ReadStrategy::default());
    assert_eq!(gone.steps.len(), 1, "it is opened, and its absence counted");
}

#[test]
fn small_files_of_a_list_are_batched() {
    let list = |length| {
        let ranges = vec![ByteRange::of(0, length)];
        [Entry { path: "/a".into(), ranges }]
    };
    let limits = Limits { budget: u64::MAX, metadata: false };
    let batched = |length| {
        Plan::of_list(&list(length), |_| Some(0), limits, ReadStrategy::default()).strategy.batched
    };
    assert!(batched(4 * KIB) && !batched(64 * KIB));
}

proptest! {
    #[test]
    fn every_wanted_page_is_read_once_and_little_else(
        list in proptest::collection::vec((0u32..3, 0u64..3000, 1u64..900, 0u32..50), 0..30),
        near in 0u32..60
    ) {
        let steps = steps(wanted(&list), near);
        let mut read = BTreeSet::new();
        for s in &steps {
            let length = s.bytes.length();
            prop_assert!(length > 0 && length <= ReadStrategy::default().step_bytes);
            for kib in s.bytes.pages(KIB).iter() {
                prop_assert!(read.insert((s.target, kib)), "twice");
            }
        }
        let needed: BTreeSet<_> = list
            .iter()
            .flat_map(|&(t, o, l, _)| (o..o + l).map(move |kib| (t, kib)))
            .collect();
        prop_assert!(needed.is_subset(&read));
        // What is read beyond the need lies in gaps of at most the gap.
        for (target, kib) in read.difference(&needed) {
            let near = |range: std::ops::Range<u64>| {
                let mut range = range;
                range.any(|k| needed.contains(&(*target, k)))
            };
            prop_assert!(near(kib.saturating_sub(32)..*kib) && near(*kib..kib + 33));
        }
    }
}
