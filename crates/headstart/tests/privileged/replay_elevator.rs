//! One pass of a rotational disk: it begins with what the start needs first, unless
//! somebody waits for all of it, what is in memory has no say, each piece of a file has its place, and a journal
//! apart from the others is read on a detour.

use headstart::cache::residency::page_size;
use headstart::host::identity::identity_of;
use headstart::host::range::ByteRange;
use headstart::host::usage::How;
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, History, Pack, Range};
use headstart::replay::elevator::SeekCost;
use headstart::replay::engine::{Options, Replay, Requested};
use headstart::replay::frequency::Frequency;
use headstart::replay::places::FileLayout;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{Order, ReadStrategy};
use headstart_testing::{LoopFs, wait_until};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

const BYTES: usize = 8 << 20;
/// When a start touches all but the last file, in µs.
const LATE_US: u32 = 400_000;

/// Two files, that which lies lower first.
fn files(fs: &LoopFs) -> [PathBuf; 2] {
    let mut files = ["a", "b"].map(|name| fs.path().join(name));
    for path in &files {
        fs::write(path, vec![7; BYTES]).unwrap();
    }
    rustix::fs::syncfs(fs::File::open(fs.path()).unwrap()).unwrap();
    let place = |path: &PathBuf| {
        let place = FileLayout::of(&fs::File::open(path).unwrap(), 0).unwrap();
        place.find(0).unwrap()
    };
    files.sort_by_key(place);
    files
}

/// A pack by which the last is touched at once, and the others late.
fn learned(files: &[PathBuf]) -> Pack {
    let mut names = PathInterner::default();
    let mut pack = Pack { file_systems: vec![FileSystem::default()], ..Pack::default() };
    pack.origin.page_shift = page_size().trailing_zeros() as u8;
    pack.origin.starts = 1;
    for (number, path) in files.iter().enumerate() {
        let identity = identity_of(&rustix::fs::stat(path).unwrap());
        let node = names.intern(path).unwrap();
        pack.files.push(File { file_system: 0, node, identity, changes: History(0) });
        let at_us = if number + 1 == files.len() { 0 } else { LATE_US };
        let (file, pages) = (number as u32, (identity.size / page_size()) as u32);
        pack.ranges.push(Range {
            file,
            first: 0,
            pages,
            at_us,
            how: How::READ,
            history: History(1),
        });
    }
    pack.ranges.sort_by_key(|range| range.at_us);
    pack.paths = names.finish();
    pack
}

/// What was requested of which files, in this order.
fn steps(pack: &Pack, wait: bool) -> Vec<(PathBuf, ByteRange)> {
    let limits = Limits { budget: u64::MAX, metadata: false };
    let seek = Some(SeekCost { seek_us: 8000, mb_s: 100 });
    let strategy =
        ReadStrategy { order: Order::Elevator, threads: 1, seek, ..ReadStrategy::default() };
    let plan = Plan::of_packs(std::slice::from_ref(pack), Frequency::HALF, limits, strategy);
    let options = Options { wait, log: true, ..Options::default() };
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).unwrap();
    wait_until("the end of the replay", || replay.is_finished().then_some(()));
    let ended = replay.end();
    assert!(ended.report.complete);
    let mut steps = Vec::new();
    ended.log.each_file(|path, requested| {
        let step = |part: &Requested| (part.at_us, path.clone(), part.step.bytes);
        steps.extend(requested.iter().map(step));
    });
    steps.sort_by_key(|(at_us, ..)| *at_us);
    steps.into_iter().map(|(_, path, bytes)| (path, bytes)).collect()
}

/// In which order files were requested for the first time.
fn requested(pack: &Pack, wait: bool) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for (path, _) in steps(pack, wait) {
        if !files.contains(&path) {
            files.push(path);
        }
    }
    files
}

fn read(path: &Path) {
    assert_eq!(fs::read(path).unwrap().len(), BYTES);
}

#[test]
fn a_pass_begins_with_what_is_touched_first_and_is_not_in_memory() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    let [low, high] = files(&fs);
    let pack = learned(&[low.clone(), high.clone()]);

    fs.remount();
    assert_eq!(requested(&pack, false), [&*high, &*low], "the start needs the higher one first");

    fs.remount();
    assert_eq!(requested(&pack, true), [&*low, &*high], "all is waited for");

    fs.remount();
    read(&high);
    assert_eq!(requested(&pack, false), [&*low], "the higher one is there");
}

