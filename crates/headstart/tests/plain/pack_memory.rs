//! Decoding a pack takes at most 16 times the memory of its file, and what is done with it
//! at most 32 times, whatever is in it; and every pack that comes out can be walked, written
//! and joined. What is kept of a start while it is learned is bounded by its files.

use headstart::host::id::{Dev, InodeId};
use headstart::host::range::PageRange;
use headstart::host::usage::How;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::codec::{HEADER_BYTES, PackError, decode, decode_body, encode};
use headstart::pack::merge::{Rule, merge};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::Piece;
use headstart::pack::renew::{Now, renew};
use headstart::pack::{File, FileSystem, History, Identity, MetadataRange, Origin, Pack, Range};
use headstart::profile::fold::{Rules, fold};
use headstart::replay::benefit::Expected;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::sample::sample;
use headstart::replay::step::Step;
use headstart::replay::strategy::ReadStrategy;
use headstart::trace::{Event, EventKind};
use headstart_sys::counting::{Counting, peak_of};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FACTOR: usize = 16;
/// Of merging, renewing and planning, by the files of all packs that take part.
const WORK_FACTOR: usize = 32;
const MIB: usize = 1 << 20;

const MODEL: Model = Model::of(100, 10, 100, 4, 1000);

/// LEB128, as packs have it.
fn number(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// The beginning of a body: an origin without names, counts of 0.
fn origin() -> Vec<u8> {
    [&[0, 0, 0, 12, 0][..], &[0; 14]].concat()
}

/// A body with these sections: `(count, bytes)`, the bytes of each item alike
/// and as often as they come.
fn body(sections: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = origin();
    for (count, items) in sections {
        out.extend(number(*count));
        out.extend(*items);
    }
    out
}

/// `item`, as often as it fits into a megabyte; the number, and the bytes.
fn many(item: &[u8]) -> (u64, Vec<u8>) {
    let times = MIB / item.len();
    (times as u64, item.repeat(times))
}

fn check(name: &str, body: &[u8]) -> Result<Pack, PackError> {
    let (result, peak) = peak_of(|| decode_body(body));
    assert!(peak <= FACTOR * body.len(), "{name}: {peak} bytes for {}", body.len());
    if let Ok(pack) = &result {
        assert_eq!(decode(&encode(pack)).as_ref(), Ok(pack), "{name}");
    }
    result
}

const FS: [u8; 19] = [0; 19];
/// File system 0, the node of the file before, inode, size, times and changes 0.
const FILE: [u8; 7] = [0; 7];
/// The first file, page 0, 1 page.
const RANGE: [u8; 6] = [0, 0, 1, 0, 0, 0];
/// The same, each 40 pages behind the one before, so that no two of them are read as one.
const RANGE_APART: [u8; 6] = [0, 80, 1, 0, 0, 0];
const METADATA: [u8; 5] = [0, 0, 1, 0, 0];

/// A range of the first file with as many pages as one can have.
fn longest() -> Vec<u8> {
    [&[0, 0][..], &number(u32::MAX.into()), &[0, 0, 1]].concat()
}

#[test]
fn claimed_counts_that_the_file_can_not_hold_allocate_nothing() {
    let filler = vec![0; MIB];
    for claimed in [1 << 20, 1 << 32, u64::MAX >> 1, u64::MAX] {
        for before in 0..5 {
            let mut out = body(&[(1, &FS[..]), (0, &[]), (1, &FILE), (0, &[])][..before]);
            out.extend(number(claimed));
            out.extend(&filler);
            assert!(check("claimed", &out).is_err());
        }
    }
    for claimed in [1 << 20, u64::MAX] {
        let names = [&number(claimed)[..], &filler].concat();
        assert!(check("a name", &names).is_err());
    }
}

/// Bodies full of the smallest items: their names, themselves, and whether they decode.
fn dense() -> Vec<(&'static str, Vec<u8>, bool)> {
    let (nodes, flat) = many(&[1, 1, b'x']);
    let (files, list) = many(&FILE);
    let (ranges, of_files) = many(&RANGE);
    let (_, apart) = many(&RANGE_APART);
    let (blocks, of_devices) = many(&METADATA);
    let one = (1, &FS[..]);
    let none = (0, &[][..]);
    // The first component hangs on the root, each other on the one before.
    let chain = [&[0, 1, b'x'][..], &flat[3..]].concat();
    let flat_names: Vec<u8> =
        (0..100_000u64).flat_map(|i| [&number(i)[..], &[1, b'x']].concat()).collect();
    [
        ("file systems", vec![(4096, &FS.repeat(4096)[..]), none, none, none, none], true),
        (
            "too many file systems",
            vec![(4097, &FS.repeat(4097)[..]), none, none, none, none],
            false,
        ),
        ("one directory", vec![one, (100_000, &flat_names), none, none, none], true),
        ("too deep", vec![one, (nodes, &chain), none, none, none], false),
        ("deep", vec![one, (2047, &chain[..2047 * 3]), none, none, none], true),
        ("files", vec![one, none, (files, &list), none, none], true),
        ("ranges", vec![one, none, (1, &FILE), (ranges, &of_files), none], true),
        ("ranges apart", vec![one, none, (1, &FILE), (ranges, &apart), none], true),
        ("metadata", vec![one, none, none, none, (blocks, &of_devices)], true),
        (
            "all",
            vec![
                one,
                (100_000, &flat_names),
                (files, &list),
                (ranges, &of_files),
                (blocks, &of_devices),
            ],
            true,
        ),
        (
            "a range of each file",
            vec![
                one,
                (100_000, &flat_names),
                (100_000, &[0, 2, 0, 0, 0, 0, 0].repeat(100_000)),
                (99_999, &[2, 0, 1, 0, 0, 0].repeat(99_999)),
                none,
            ],
            true,
        ),
        ("cut off", vec![one, none, (files, &list), (ranges, &of_files[1..])], false),
    ]
    .into_iter()
    .map(|(name, sections, decodes)| (name, body(&sections), decodes))
    .collect()
}

#[test]
fn a_section_full_of_the_smallest_items_stays_within_the_bound() {
    for (name, body, decodes) in dense() {
        assert_eq!(check(name, &body).is_ok(), decodes, "{name}");
    }
}

#[test]
fn work_on_dense_packs_stays_within_its_bound() {
    for (name, body, _) in dense() {
        let Ok(pack) = decode_body(&body) else { continue };
        let bounded = |work: &str, packs: usize, run: &dyn Fn()| {
            let ((), peak) = peak_of(run);
            let most = WORK_FACTOR * packs * body.len();
            assert!(peak <= most, "{name}: {work}: {peak} bytes for {packs} × {}", body.len());
        };
        for rule in [Rule::Union, Rule::NextStart { keep: 8, metadata_seen: true, keep_time_us: 0 }]
        {
            bounded("merge", 2, &|| drop(merge(&pack, &pack, rule)));
            bounded("merge into nothing", 1, &|| drop(merge(Pack::default(), &pack, rule)));
        }
        for now in [Now::Same, Now::Other(Identity { ino: 1, ..Identity::default() })] {
            bounded("renew", 1, &|| drop(renew(&pack, |_, _, _| now)));
        }
        for often in [Frequency::EVER, Frequency::HALF] {
            let choice = often.choice(&pack);
            // Whatever the budget: the ranges are shorter than a step.
            let limits = Limits { budget: u64::MAX, metadata: true };
            let strategy = ReadStrategy::default();
            let pair = [pack.clone(), pack.clone()];
            bounded("choose", 1, &|| drop(often.choice(&pack)));
            bounded("plan", 1, &|| drop(Plan::of_pack(&pack, &choice, limits, strategy)));
            bounded("plan of two", 2, &|| drop(Plan::of_packs(&pair, often, limits, strategy)));
            bounded("sample", 1, &|| drop(sample(&pack, &choice)));
            bounded("estimate", 1, &|| _ = Expected::of(&pack, &choice, &MODEL));
        }
    }
}

#[test]
fn a_start_that_touches_many_files_takes_less_than_half_a_kilobyte_for_each() {
    const FILES: u64 = 20_000;
    let id = |ino| InodeId { dev: Dev::new(8, 1), ino };
    let event = |ino, kind| {
        let pages = PageRange::of(0, 1);
        Event { time: ino, tid: 1, kind, id: id(ino), pages }
    };
    let of_file = |ino| [event(ino, EventKind::Insert), event(ino, EventKind::Read)];
    let rules = Rules { has_access_events: true, ..Rules::default() };
    let (seen, peak) = peak_of(|| fold((0..FILES).flat_map(of_file), &rules));
    assert_eq!(seen.files.len() as u64, FILES);
    // While the table of files grows, there are two of them.
    assert!(peak as u64 <= FILES * 512, "{peak}");
}

#[test]
fn a_start_is_joined_within_memory_for_its_files_and_packs_that_are_given_away_free_theirs() {
    const FILES: u64 = 20_000;
    let pack = || {
        let mut names = PathInterner::default();
        let mut parts = Parts::default();
        for ino in 0..FILES {
            let path = format!("/usr/share/a directory/file with a usual name {ino}");
            let node = names.intern(Path::new(&path)).unwrap();
            let pages = PageRange::of(0, 1);
            let piece = Piece { pages, at_us: 1, how: How::READ, history: History(1) };
            let (identity, changes) = (Identity { ino, ..Identity::default() }, History(0));
            let part = FilePart { file_system: 0, identity, changes, pieces: vec![piece] };
            parts.files.insert(node, part);
        }
        parts.file_systems.push(FileSystem::default());
        parts.build(names.table())
    };
    let rule = Rule::NextStart { keep: 4, metadata_seen: true, keep_time_us: 0 };
    let (old, new) = (pack(), pack());
    let (merged, peak) = peak_of(|| merge(&old, &new, rule));
    assert_eq!(merged.files.len() as u64, FILES);
    assert!(peak as u64 <= FILES * 450, "{peak}");
    let (_, of_given) = peak_of(|| merge(old, new, rule));
    let freed = FILES as usize * (size_of::<File>() + size_of::<Range>());
    assert!(of_given + freed <= peak, "{of_given} of {peak}");
}

#[test]
fn a_plan_grows_with_its_budget_and_not_with_what_a_range_claims() {
    let body = body(&[(1, &FS), (0, &[]), (1, &FILE), (1, &longest()), (0, &[])]);
    let pack = decode_body(&body).unwrap();
    let strategy = ReadStrategy::default();
    for steps in [1, 1 << 10, 1 << 16] {
        let budget = steps as u64 * strategy.step_bytes;
        let limits = Limits { budget, metadata: true };
        let pack = std::slice::from_ref(&pack);
        let (plan, peak) = peak_of(|| Plan::of_packs(pack, Frequency::EVER, limits, strategy));
        assert_eq!(plan.steps.len(), steps);
        // Two lists of steps at one time, one of them with room for twice as many.
        let most = WORK_FACTOR * body.len() + 4 * steps * size_of::<Step>();
        assert!(peak <= most, "{steps} steps: {peak} bytes");
    }
}

#[test]
fn bytes_that_are_no_text_grow_by_no_more_than_the_bound() {
    // Each becomes U+FFFD, of three bytes.
    let bad = [&number(MIB as u64)[..], &vec![0xff; MIB]].concat();
    for before in 0..2 {
        let mut out = [&vec![0; before * 2][..], &bad].concat();
        out.resize(out.len() + 40, 0);
        let _ = check("text", &out);
    }
    let fs = [&[0; 17][..], &bad, &[0]].concat();
    let none = (0, &[][..]);
    assert!(check("kind", &body(&[(1, &fs), none, none, none, none])).is_ok());
}

/// A pack with something in every section.
fn small() -> Pack {
    let mut names = PathInterner::default();
    let mut file = |path, ino| {
        let identity = Identity { ino, size: 9000, mtime_ns: -5, ctime_ns: 1 << 60 };
        File {
            file_system: 0,
            node: names.intern(Path::new(path)).unwrap(),
            identity,
            changes: History(0b11),
        }
    };
    let files = vec![file("/usr/lib/a", 7), file("/usr/b", 1 << 40)];
    let (how, history) = (How::READ, History(3));
    Pack {
        origin: Origin { name: "p".into(), page_shift: 16, starts: 2, ..Origin::default() },
        file_systems: vec![FileSystem {
            uuid: Some([9; 16]),
            kind: "ext4".into(),
            source: b"/dev/a".into(),
        }],
        files,
        paths: names.finish(),
        ranges: vec![
            Range { file: 0, first: 3, pages: 200, at_us: 9, how, history },
            Range { file: 1, first: 1 << 30, pages: 1, at_us: 1 << 20, how, history },
        ],
        metadata: vec![MetadataRange { file_system: 0, first: 77, pages: 2, at_us: 1, history }],
    }
}

#[test]
fn every_change_of_one_or_two_bytes_is_refused_or_gives_a_sound_pack() {
    let original = small();
    let good = encode(&original)[HEADER_BYTES..].to_vec();
    let limits = Limits { budget: MIB as u64, metadata: true };
    let mut accepted = 0u32;
    let mut test = |body: &[u8]| {
        if let Ok(pack) = check("changed", body) {
            accepted += 1;
            for range in &pack.ranges {
                let _ = pack.paths.path(pack.files[range.file as usize].node);
            }
            for rule in
                [Rule::Union, Rule::NextStart { keep: 8, metadata_seen: false, keep_time_us: 0 }]
            {
                for (old, new) in [(&original, &pack), (&pack, &original)] {
                    let merged = merge(old, new, rule);
                    assert_eq!(decode(&encode(&merged)).as_ref(), Ok(&merged));
                }
            }
            assert!(
                Plan::of_packs(&[pack], Frequency::EVER, limits, ReadStrategy::default()).bytes()
                    <= limits.budget
            );
        }
    };
    let mut changed = good.clone();
    for at in 0..good.len() {
        for value in 0..=u8::MAX {
            changed[at] = value;
            test(&changed);
        }
        changed[at] = good[at];
        test(&good[..at]);
        test(&[&good[..at], &good[at + 1..]].concat());
        for extreme in [0, 1, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            test(&[&good[..at], &number(extreme), &good[at + 1..]].concat());
        }
        for other in at + 1..good.len() {
            for (a, b) in [(0, 0), (0xff, 0xff), (1, 0x7f), (0x80, 0)] {
                (changed[at], changed[other]) = (a, b);
                test(&changed);
            }
            changed[other] = good[other];
        }
        changed[at] = good[at];
    }
    assert!(accepted > 1000, "{accepted}");
}
