//! Tests of recordings.

use super::*;
use crate::recording::{EXECUTE, READ, WRITE};
use headstart::host::id::{Dev, InodeId};
use proptest::prelude::*;

const PID: i32 = 100;

fn at(time: u64, tid: i32, what: What) -> Record {
    Record { time, pid: PID, tid, what }
}

fn begin(address: u64, page: u64) -> What<'static> {
    What::Begin { ip: 0x10, address, page: Some(page) }
}

const MINOR: What = What::End { is_major: false, page: Some(4096) };
const MAJOR: What = What::End { is_major: true, page: Some(2 << 20) };

fn map(start: u64, length: u64, protection: u32, flags: u32, name: &[u8]) -> What<'_> {
    let file = InodeId { dev: Dev::new(8, 1), ino: 7 };
    What::Map(Mapped { start, length, offset: 0x1000, protection, flags, file, name })
}

fn exec(name: &[u8]) -> What<'_> {
    What::Name { name, by_exec: true }
}

fn of(records: &[Record]) -> Recording {
    let mut recorder = Recorder::of_program(PID);
    records.iter().for_each(|record| recorder.add(*record));
    recorder.finish()
}

#[test]
fn a_fault_has_its_time_its_thread_and_its_place_in_the_file() {
    let found = of(&[
        at(5, PID, begin(0x99, 0)),
        at(6, PID, MINOR),
        at(7, PID, exec(b"program")),
        at(8, PID, map(0x7000, 0x3000, READ | EXECUTE, 2, b"/lib/a.so")),
        at(9, 101, What::Start { parent: PID, parent_tid: PID }),
        at(10, PID, begin(0x8123, 0)),
        at(11, 101, begin(0x7001, 0)),
        at(19, 101, MINOR),
        at(40, PID, MAJOR),
        at(50, PID, What::Exit),
    ]);
    assert_eq!((found.executed, found.ended, found.unlisted.minor_before), (Some(7), Some(50), 1));
    let [first, second] = found.faults[..] else { panic!("{found:?}") };
    assert_eq!((first.time, first.latency, first.end), (10, 30, End::Major));
    assert_eq!((second.time, second.latency, second.end), (11, 8, End::Minor));
    assert!(first.is_huge && !second.is_huge);
    let mapping = found.mapping(first.mapping).unwrap();
    assert_eq!((mapping.offset_of(first.address), mapping.object), (0x2123, Object::File));
    assert_eq!((found.name(mapping.name), &*mapping.permissions()), (&b"/lib/a.so"[..], "r-xp"));
    let (thread, process) = found.owner(&second).unwrap();
    assert_eq!((thread.tid, process.pid, found.name(thread.name)), (101, PID, &b"program"[..]));
}

#[test]
fn the_cause_follows_from_what_was_mapped() {
    const DATA: u32 = READ | WRITE;
    for (name, protection, flags, forks, page, cause) in [
        (&b"/a"[..], DATA, 2, false, 0, Cause::NotMapped),
        (b"/a", DATA, 2, false, 4096, Cause::Copy),
        (b"/a", DATA, 1, false, 4096, Cause::MakeWritable),
        (b"/a", READ, 2, false, 4096, Cause::Other),
        (b"//anon", DATA, 2, false, 4096, Cause::ZeroPage),
        (b"//anon", DATA, 2, true, 4096, Cause::Copy),
        (b"[heap]", DATA, 2, true, 0, Cause::NotMapped),
    ] {
        let mut records =
            vec![at(1, PID, exec(b"x")), at(2, PID, map(0x7000, 0x1000, protection, flags, name))];
        let child = What::Start { parent: PID, parent_tid: PID };
        records.extend(forks.then_some(Record { time: 3, pid: 200, tid: 200, what: child }));
        records.extend([at(4, PID, begin(0x7800, page)), at(5, PID, MINOR)]);
        let found = of(&records);
        assert_eq!(found.faults[0].cause, cause, "{found:?}");
    }
}

#[test]
fn a_child_has_the_mappings_of_its_parent_until_it_executes_a_program() {
    let child = |time, what| Record { time, pid: 200, tid: 200, what };
    let found = of(&[
        at(1, PID, exec(b"parent")),
        at(2, PID, map(0x7000, 0x1000, READ, 2, b"/a")),
        child(3, What::Start { parent: PID, parent_tid: PID }),
        child(4, begin(0x7000, 0)),
        child(5, MINOR),
        child(6, exec(b"child")),
        child(7, begin(0x7000, 0)),
        child(8, MINOR),
    ]);
    let names: Vec<_> = found
        .faults
        .iter()
        .map(|fault| (found.name(found.owner(fault).unwrap().1.name), fault.mapping))
        .collect();
    assert_eq!(names, [(&b"parent"[..], Some(0)), (b"child", None)]);
}