/// A pack of a start that reads a file in eight parts one after the other, and a journal apart from that in the
/// middle, to which each start adds ten pages.
fn appending(main: &Path, journal: &Path) -> Pack {
    let mut pack = learned(&[main.to_owned(), journal.to_owned()]);
    let [of_main, of_journal] = [0, 1].map(|file| {
        let range = pack.ranges.iter().find(|range| range.file == file);
        Range { history: History(0b111), ..*range.unwrap() }
    });
    let part = of_main.pages / 8;
    let parts = (0..8).map(|number| Range {
        first: u64::from(number * part),
        pages: part,
        at_us: 50_000 * number,
        ..of_main
    });
    let at_us = 325_000;
    let added =
        [(0, 100, 0b111), (100, 10, 0b11), (110, 10, 0b1)].map(|(first, pages, history)| Range {
            first,
            pages,
            at_us,
            history: History(history),
            ..of_journal
        });
    pack.ranges = parts.chain(added).collect();
    pack.ranges.sort_by_key(|range| range.at_us);
    pack.files[1].changes = History(0b111);
    pack.origin.starts = 3;
    pack
}

#[test]
fn a_start_that_appends_to_a_journal_has_it_when_it_needs_it_up_to_its_end() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    let [journal, between, main] = ["journal", "between", "main"].map(|name| fs.path().join(name));
    let page = page_size();
    let size = 125 * page;
    for (path, bytes) in [(&journal, size as usize), (&between, 4 << 20), (&main, BYTES)] {
        fs::write(path, vec![7; bytes]).unwrap();
        fs::File::open(path).unwrap().sync_all().unwrap();
    }
    let pack = appending(&main, &journal);
    // What is allocated is not there yet.
    let file = fs::File::options().write(true).open(&journal).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), size, 1 << 20).unwrap();
    file.sync_all().unwrap();
    drop(file);

    fs.remount();
    // A program that writes all the time does not keep it from coming to its end.
    let is_over = AtomicBool::new(false);
    let steps = thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::create(fs.path().join("written")).unwrap();
            while !is_over.load(Relaxed) {
                file.write_all_at(&[1], 0).unwrap();
                file.sync_all().unwrap();
            }
        });
        let steps = steps(&pack, false);
        is_over.store(true, Relaxed);
        steps
    });
    let of_journal = steps.iter().enumerate().filter(|(_, (path, _))| *path == journal);
    let (numbers, bytes): (Vec<usize>, Vec<ByteRange>) =
        of_journal.map(|(number, (_, bytes))| (number, *bytes)).unzip();
    let end = bytes.iter().map(|bytes| bytes.end).max();
    assert_eq!(end, Some(size), "to the end of what is written: {bytes:?}");
    let before: u64 = steps[..numbers[0]].iter().map(|(_, bytes)| bytes.length()).sum();
    let all: u64 = steps.iter().map(|(_, bytes)| bytes.length()).sum();
    assert!((BYTES as u64 / 4..all * 3 / 4).contains(&before), "{before} of {all}: {steps:?}");
}

#[test]
fn each_piece_of_a_file_comes_where_it_lies_in_a_pass() {
    const PART: u64 = 128 << 10;
    let part = |number: u64| ByteRange::of(number * PART, PART);
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(fs) = LoopFs::sized(kind, 512 << 20) else { continue };
        let [apart, other] = ["apart", "other"].map(|name| fs.path().join(name));
        let write = |path: &Path, bytes: ByteRange| {
            let file = fs::File::options().create(true).truncate(false).write(true).open(path);
            let file = file.unwrap();
            file.write_all_at(&vec![7; PART as usize], bytes.offset).unwrap();
            file.sync_all().unwrap();
        };
        write(&apart, part(0));
        write(&other, part(0));
        write(&apart, part(1));
        let place = |path: &Path, bytes: ByteRange| {
            let layout = FileLayout::of(&fs::File::open(path).unwrap(), 0).unwrap();
            layout.find(bytes.offset).unwrap()
        };
        let mut expected =
            [(apart.clone(), part(0)), (apart.clone(), part(1)), (other.clone(), part(0))];
        expected.sort_by_key(|(path, bytes)| place(path, *bytes));
        assert_eq!(expected[1].0, other, "{kind}: it lies between the parts of the first");

        let pack = learned(&[apart, other]);
        fs.remount();
        assert_eq!(steps(&pack, true), expected, "{kind}");
    }
}
