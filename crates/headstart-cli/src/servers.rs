//! Which file servers do not answer: a call that waits for one can't be ended, nor then its process. So
//! before files are looked at, a child tries each server; it is left behind if it waits.

use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use headstart::pack::store::silent::{ServerCall, Silent};
use headstart_sys::{descriptors, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to answer, and how often the child looks whether it has.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// Those of these file systems whose server does not answer, by where it is seen. Only while there is
/// a single thread.
pub fn silent(mounts: &MountTable, servers: impl IntoIterator<Item = Dev>) -> HashSet<Dev> {
    let marked = Silent::here();
    let servers: BTreeSet<Dev> = servers.into_iter().collect();
    let answers = |dev: &Dev| {
        let visible = mounts.visible_of(*dev);
        let Some(mount) = visible.first() else { return true };
        !marked.any(&[*dev]) && answers(*dev, &mount.mount_point)
    };
    servers.into_iter().filter(|dev| !answers(dev)).collect()
}

/// Whether a path on a file system can be looked at in time.
fn answers(dev: Dev, path: &Path) -> bool {
    let child = process::fork(|| {
        // Whoever reads the output of this process must not wait for the child.
        descriptors::close_all();
        let call = ServerCall::to(&[dev]);
        thread::scope(|scope| {
            let look = scope.spawn(|| rustix::fs::stat(path).is_ok());
            let until = Instant::now() + PATIENCE;
            while !look.is_finished() && Instant::now() < until {
                thread::sleep(LOOK);
            }
            // So that no other process tries as long as this one waits.
            if !look.is_finished() {
                call.mark();
            }
        });
        0
    });
    // What can't be tried may answer.
    let Ok(child) = child else { return true };
    let Ok(end) = pidfd_open(child, PidfdFlags::empty()) else { return true };
    let until = Instant::now() + PATIENCE;
    let has_ended = loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            found => break found != Ok(0),
        }
    };
    if has_ended {
        let _ = process::wait(child);
    }
    has_ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::mounts::parse;

    #[test]
    fn what_is_seen_nowhere_or_answers_is_not_silent() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /proc rw - fuse server rw\n";
        let table = MountTable::new(parse(text).unwrap(), None);
        assert!(silent(&table, [Dev::new(0, 9), Dev::new(0, 10)]).is_empty());
    }
}