#[test]
fn memory_behind_the_data_of_a_file_is_noted_as_such() {
    let found = of(&[
        at(1, PID, exec(b"x")),
        at(2, PID, map(0x7000, 0x1000, READ | WRITE, 2, b"/a")),
        at(2, PID, map(0x8000, 0x1000, READ | WRITE, 2, b"//anon")),
        at(4, PID, begin(0x8010, 0)),
        at(5, PID, MINOR),
    ]);
    assert_eq!((found.faults[0].mapping, found.faults[0].behind), (Some(1), Some(0)));
}

#[test]
fn faults_without_an_end_and_ends_without_a_start_are_counted() {
    let found = of(&[
        at(1, PID, exec(b"x")),
        at(2, PID, MAJOR),
        at(3, PID, begin(0x10, 0)),
        at(4, PID, begin(0x20, 0)),
        at(5, PID, What::Lost(3)),
    ]);
    let ends: Vec<_> = found.faults.iter().map(|fault| (fault.address, fault.end)).collect();
    assert_eq!(ends, [(0x10, End::None), (0x20, End::Lost)]);
    assert_eq!((found.unlisted.major_ends, found.lost), (1, 3));
}

#[test]
fn where_records_were_lost_no_end_is_paired_with_an_earlier_start() {
    let found = of(&[
        at(1, PID, exec(b"x")),
        at(2, PID, begin(0x10, 0)),
        // Its end and the start of the next fault.
        at(90, PID, What::Lost(2)),
        at(91, PID, MINOR),
        at(92, PID, begin(0x30, 0)),
        at(93, PID, MINOR),
        at(94, PID, What::Lost(u64::MAX)),
    ]);
    let faults: Vec<_> =
        found.faults.iter().map(|fault| (fault.address, fault.end, fault.latency)).collect();
    assert_eq!(faults, [(0x10, End::Lost, 0), (0x30, End::Minor, 1)]);
    assert_eq!((found.unlisted.minor_ends, found.lost), (1, u64::MAX));
}

#[test]
fn a_program_that_gains_privileges_is_counted_and_its_process_has_not_ended() {
    let child = |time, what| Record { time, pid: 200, tid: 200, what };
    let mapping = map(0x7000, 0x1000, READ, 2, b"/a");
    let found = of(&[
        at(1, PID, exec(b"shell")),
        at(2, PID, mapping),
        child(3, What::Start { parent: PID, parent_tid: PID }),
        child(4, exec(b"su")),
        child(5, What::Exit),
        at(6, PID, exec(b"sudo")),
        at(7, PID, What::Exit),
    ]);
    assert_eq!((found.privileged, found.ended), (2, None));
    let found = of(&[at(1, PID, exec(b"x")), at(2, PID, mapping), at(3, PID, What::Exit)]);
    assert_eq!((found.privileged, found.ended), (0, Some(3)));
}

#[test]
fn a_process_ends_with_its_last_thread_and_not_when_another_executes_a_program() {
    let found = of(&[
        at(1, PID, exec(b"x")),
        at(2, PID, map(0x7000, 0x1000, READ, 2, b"/a")),
        at(3, 101, What::Start { parent: PID, parent_tid: PID }),
        at(4, PID, What::Exit),
        at(5, 101, begin(0x7000, 0)),
        at(6, 101, MINOR),
        at(7, 101, What::Exit),
    ]);
    assert_eq!((found.ended, found.faults[0].mapping), (Some(7), Some(0)));
    let found = of(&[
        at(1, PID, exec(b"x")),
        at(3, 101, What::Start { parent: PID, parent_tid: PID }),
        at(4, PID, What::Exit),
        // Thread 101 has the number of its process now.
        at(5, PID, exec(b"y")),
        at(6, PID, begin(0x7000, 0)),
        at(7, PID, MINOR),
    ]);
    assert_eq!(found.ended, None);
    let (thread, process) = found.owner(&found.faults[0]).unwrap();
    assert_eq!((found.name(process.name), thread.tid), (&b"y"[..], PID));
}

#[test]
fn what_is_known_of_a_process_is_forgotten_with_its_last_thread() {
    let mut recorder = Recorder::of_program(PID);
    for pid in 1000..1100 {
        for (tid, what) in [
            (pid, What::Start { parent: PID, parent_tid: PID }),
            (pid, exec(b"x")),
            (pid, map(0x7000, 0x1000, READ, 2, b"/a")),
            (pid + 5000, What::Start { parent: pid, parent_tid: pid }),
            (pid, What::Exit),
            (pid + 5000, begin(0x10, 0)),
            (pid + 5000, What::Exit),
        ] {
            recorder.add(Record { time: 1, pid, tid, what });
        }
    }
    let (living, threads) = (recorder.living.len(), recorder.threads.len());
    assert_eq!((living, threads), (1, 0), "only the parent");
    assert_eq!(recorder.finish().faults.len(), 100);
}

