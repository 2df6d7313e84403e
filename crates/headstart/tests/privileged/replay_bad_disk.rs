//! A replay of files of which the disk can't read one: it goes on.

use headstart::cache::residency::are_resident;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::list::Entry;
use headstart::replay::places::FileLayout;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::strategy::{InFlight, Order, ReadStrategy};
use headstart_testing::{LoopFs, run, undisturbed, wait_until};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FILES: u64 = 40;
const SIZE: u64 = 1 << 20;

#[test]
fn what_a_disk_can_not_read_is_not_waited_for_for_ever() {
    let Some(fs) = LoopFs::sized("ext4", 64 << 20) else { return };
    let mut files: Vec<PathBuf> =
        (0..FILES).map(|number| fs.path().join(number.to_string())).collect();
    for path in &files {
        fs::write(path, vec![7; SIZE as usize]).unwrap();
    }
    rustix::fs::syncfs(File::open(fs.path()).unwrap()).unwrap();
    let place = |path: &PathBuf| {
        let place = FileLayout::of(&File::open(path).unwrap(), 0).unwrap();
        place.extents.iter().map(|extent| extent.physical).max().unwrap()
    };
    files.sort_by_key(place);
    let bad = files.pop().unwrap();
    let end = place(&bad);
    fs.remount();
    // What is written would make the image longer again.
    run("mount", &["-o", "remount,ro", fs.path().to_str().unwrap()]).unwrap();
    OpenOptions::new().write(true).open(fs.beside("image")).unwrap().set_len(end).unwrap();
    let entries: Vec<Entry> = [bad.clone()]
        .into_iter()
        .chain(files)
        .map(|path| Entry { path, ranges: Vec::new() })
        .collect();
    let limits = Limits { budget: u64::MAX, metadata: false };
    // After each step the one before is waited for.
    let in_flight = Some(InFlight { bytes: SIZE, steps: 1 });
    let evict = |path: &Path| {
        let opened = File::open(path).unwrap();
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    let replay = |order, in_passes| {
        let strategy = ReadStrategy { order, in_passes, in_flight, ..ReadStrategy::default() };
        let plan = Plan::of_list(&entries, |_| Some(SIZE), limits, strategy);
        let replay =
            Replay::start(plan, Options::default(), Default::default(), Instant::now()).unwrap();
        wait_until("the end of the replay", || replay.is_finished().then_some(()));
        let report = replay.finish();
        assert!(report.complete && report.bytes >= SIZE, "{report:?}");
    };
    let is_in_memory = |entry: &Entry| {
        let file = File::open(&entry.path).unwrap();
        are_resident(&file, (0..SIZE / 4096).into())
    };
    let all_others_are_read = undisturbed(&[fs.path()], || {
        entries.iter().for_each(|entry| evict(&entry.path));
        replay(Order::Touch, false);
        entries[1..].iter().all(is_in_memory)
    });
    assert!(all_others_are_read);
    // What can't be read is the first batch of a single pass: by then the others are in memory.
    for (order, in_passes) in [(Order::Elevator, true), (Order::Elevator, false)] {
        evict(&bad);
        replay(order, in_passes);
    }
    assert!(fs::read(&bad).is_err(), "the disk can read it");
}
