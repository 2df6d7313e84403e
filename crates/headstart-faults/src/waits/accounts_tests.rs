//! Tests of accounts.

use super::*;
use headstart_sys::calls;
use proptest::prelude::*;

fn number(name: &str) -> u32 {
    (0..1000).find(|number| calls::name(*number) == Some(name)).unwrap()
}

const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 7 };

/// Thread 7 of process 7 runs since 100 and is in no call.
fn running() -> Accounts {
    let mut accounts = Accounts::default();
    accounts.begin(100, 7, 7, 0);
    accounts.executes(7);
    accounts.returns(100, 7, 0);
    accounts
}

/// It waits from `start`, is woken and runs again.
fn wait(accounts: &mut Accounts, start: u64, woken: u64, end: u64) {
    accounts.leaves(start, 7, Left::Waits, Place::default());
    accounts.runs(start, 0, 9, b"other", |_| 55);
    accounts.wakes(woken, 7, None);
    accounts.runs(end, 0, 7, b"own", |_| 55);
}

fn call(accounts: &mut Accounts, time: u64, name: &str, arguments: &[u64]) {
    let mut all = [0; 6];
    all.iter_mut().zip(arguments).for_each(|(to, from)| *to = *from);
    accounts.enters(time, 7, number(name), false, all);
}

/// Kind, length and file of each wait.
fn kinds(waits: &Waits) -> Vec<(Kind, u64, Option<u32>)> {
    waits.waits.iter().map(|wait| (wait.kind, wait.ns(), wait.file)).collect()
}

/// CPU time and waits of all threads are their lives.
fn assert_exact(waits: &Waits) {
    for life in &waits.lives {
        let own = waits.waits.iter().filter(|wait| wait.thread == life.thread);
        let waited: u64 = own.map(Wait::ns).sum();
        assert_eq!(life.end - life.start, life.cpu_ns() + life.unkept_ns + waited, "{life:?}");
    }
}

#[test]
fn the_time_of_a_thread_is_its_cpu_time_its_waits_and_its_time_in_the_run_queue() {
    let mut accounts = running();
    call(&mut accounts, 110, "clock_nanosleep", &[]);
    wait(&mut accounts, 115, 200, 230);
    accounts.returns(240, 7, 0);
    accounts.fault_begins(250, 7, 0x1000);
    accounts.fault_ends(257, 7);
    let waits = accounts.finish(300);
    assert_eq!(kinds(&waits), [(Kind::Timer, 85, None), (Kind::RunQueue, 30, None)]);
    assert_eq!(waits.waits[1].runner, Some(0));
    assert_eq!(waits.runners, [Runner { tid: 9, name: 55 }]);
    let life = waits.lives[0];
    assert_eq!((life.user_ns, life.calls_ns, life.faults_ns), (63, 15, 7));
    assert_exact(&waits);
}

#[test]
fn a_read_is_of_the_file_whose_pages_it_reads_and_so_is_the_open_before_it() {
    let mut accounts = running();
    call(&mut accounts, 110, "openat", &[]);
    wait(&mut accounts, 120, 130, 130);
    accounts.returns(140, 7, 3);
    call(&mut accounts, 150, "read", &[3]);
    wait(&mut accounts, 160, 180, 180);
    accounts.reads(7, FILE, 8192);
    wait(&mut accounts, 190, 195, 195);
    accounts.reads(7, FILE, 12288);
    accounts.returns(200, 7, 100);
    let waits = accounts.finish(200);
    let expected = [(Kind::Open, 10, Some(0)), (Kind::Read, 20, Some(0)), (Kind::Read, 5, Some(0))];
    assert_eq!(kinds(&waits), expected);
    let offsets: Vec<_> = waits.waits.iter().map(|wait| wait.offset).collect();
    assert_eq!(offsets, [None, Some(8192), Some(12288)]);
    assert_eq!(waits.files, [File { id: Some(FILE), name: None }]);
}

#[test]
fn an_execution_waits_for_the_program_that_it_then_reads() {
    let mut accounts = running();
    call(&mut accounts, 110, "execve", &[]);
    wait(&mut accounts, 120, 130, 130);
    accounts.reads(7, FILE, 0);
    wait(&mut accounts, 140, 145, 145);
    let interpreter = InodeId { ino: 8, ..FILE };
    accounts.reads(7, interpreter, 0);
    let waits = accounts.finish(200);
    let expected = [(Kind::Execute, 10, Some(0)), (Kind::Execute, 5, Some(1))];
    assert_eq!(kinds(&waits), expected);
}

#[test]
fn a_file_that_is_mapped_is_the_one_that_was_opened() {
    let mut accounts = running();
    call(&mut accounts, 110, "openat", &[]);
    wait(&mut accounts, 120, 130, 130);
    accounts.returns(140, 7, 3);
    call(&mut accounts, 150, "mmap", &[0, 4096, 1, 2, 3]);
    accounts.maps(7, FILE, 66);
    accounts.returns(160, 7, 0x7000);
    let waits = accounts.finish(200);
    assert_eq!(kinds(&waits), [(Kind::Open, 10, Some(0))]);
    assert_eq!(waits.files, [File { id: Some(FILE), name: Some(66) }]);
}

