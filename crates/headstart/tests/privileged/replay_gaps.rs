//! Gaps between what is prefetched: where one lies elsewhere on the device, as behind a layout that
//! did not move it, it is not read, and a start that has the rest in memory is hot.

use headstart::cache::residency::{page_size, resident_count};
use headstart::host::range::{ByteRange, PageRange};
use headstart::replay::engine::{Options, Replay, resident_pages};
use headstart::replay::gaps;
use headstart::replay::list::Entry;
use headstart::replay::places;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::report::Report;
use headstart::replay::strategy::{InFlight, Order, ReadStrategy};
use headstart_sys::fiemap::extents;
use headstart_testing::{LoopFs, wait_until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Pages before the gap, of it, and behind it.
const PAGES: [u64; 3] = [4, 2, 4];

/// The bytes of one of these.
fn range(part: usize) -> ByteRange {
    let first = PAGES[..part].iter().sum();
    PageRange::of(first, PAGES[part]).bytes(page_size())
}

fn fill(file: &File, bytes: ByteRange) {
    let contents = vec![7; bytes.length() as usize];
    file.write_all_at(&contents, bytes.offset).unwrap();
    file.sync_all().unwrap();
}

/// A file whose parts were written in this order, with others between.
fn written(fs: &LoopFs, name: &str, order: &[usize]) -> File {
    let at = fs.path().join(name);
    let file = File::options().create_new(true).read(true).write(true).open(at).unwrap();
    for part in order {
        fill(&file, range(*part));
        let other = File::create(fs.path().join(format!("{name}-{part}"))).unwrap();
        fill(&other, ByteRange::of(0, 1 << 20));
    }
    file
}

/// How many parts are read of what lies around the gap.
fn parts(file: &File) -> usize {
    let all = ByteRange { offset: 0, end: range(2).end };
    let extents = places::joined(extents(file).unwrap());
    gaps::divided(all, [range(1)].into_iter(), &extents).len()
}

fn plan(path: &Path, strategy: ReadStrategy) -> Plan {
    let list = [Entry { path: path.to_owned(), ranges: vec![range(0), range(2)] }];
    let limits = Limits { budget: u64::MAX, metadata: false };
    Plan::of_list(&list, |_| None, limits, strategy)
}

fn replay(plan: Plan, wait: bool) -> Report {
    let options = Options { wait, check_all: true, ..Options::default() };
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).unwrap();
    wait_until("the end of the replay", || replay.is_finished().then_some(()));
    replay.finish()
}

/// How many pages of each part are in memory.
fn resident(path: &Path) -> [u64; 3] {
    let file = File::open(path).unwrap();
    [0, 1, 2].map(|part| resident_count(&file, range(part).pages(page_size())).unwrap())
}

#[test]
fn a_gap_that_lies_elsewhere_is_not_read_and_makes_no_start_cold() {
    let all = PAGES.iter().sum::<u64>();
    let gap = range(1).length();
    let one_by_one = ReadStrategy { threads: 1, ..ReadStrategy::default() };
    let rows = Some(InFlight { bytes: 1, steps: 1 });
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(fs) = LoopFs::sized(kind, 512 << 20) else { continue };
        let apart = parts(&written(&fs, "apart", &[1, 0, 2]));
        assert_eq!(apart, 2, "{kind}: it lies elsewhere");
        let path = fs.path().join("apart");
        for (name, strategy, is_read) in [
            ("one by one", one_by_one, true),
            ("in batches", ReadStrategy { batched: true, ..one_by_one }, false),
            ("in rows", ReadStrategy { rows, ..one_by_one }, false),
            ("in a pass", ReadStrategy { order: Order::Elevator, ..one_by_one }, false),
            (
                "in passes",
                ReadStrategy { order: Order::Elevator, in_passes: true, ..one_by_one },
                false,
            ),
        ] {
            for wait in [false, true] {
                let what = format!("{kind}, {name}, waits: {wait}");
                fs.remount();
                let report = replay(plan(&path, strategy), wait);
                let (read, left) = if is_read { (all, 0) } else { (all - PAGES[1], gap) };
                assert!(report.complete, "{what}");
                assert_eq!(report.bytes, read * page_size(), "{what}");
                assert_eq!(report.apart_bytes, left, "{what}");
                wait_until("what was requested", || {
                    (resident_pages(&plan(&path, strategy), &Default::default()) == (read, read))
                        .then_some(())
                });
                let here = if is_read { PAGES[1] } else { 0 };
                assert_eq!(resident(&path), [PAGES[0], here, PAGES[2]], "{what}");
                let again = replay(plan(&path, strategy), wait);
                assert_eq!(again.first_request_us, None, "{what}");
                assert_eq!(again.resident_bytes, report.bytes, "{what}");
            }
        }
    }
}
