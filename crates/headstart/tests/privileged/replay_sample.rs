//! Starts from memory: told by a sample, without waiting for a disk, and looked at by one
//! thread until something is missing.

use headstart::cache::residency::{page_size, resident_count};
use headstart::host::fsid::{block_device, uuid};
use headstart::host::identity::identity_of;
use headstart::host::mounts::MountTable;
use headstart::host::usage::How;
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, History, MetadataRange, Pack, Range};
use headstart::replay::engine::{Options, Replay};
use headstart::replay::frequency::Frequency;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::report::Report;
use headstart::replay::sample::is_in_memory;
use headstart::replay::strategy::{InFlight, ReadStrategy};
use headstart_testing::LoopFs;
use rustix::fs::Advice;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

/// More than a sample has.
const FILES: usize = 96;
const PAGES: u32 = 4;

fn paths(fs: &LoopFs) -> Vec<PathBuf> {
    (0..FILES).map(|number| fs.path().join(format!("{number:03}"))).collect()
}

/// Files on a disk, synced and in memory, and a pack of all of them.
fn learned(fs: &LoopFs) -> Pack {
    let mut names = PathInterner::default();
    let mut pack = Pack::default();
    pack.origin.page_shift = page_size().trailing_zeros() as u8;
    pack.origin.starts = 1;
    pack.file_systems = vec![FileSystem { kind: "ext4".into(), ..FileSystem::default() }];
    for (number, path) in paths(fs).iter().enumerate() {
        fs::write(path, vec![1; PAGES as usize * page_size() as usize]).unwrap();
        let stat = rustix::fs::stat(path).unwrap();
        let node = names.intern(path).unwrap();
        pack.files.push(File {
            file_system: 0,
            node,
            identity: identity_of(&stat),
            changes: History(0),
        });
        let file = number as u32;
        let how = How::default();
        pack.ranges.push(Range {
            file,
            first: 0,
            pages: PAGES,
            at_us: file,
            how,
            history: History(1),
        });
    }
    pack.paths = names.finish();
    rustix::fs::syncfs(fs::File::open(fs.path()).unwrap()).unwrap();
    pack
}

fn is_hot(pack: &Pack) -> bool {
    is_in_memory(pack, &Frequency::HALF.choice(pack), rustix::process::geteuid().as_raw())
}

fn replay(pack: &Pack) -> Replay {
    let limits = Limits { budget: u64::MAX, metadata: false };
    let plan = Plan::of_packs(
        std::slice::from_ref(pack),
        Frequency::HALF,
        limits,
        ReadStrategy::default(),
    );
    let options = Options { sampled: true, ..Options::default() };
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).unwrap();
    headstart_testing::wait_until("the end of the replay", || replay.is_finished().then_some(()));
    replay
}

/// Metadata of so many pages each, far enough apart that each is a step, and touched among the
/// data.
fn add_metadata(pack: &mut Pack, fs: &LoopFs, pages: u32) -> PathBuf {
    let table = MountTable::read().unwrap();
    let mount = table.at(fs.path()).unwrap();
    let id = uuid(mount).unwrap().unwrap().0;
    pack.file_systems[0].uuid = Some(id);
    for number in 0..FILES as u32 {
        let (first, at_us) = (u64::from(number) * 32, 7000 + number);
        pack.metadata.push(MetadataRange {
            file_system: 0,
            first,
            pages,
            at_us,
            history: History(1),
        });
    }
    for range in &mut pack.ranges {
        range.at_us += 7000;
    }
    block_device(mount).unwrap().unwrap().path
}

fn among_the_data(pack: &Pack, in_flight: Option<InFlight>) -> Plan {
    let limits = Limits { budget: u64::MAX, metadata: true };
    let strategy =
        ReadStrategy { metadata_lead: Some(0), gap_bytes: 0, in_flight, ..ReadStrategy::default() };
    let plan = Plan::of_packs(std::slice::from_ref(pack), Frequency::HALF, limits, strategy);
    assert!(plan.metadata < FILES, "the others are among the data");
    plan
}

fn finished(plan: Plan, options: Options) -> Report {
    let replay = Replay::start(plan, options, Default::default(), Instant::now()).unwrap();
    headstart_testing::wait_until("the end of the replay", || replay.is_finished().then_some(()));
    replay.finish()
}

#[test]
fn metadata_in_memory_among_the_data_does_not_make_a_start_look_at_each_file() {
    let Some(fs) = LoopFs::sized("ext4", 32 << 20) else { return };
    let mut pack = learned(&fs);
    let device = fs::File::open(add_metadata(&mut pack, &fs, 1)).unwrap();
    for range in &pack.metadata {
        device.read_exact_at(&mut [0], range.first * page_size()).unwrap();
    }
    let options = Options { sampled: true, ..Options::default() };
    let report = finished(among_the_data(&pack, None), options);
    assert_eq!((report.bytes, report.complete), (0, true));
    assert!(report.assumed_bytes > 0);
}

#[test]
fn with_a_low_in_flight_limit_all_is_read_also_with_metadata_that_the_file_system_reads() {
    let Some(fs) = LoopFs::sized("ext4", 32 << 20) else { return };
    let mut pack = learned(&fs);
    add_metadata(&mut pack, &fs, 4);
    fs.remount();
    for path in paths(&fs) {
        fs::metadata(path).unwrap();
    }
    let in_flight = Some(InFlight { bytes: 2 * page_size(), steps: 2 });
    let report = finished(among_the_data(&pack, in_flight), Options::default());
    assert!(report.complete);
    let data = FILES as u64 * u64::from(PAGES) * page_size();
    assert!(report.bytes > data, "some metadata was not in memory: {report:?}");
    assert_eq!(report.bytes - report.metadata_bytes, data);
}

fn evict(path: &PathBuf) {
    let file = fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    assert_eq!(resident_count(&file, (0..u64::from(PAGES)).into()).unwrap(), 0);
}

#[test]
fn what_a_sample_finds_in_memory_is_looked_at_by_one_thread_until_something_is_missing() {
    let Some(fs) = LoopFs::sized("ext4", 32 << 20) else { return };
    let pack = learned(&fs);
    assert!(is_hot(&pack));
    let hot = replay(&pack);
    assert_eq!(hot.threads().len(), 1);
    assert_eq!(hot.finish().bytes, 0);

    // A sample of every fourth does not look at the second.
    evict(&paths(&fs)[1]);
    assert!(is_hot(&pack));
    let report = replay(&pack).finish();
    assert!(report.complete);
    assert_eq!(report.bytes, u64::from(PAGES) * page_size());

    for path in paths(&fs) {
        evict(&path);
    }
    assert!(!is_hot(&pack));
    let report = replay(&pack).finish();
    assert_eq!(report.bytes, FILES as u64 * u64::from(PAGES) * page_size());
}

#[test]
fn a_sample_of_what_is_not_in_memory_opens_and_reads_nothing() {
    let Some(fs) = LoopFs::sized("ext4", 32 << 20) else { return };
    let pack = learned(&fs);
    fs.remount();
    let dev = fs.dev();
    let number = format!("{}:{}", dev.major(), dev.minor());
    let reads = || {
        let stat = fs::read_to_string(format!("/sys/dev/block/{number}/stat")).unwrap();
        stat.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let before = reads();
    assert!(!is_hot(&pack));
    assert_eq!(reads(), before);
}
