//! Recordings for the tests of exports.

use crate::recording::{Cause, End, Fault, Mapping, Object, Process, Recording, Thread};
use crate::waits::{File, Kind, Operation, Request, Wait, Waits};
use headstart::host::id::{Dev, InodeId};
use proptest::prelude::*;

/// The file of [`recording`].
pub const FILE: InodeId = InodeId { dev: Dev::new(8, 1), ino: 7 };

/// Two threads of a process with faults of all kinds in a file, and one where nothing is mapped.
pub fn recording() -> Recording {
    let fault = |time, latency, end, thread, address, mapping| Fault {
        time,
        latency,
        end,
        cause: Cause::NotMapped,
        is_huge: false,
        thread,
        ip: 0x40,
        address,
        mapping,
        behind: None,
    };
    let mapping = Mapping {
        object: Object::File,
        name: 0,
        start: 0x7000,
        offset: 0x1000,
        protection: 5,
        is_shared: false,
        file: FILE,
    };
    Recording {
        faults: vec![
            fault(1_000, 1_000, End::Major, 0, 0x7010, Some(0)),
            fault(1_500, 30, End::Minor, 1, 0x7020, Some(0)),
            fault(2_500, 500, End::Minor, 0, 0x7030, Some(0)),
            fault(3_000, 4, End::Minor, 1, 0x5, None),
            fault(4_000, 0, End::None, 1, 0x6, None),
        ],
        mappings: vec![mapping],
        names: vec![b"/li;b\nx".to_vec(), b"sh".to_vec(), b"worker".to_vec()],
        processes: vec![Process { pid: 7, name: 1 }],
        threads: vec![
            Thread { tid: 7, process: 0, name: 1 },
            Thread { tid: 8, process: 0, name: 2 },
        ],
        ..Recording::default()
    }
}

/// A request of 4 KiB.
pub fn request(device: Dev, issue: u64, complete: Option<u64>) -> Request {
    Request {
        device,
        sector: 8,
        bytes: 4096,
        operation: Operation::Read,
        is_readahead: false,
        issue,
        complete,
        thread: None,
    }
}

/// The same with a wait of the second thread, and requests of which one does not end.
pub fn with_waits() -> Recording {
    let wait = Wait {
        thread: 1,
        start: 5_000,
        end: 10_000,
        kind: Kind::Read,
        file: Some(0),
        offset: Some(4096),
        call: Some(17),
        runner: None,
        waker: None,
    };
    let disk = Dev::new(8, 0);
    let waits = Waits {
        waits: vec![wait],
        files: vec![File { id: None, name: Some(0) }],
        requests: vec![request(disk, 5_000, Some(9_000)), request(disk, 6_000, None)],
        ..Waits::default()
    };
    Recording { waits: Some(waits), ..recording() }
}

/// Recordings as [`crate::recorder`] makes them: the faults of a thread do not overlap.
pub fn any_recording() -> impl Strategy<Value = Recording> {
    let fault = (0u64..1000, 0u64..1000, 0u8..4, 0u32..3, proptest::option::of(0u32..4));
    let name = proptest::collection::vec(any::<u8>(), 0..6);
    let names = proptest::collection::vec(name, 4);
    let object = prop_oneof![
        Just(Object::File),
        Just(Object::Anonymous),
        Just(Object::Heap),
        Just(Object::Special)
    ];
    let mapping = (0u32..4, 0u32..8, object);
    let mappings = proptest::collection::vec(mapping, 4);
    let faults = proptest::collection::vec(fault, 0..40);
    (faults, names, mappings).prop_map(|(faults, names, mappings)| {
        let mut recording = recording();
        recording.names = names;
        recording.mappings = mappings
            .into_iter()
            .map(|(name, protection, object)| Mapping {
                name,
                protection,
                object,
                ..recording.mappings[0]
            })
            .collect();
        recording.processes = vec![Process { pid: 7, name: 1 }, Process { pid: 7, name: 2 }];
        recording.threads = (0..3u32)
            .map(|at| Thread { tid: 7 + at as i32, process: at / 2, name: at + 1 })
            .collect();
        let mut free = [0; 3];
        recording.faults = faults
            .into_iter()
            .map(|(wait, latency, end, thread, mapping)| {
                let end = [End::Minor, End::Major, End::None, End::Lost][usize::from(end)];
                let latency = if end.is_known() { latency } else { 0 };
                let time = free[thread as usize] + wait;
                free[thread as usize] = time + latency;
                let first = recording_fault();
                Fault { time, latency, end, thread, mapping, ..first }
            })
            .collect();
        recording.faults.sort_by_key(|fault| fault.time);
        recording
    })
}

fn recording_fault() -> Fault {
    recording().faults[0]
}
