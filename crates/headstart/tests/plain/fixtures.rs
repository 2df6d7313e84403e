//! Decodes and folds the real traces of `fixtures/trace`. What they must hold
//! is known from how they were made (`make.sh` there), not from our decoder.

use headstart::host::id::{Dev, InodeId};
use headstart::host::usage::How;
use headstart::profile::fold::{Observation, Rules, fold};
use headstart::profile::spans::Spans;
use headstart::trace::decode::Tally;
use headstart::trace::file::Capture;
use headstart::trace::{Event, EventKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const DISK: Dev = Dev::new(7, 4);
const BIG: InodeId = InodeId { dev: DISK, ino: 12 };
const KINDS: [EventKind; 5] =
    [EventKind::Insert, EventKind::Read, EventKind::Map, EventKind::Fault, EventKind::Metadata];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/trace").join(name)
}

fn capture(name: &str) -> Capture {
    Capture::from_bytes(&fs::read(fixture(name)).unwrap()).unwrap()
}

fn decode(capture: &Capture) -> (Vec<Event>, Tally) {
    let mut events = capture.events().unwrap();
    let list = events.by_ref().collect();
    (list, events.tally())
}

fn folded(capture: &Capture) -> Observation {
    let rules = Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        ignored_tids: capture.description.ignored_tids.iter().copied().collect(),
        metadata_tids: capture.description.metadata_tids.iter().copied().collect(),
        has_access_events: capture.has_access_events(),
    };
    fold(capture.events().unwrap(), &rules)
}

/// Inode number, size in bytes and name of the files a program used.
fn files(name: &str) -> Vec<(u64, u64, String)> {
    let text = fs::read_to_string(fixture(name)).unwrap();
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let mut next = || parts.next().unwrap();
        (next().parse().unwrap(), next().parse().unwrap(), next().to_owned())
    };
    text.lines().map(parse).collect()
}

fn ranges(spans: &Spans) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for span in spans.iter() {
        match out.last_mut() {
            Some(last) if last.1 == span.pages.first => last.1 = span.pages.end,
            _ => out.push((span.pages.first, span.pages.end)),
        }
    }
    out
}

#[test]
fn every_event_is_decoded_and_every_loss_is_counted() {
    // Inserts, reads, maps, faults, metadata; lost; pages of the buffer.
    for (name, kinds, lost, pages) in [
        ("folios.trace", [150, 267, 55, 9, 0], 0, 6),
        ("losses.trace", [0, 125, 54, 6, 0], 396, 2),
        ("overwritten.trace", [0, 398, 0, 0, 0], 7820, 5),
        ("python.trace", [2970, 52, 204, 146, 192], 0, 39),
    ] {
        let capture = capture(name);
        let (events, tally) = decode(&capture);
        let count = |kind| events.iter().filter(|e| e.kind == kind).count() as u64;
        assert_eq!(KINDS.map(count), kinds, "{name}");
        let expected = Tally { events: kinds.iter().sum(), lost, ..Tally::default() };
        assert_eq!(tally, expected, "{name}");
        assert_eq!(capture.pages.len(), pages, "{name}");
        assert!(events.is_sorted_by_key(|e| e.time), "{name}");
        assert_eq!(Capture::from_bytes(&capture.to_bytes().unwrap()).unwrap(), capture, "{name}");
    }
}

#[test]
fn a_file_read_in_sequence_is_touched_once_and_came_in_as_folios() {
    let capture = capture("folios.trace");
    let (_, size, _) = files("folios.files")[0];
    let pages = size / 4096;
    assert_eq!(pages, 8192);
    let (events, _) = decode(&capture);
    let inserts: Vec<_> =
        events.iter().filter(|e| e.kind == EventKind::Insert && e.id == BIG).collect();
    assert_eq!(inserts.iter().map(|e| e.pages.count()).sum::<u64>(), pages);
    let mut by_size = BTreeMap::new();
    for event in inserts {
        assert_eq!(event.pages.first % event.pages.count(), 0, "a folio is aligned to its size");
        *by_size.entry(event.pages.count()).or_insert(0) += 1;
    }
    let orders = [(1, 64), (4, 32), (16, 16), (64, 9), (128, 10), (256, 13), (512, 5)];
    assert_eq!(by_size, orders.into());
    let seen = folded(&capture);
    assert_eq!(ranges(&seen.files[&BIG].touched), [(0, pages)]);
    assert_eq!(ranges(&seen.files[&BIG].inserted), [(0, pages)]);
    assert!(seen.files[&BIG].touched.iter().all(|span| span.how == How::READ));
}