#[test]
fn threads_that_were_started_before_all_events_were_open_are_counted() {
    let mut recorder = Recorder::of_running(PID, 10);
    recorder.knows(PID, PID, b"x");
    for (time, tid) in [(9, 101), (11, 102)] {
        recorder.add(at(time, tid, What::Start { parent: PID, parent_tid: PID }));
    }
    // These are there after all events were open.
    [103, 104].into_iter().for_each(|tid| recorder.found(tid));
    let child =
        Record { time: 8, pid: 200, tid: 200, what: What::Start { parent: PID, parent_tid: PID } };
    recorder.add(child);
    // Faults of a thread that has some of the events don't make it a whole one.
    recorder.add(at(11, 103, begin(0x10, 0)));
    recorder.add(at(12, 104, What::Start { parent: PID, parent_tid: PID }));
    let found = recorder.finish().early_threads;
    assert_eq!(found, HashSet::from([101, 103, 200]));
}

#[test]
fn what_the_kernel_names_like_a_file_is_none() {
    for (name, object) in [
        (&b"/dev/zero"[..], Object::Anonymous),
        (b"/dev/zero (deleted)", Object::Anonymous),
        (b"/dev/zerofoo", Object::File),
        (b"//anon", Object::Anonymous),
        (b"//toolong", Object::Special),
        (b"//enomem", Object::Special),
        (b"[anon:glibc: malloc]", Object::Anonymous),
        (b"[vdso]", Object::Special),
    ] {
        assert_eq!(Object::of(name), object, "{}", name.escape_ascii());
    }
}

#[test]
fn faults_that_began_before_all_events_were_open_are_not_listed() {
    let mut recorder = Recorder::of_running(PID, 10);
    for (time, what) in [
        (7, MINOR),
        (8, begin(0x10, 0)),
        (9, begin(0x20, 0)),
        (11, MINOR),
        (12, begin(0x30, 0)),
        (13, MINOR),
    ] {
        recorder.add(at(time, PID, what));
    }
    let found = recorder.finish();
    assert_eq!((found.unlisted.early, found.unlisted.minor_ends), (2, 0));
    assert_eq!(found.faults.iter().map(|fault| fault.address).collect::<Vec<_>>(), [0x30]);
}

fn any_what() -> impl Strategy<Value = What<'static>> {
    let names = prop::sample::select(vec![&b"//anon"[..], b"/a", b"[stack]", b"", b"x"]);
    prop_oneof![
        (0u64..9, 0u64..2).prop_map(|(address, page)| begin(address, page)),
        Just(MINOR),
        Just(MAJOR),
        (any::<u64>(), any::<u64>(), 0u32..8, 1u32..3, names.clone())
            .prop_map(|(a, b, protection, flags, name)| map(a, b, protection, flags, name)),
        (names, any::<bool>()).prop_map(|(name, by_exec)| What::Name { name, by_exec }),
        (98i32..103).prop_map(|parent| What::Start { parent, parent_tid: parent }),
        Just(What::Exit),
        any::<u64>().prop_map(What::Lost),
    ]
}

proptest! {
    #[test]
    fn each_begin_is_one_fault_whatever_happens(
        records in prop::collection::vec((98i32..103, 98i32..103, any_what()), 0..100),
    ) {
        let records: Vec<_> = records
            .into_iter()
            .enumerate()
            .map(|(time, (pid, tid, what))| Record { time: time as u64, pid, tid, what })
            .collect();
        let found = of(&records);
        let count = |wanted: fn(&What) -> bool| {
            records.iter().filter(|record| wanted(&record.what)).count() as u64
        };
        let before = found.unlisted;
        let begins = found.faults.len() as u64
            + before.minor_before + before.major_before + before.unended_before;
        prop_assert_eq!(begins, count(|what| matches!(what, What::Begin { .. })));
        let ended = found.faults.iter().filter(|fault| fault.end.is_known()).count() as u64;
        let ends =
            ended + before.minor_before + before.major_before + before.minor_ends + before.major_ends;
        prop_assert_eq!(ends, count(|what| matches!(what, What::End { .. })));
        for fault in &found.faults {
            prop_assert!(found.owner(fault).is_some());
            prop_assert!(fault.mapping.is_none() || found.mapping(fault.mapping).is_some());
        }
    }
}