#[test]
fn a_read_without_pages_is_of_a_pipe_or_the_like() {
    let mut accounts = running();
    call(&mut accounts, 110, "read", &[0]);
    wait(&mut accounts, 120, 130, 130);
    accounts.returns(140, 7, 3);
    accounts.enters(150, 7, 3, true, [0; 6]);
    wait(&mut accounts, 160, 170, 170);
    accounts.returns(180, 7, 0);
    accounts.leaves(190, 7, Left::Stopped, Place::default());
    accounts.runs(193, 0, 7, b"own", |_| 0);
    accounts.leaves(195, 7, Left::Waits, Place::default());
    let waits = accounts.finish(200);
    let expected = [Kind::Stream, Kind::Call, Kind::Signal, Kind::Unexplained];
    let found: Vec<_> = waits.waits.iter().map(|wait| wait.kind).collect();
    assert_eq!(found, expected);
    assert_eq!(waits.unrecorded.calls_32_bit, 1);
    assert_exact(&waits);
}

/// The call waits for 10 ns, and returns this.
fn returning(accounts: &mut Accounts, time: u64, name: &str, arguments: &[u64], value: i64) {
    call(accounts, time, name, arguments);
    wait(accounts, time + 1, time + 11, time + 11);
    accounts.returns(time + 12, 7, value);
}

#[test]
fn a_descriptor_that_is_another_now_has_not_the_file_that_it_had() {
    let closes_on_exec = u64::from(rustix::fs::OFlags::CLOEXEC.bits());
    for (name, arguments, value) in [
        // A pipe, of which no call told, takes the place of standard input.
        ("dup2", [9, 0, 0], 0),
        ("close_range", [0, u64::from(u32::MAX), 0], 0),
        ("fcntl", [9, 0, 0], 0),
    ] {
        let mut accounts = running();
        let file = Some(accounts.file(None, Some(3)));
        accounts.has_open(7, 0, Descriptor { file, is_kept: true, ..Descriptor::default() });
        returning(&mut accounts, 110, "read", &[0], 1);
        returning(&mut accounts, 130, name, &arguments, value);
        returning(&mut accounts, 150, "read", &[0], 1);
        let found = kinds(&accounts.finish(200));
        assert_eq!((found[0].0, found[0].2), (Kind::Read, Some(0)), "{name}");
        assert_eq!((found[2].0, found[2].2), (Kind::Stream, None), "{name}");
    }
    let mut accounts = running();
    returning(&mut accounts, 110, "openat", &[0, 0, closes_on_exec], 3);
    returning(&mut accounts, 130, "openat", &[], 4);
    accounts.executes(7);
    accounts.returns(145, 7, 0);
    returning(&mut accounts, 150, "read", &[3], 1);
    returning(&mut accounts, 170, "read", &[4], 1);
    let found: Vec<_> = accounts.finish(200).waits.iter().map(|wait| wait.kind).collect();
    assert_eq!(found, [Kind::Open, Kind::Open, Kind::Stream, Kind::Read]);
}

#[test]
fn a_copy_that_fcntl_makes_is_the_same_file() {
    let mut accounts = running();
    returning(&mut accounts, 110, "openat", &[], 3);
    returning(&mut accounts, 130, "fcntl", &[3, DUPFD_CLOEXEC, 10], 10);
    returning(&mut accounts, 150, "read", &[10], 1);
    assert_eq!(kinds(&accounts.finish(200))[2].0, Kind::Read);
}

#[test]
fn a_thread_that_is_woken_as_it_leaves_its_cpu_could_run_at_once() {
    let mut accounts = running();
    call(&mut accounts, 110, "futex", &[]);
    accounts.wakes(119, 7, None);
    accounts.leaves(120, 7, Left::Waits, Place::default());
    accounts.runs(150, 0, 7, b"own", |_| 0);
    // That was not for this wait.
    accounts.leaves(160, 7, Left::Waits, Place::default());
    accounts.runs(165, 0, 7, b"own", |_| 0);
    let waits = accounts.finish(200);
    assert_eq!(kinds(&waits), [(Kind::RunQueue, 30, None), (Kind::Thread, 5, None)]);
    assert_exact(&waits);
}

#[test]
fn a_call_that_a_thread_is_found_in_counts_only_if_it_was_in_it_all_the_time() {
    for (first, expected) in [(140, Kind::Timer), (120, Kind::Unexplained)] {
        let mut accounts = Accounts::default();
        accounts.begin(100, 7, 7, 0);
        accounts.waits_in(100, 7, (number("clock_nanosleep"), [0; 6]), 130);
        accounts.wakes(first, 7, None);
        accounts.runs(first, 0, 7, b"own", |_| 0);
        let waits = accounts.finish(200);
        assert_eq!(kinds(&waits), [(expected, first - 100, None)]);
        assert_exact(&waits);
    }
}