#[test]
fn what_was_read_and_what_was_lost_are_all_reads() {
    // dd made one request for each page, in order.
    for (name, reads) in [("losses.trace", 512), ("overwritten.trace", 8192)] {
        let (events, tally) = decode(&capture(name));
        let seen: Vec<u64> = events.iter().filter(|e| e.id == BIG).map(|e| e.pages.first).collect();
        assert!(seen.is_sorted(), "{name}");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "{name}");
        // The exec and the loader's work cause the few others.
        let others = events.len() + tally.lost as usize - reads;
        assert!(seen.len() < reads && others < 100, "{name}: {others}");
    }
}

#[test]
fn the_pages_and_the_statistics_of_the_kernel_agree_on_what_was_overwritten() {
    let mut capture = capture("overwritten.trace");
    let by_statistics = std::mem::take(&mut capture.description.lost);
    let (events, tally) = decode(&capture);
    assert_eq!(tally.lost, by_statistics);
    // What is left is the end of the file, without a hole.
    let seen = folded(&capture);
    let pages = events.len() as u64;
    assert_eq!(ranges(&seen.files[&BIG].touched), [(8192 - pages, 8192)]);
}

#[test]
fn a_start_of_python_touches_the_files_that_python_says_it_used() {
    let seen = folded(&capture("python.trace"));
    let known = files("python.files");
    let on_disk: BTreeSet<u64> =
        seen.files.keys().filter(|id| id.dev == DISK).map(|id| id.ino).collect();
    assert_eq!(on_disk, known.iter().map(|(ino, ..)| *ino).collect());
    for (ino, size, name) in &known {
        let pages = &seen.files[&InodeId { dev: DISK, ino: *ino }];
        let length = size.div_ceil(4096);
        let inserted = ranges(&pages.inserted);
        assert!(inserted.last().is_none_or(|(_, end)| *end <= length), "{name}");
        if name.ends_with(".pyc") {
            // Read as a whole, cold, by a buffer a little larger.
            assert_eq!(inserted, [(0, length)], "{name}");
            let mut touched = pages.touched.clone();
            touched.cut(length);
            assert_eq!(ranges(&touched), [(0, length)], "{name}");
            assert!(touched.iter().all(|span| span.how == How::READ), "{name}");
        } else {
            assert!(pages.touched.iter().any(|span| span.how.has(How::MAPPED)), "{name}");
            let cold = name != "lib/libc.so.6";
            assert_eq!(!inserted.is_empty(), cold, "{name}");
        }
    }
}

#[test]
fn the_metadata_of_a_cold_disk_is_seen_arriving_and_in_use() {
    let seen = folded(&capture("python.trace"));
    let disk = &seen.metadata[&DISK];
    assert_eq!(disk.inserted.pages(), 93);
    // The disk was cold: but for the root's directory and inode, which came in
    // when it was mounted, all that was looked at had to be brought in.
    let before = disk.touched.without(&disk.inserted).pages();
    assert_eq!((disk.touched.pages(), before), (37, 4));
}

#[test]
fn without_access_events_additions_stand_in_for_accesses() {
    let mut capture = capture("python.trace");
    let all = folded(&capture);
    assert!(all.has_access_events);
    capture.description.formats.retain(|text| text.contains("mm_filemap_add_to_page_cache"));
    let (events, tally) = decode(&capture);
    assert_eq!((events.len(), tally.foreign), (2970, 594));
    let seen = folded(&capture);
    assert!(!seen.has_access_events);
    for (id, pages) in &seen.files {
        assert_eq!(ranges(&pages.touched), ranges(&all.files[id].inserted));
    }
    assert_eq!(seen.files.len(), all.files.values().filter(|p| !p.inserted.is_empty()).count());
}

#[test]
fn a_kernel_that_tells_no_order_brings_in_one_page_with_each_event() {
    let mut capture = capture("folios.trace");
    // As Linux 4.19 describes it.
    for text in &mut capture.description.formats {
        let lines = text.lines().filter(|line| !line.contains(" order;"));
        *text = lines.map(|line| format!("{}\n", line.replace(" order=%u", ""))).collect();
    }
    let (events, _) = decode(&capture);
    let inserts = events.iter().filter(|e| e.kind == EventKind::Insert && e.id == BIG);
    assert_eq!(inserts.map(|e| e.pages.count()).collect::<Vec<_>>(), [1; 149]);
    // Uses are told in pages by every kernel that tells them.
    assert_eq!(ranges(&folded(&capture).files[&BIG].touched), [(0, 8192)]);
}
