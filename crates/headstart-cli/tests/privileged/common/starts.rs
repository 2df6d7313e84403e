//! Starts that other programs make for somebody: from the first cold one to one that is prefetched.

use crate::common::within;
use crate::daemon::{FILES, Service, TRIALS, resident_files};
use headstart_testing::{LoopFs, wait_until};
use serde_json::Value;
use std::process::Child;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// What makes the starts.
pub trait Starts {
    /// Begins one, which waits before it reads its files.
    fn begin(&mut self);
    /// Has it read them.
    fn read(&mut self);
    /// Ends it.
    fn end(&mut self);
}

/// What a bus or a manager of services waits for the disk of this machine, once it is in memory, is less. What the
/// program waits for is more.
const THRESHOLD: &str = "threshold = 500ms\n";

/// [`is_learned`] where the starter begins while the service runs, too. If that were slow itself, all that it
/// starts would be a part of its own start: it is in memory.
pub fn is_learned_beside<S: Starts>(fs: &LoopFs, program: &str, starter: impl Fn(&LoopFs) -> S) {
    let mut unseen = starter(fs);
    unseen.begin();
    unseen.read();
    unseen.end();
    drop(unseen);
    let service = Service::with(THRESHOLD);
    is_learned(&service, fs, program, &mut starter(fs));
}

/// A slow program is learned, and its files are resident before it reads them the third time.
pub fn is_learned(service: &Service, fs: &LoopFs, program: &str, starts: &mut impl Starts) {
    let seen = (0..TRIALS).find_map(|_| first_start(service, fs, program, starts)).unwrap();
    assert_eq!(seen["kind"], "cold", "{seen}");
    let word = fs.path().to_str().unwrap();
    let is_recorded = || wait_until("recording", || service.records(word).then_some(()));
    let seen = later_start(service, fs, program, starts, is_recorded);
    assert_eq!(seen["learned"], true, "{seen}");
    let has_files = || (resident_files(fs) * 2 >= FILES).then_some(());
    let is_prefetched = || {
        let told = || format!("{:#} {:#}", service.json(&["top"]), service.json(&["status"]));
        assert!(within(MINUTE, has_files).is_some(), "it is not prefetched: {}", told());
    };
    let seen = later_start(service, fs, program, starts, is_prefetched);
    assert_eq!(seen["kind"], "prefetched", "{:#?}", service.starts(program));
}

/// A cold start, as `top` tells it, if it is noticed while it lasts.
fn first_start(
    service: &Service,
    fs: &LoopFs,
    program: &str,
    starts: &mut impl Starts,
) -> Option<Value> {
    let known = service.starts(program);
    fs.remount();
    service.believes_slow(fs);
    starts.begin();
    starts.read();
    let seen = service.new_start(program, &known);
    starts.end();
    seen
}

/// A cold start that reads its files when this has been waited for. It ends before it is told:
/// a recording goes on for some seconds after the last read.
fn later_start(
    service: &Service,
    fs: &LoopFs,
    program: &str,
    starts: &mut impl Starts,
    wait: impl FnOnce(),
) -> Value {
    let known = service.starts(program);
    fs.remount();
    starts.begin();
    wait();
    starts.read();
    starts.end();
    wait_until("start in `top`", || service.new_start(program, &known))
}

/// Ends with the test.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}