#[test]
fn who_ended_a_wait_and_who_started_a_thread_is_known_also_after_its_end() {
    let mut accounts = running();
    accounts.begin(110, 8, 8, 1);
    accounts.started(8, 7);
    accounts.begin(120, 8, 8, 2);
    call(&mut accounts, 130, "wait4", &[]);
    accounts.leaves(140, 7, Left::Waits, Place::default());
    accounts.exits(150, 8);
    accounts.wakes(160, 7, Some(8));
    accounts.leaves(165, 8, Left::Ended, Place::default());
    accounts.runs(170, 0, 7, b"own", |_| 0);
    for (woken, by) in [(190, Some(99)), (210, Some(7)), (230, None)] {
        accounts.leaves(woken - 5, 7, Left::Waits, Place::default());
        accounts.wakes(woken, 7, by);
        accounts.runs(woken, 0, 7, b"own", |_| 0);
    }
    let waits = accounts.finish(300);
    let wakers = waits.waits.iter().filter(|wait| wait.kind == Kind::Child);
    assert_eq!(wakers.map(|wait| wait.waker).collect::<Vec<_>>(), [Some(2), None, None, None]);
    let origins: Vec<_> = waits.lives.iter().map(|life| (life.thread, life.origin)).collect();
    assert_eq!(origins, [(0, None), (1, Some(0)), (2, Some(1))]);
    assert_eq!(waits.lives[2].end, 165);
}

#[test]
fn what_goes_on_while_records_are_lost_is_unexplained() {
    let mut accounts = running();
    call(&mut accounts, 110, "read", &[0]);
    accounts.leaves(120, 7, Left::Waits, Place::default());
    accounts.lose();
    accounts.runs(150, 0, 7, b"own", |_| 0);
    accounts.returns(160, 7, 3);
    let waits = accounts.finish(200);
    assert_eq!(kinds(&waits), [(Kind::Unexplained, 30, None)]);
    assert_eq!(waits.unrecorded.call_ends, 1);
    assert_exact(&waits);
}

#[test]
fn a_fault_that_waits_has_its_place_also_within_a_call() {
    let mut accounts = running();
    call(&mut accounts, 110, "write", &[1]);
    accounts.fault_begins(115, 7, 0x1234);
    assert_eq!(accounts.fault_of(7), Some((7, 0x1234)));
    let file = accounts.file(Some(FILE), Some(3));
    accounts.leaves(120, 7, Left::Waits, Place { file: Some(file), offset: Some(0x234) });
    accounts.runs(140, 0, 7, b"own", |_| 0);
    accounts.fault_ends(141, 7);
    assert_eq!(accounts.fault_of(7), None);
    let waits = accounts.finish(150);
    assert_eq!((waits.waits[0].kind, waits.waits[0].offset), (Kind::Fault, Some(0x234)));
    assert_exact(&waits);
}

proptest! {
    #[test]
    fn whatever_comes_in_whatever_order_the_sums_are_exact_and_waits_do_not_overlap(
        steps in proptest::collection::vec((0u8..15, 0i32..3, 0u64..20, 0u32..450), 0..200),
    ) {
        let (mut accounts, mut time, mut thread) = (Accounts::default(), 50, 0);
        for (what, tid, more, number) in steps {
            time += more;
            let left = [Left::Runnable, Left::Waits, Left::Stopped, Left::Ended];
            let left = left[number as usize % 4];
            match what {
                0 => { accounts.begin(time, 1, tid, thread); thread += 1; }
                1 => accounts.end(time, tid),
                2 => accounts.fault_begins(time, tid, u64::from(number)),
                3 => accounts.fault_ends(time, tid),
                4 => accounts.enters(time, tid, number, more == 0, [more; 6]),
                5 => accounts.returns(time, tid, more as i64 - 5),
                6 => accounts.leaves(time, tid, left, Place::default()),
                7 => accounts.runs(time, more as usize % 2, tid, b"x", |_| 0),
                8 => accounts.wakes(time, tid, Some(more as i32 % 3)),
                9 => accounts.reads(tid, FILE, more),
                10 => accounts.lose(),
                11 => accounts.started(tid, more as i32 % 3),
                12 => accounts.waits_in(time, tid, (number, [more; 6]), time + more),
                13 => accounts.exits(time, tid),
                _ => accounts.maps(tid, FILE, 1),
            }
        }
        let waits = accounts.finish(time);
        assert_exact(&waits);
        for pair in waits.waits.windows(2) {
            prop_assert!(pair[0].start <= pair[1].start);
        }
        for life in &waits.lives {
            let own: Vec<_> = waits.waits.iter().filter(|wait| wait.thread == life.thread).collect();
            prop_assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(own.iter().all(|wait| wait.start >= life.start && wait.end <= life.end));
        }
    }
}
