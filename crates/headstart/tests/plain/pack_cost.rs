//! What a large pack takes: bytes of its file, and CPU time to decode it. The library is optimised here, and
//! its unit tests are not (`.cargo/rustc`).

use headstart::host::usage::How;
use headstart::pack::codec::{decode, encode};
use headstart::pack::paths::PathInterner;
use headstart::pack::{File, FileSystem, History, Identity, Origin, Pack, Range};
use std::path::Path;
use std::time::Duration;

#[test]
fn a_hundred_thousand_small_files_take_under_six_megabytes_and_sixty_milliseconds() {
    let mut interner = PathInterner::default();
    let mut pack = Pack {
        origin: Origin { page_shift: 12, ..Origin::default() },
        file_systems: vec![FileSystem::default()],
        ..Pack::default()
    };
    for i in 0..100_000u32 {
        let path = format!("/srv/data/part-{:03}/record-{i:06}.json", i / 500);
        pack.files.push(File {
            file_system: 0,
            node: interner.intern(Path::new(&path)).unwrap(),
            identity: Identity {
                ino: 131_000 + u64::from(i),
                size: 8192,
                // Written one after the other, some 30 µs apart.
                mtime_ns: 1_790_000_000_123_456_789 + i64::from(i) * 31_417,
                ctime_ns: 1_790_000_000_123_456_789 + i64::from(i) * 31_417,
            },
            changes: History(0),
        });
        let (at_us, how) = (i * 40, How::READ);
        pack.ranges.push(Range { file: i, first: 0, pages: 2, at_us, how, history: History(1) });
    }
    pack.paths = interner.finish();
    let bytes = encode(&pack);
    assert!(bytes.len() < 6 << 20, "{} bytes", bytes.len());
    // Of the CPU: the machine may be busy with other tests.
    let used = || {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    };
    let begin = used();
    let decoded = decode(&bytes).unwrap();
    let time = used() - begin;
    assert!(time.as_millis() < 60, "{time:?}");
    assert_eq!(decoded, pack);
}
