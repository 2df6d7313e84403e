//! How many files a replay may have open at once. Many services have a low limit; a process that
//! starts no program of others raises its own to the hard one (`headstart_sys::descriptors`).
//! getrlimit(2).

use super::workers::LOOKING_UP;
use crate::host::cpus;
use crate::replay::requests::TOGETHER;
use headstart_sys::descriptors::for_each_open;
use rustix::process::{Resource, getrlimit};

/// Files that are kept open between their steps, at most. To open them again delays the first request
/// of a pass, 1,000 files by some 12 ms.
const KEPT: usize = 4096;
/// Files that may be open besides those that are kept before steps stop to wait for others, at most.
const GATHERED: usize = 512;
/// What else is opened while a replay goes on, besides a trace buffer for each CPU: a file by each thread at most.
const OTHERS: usize = LOOKING_UP;

/// How many files may be open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Descriptors {
    /// Between their steps.
    pub(super) kept: usize,
    /// Before steps stop to wait for others. Threads that request what was gathered have up
    /// to [`TOGETHER`] each beside these.
    pub(super) gathered: usize,
}

impl Descriptors {
    /// What this process may have, for so many threads.
    pub(super) fn here(threads: usize) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut open = 0;
        // Without /proc they are taken for few.
        let _ = for_each_open(|_| open += 1);
        // Each CPU has a trace buffer.
        Self::of(limit.saturating_sub(open + cpus::here() + OTHERS), threads)
    }

    /// The same where so many are free.
    fn of(free: usize, threads: usize) -> Self {
        let kept = (free / 4).min(KEPT);
        let gathered = free.saturating_sub(threads.saturating_mul(TOGETHER)).min(free / 2);
        Self { kept, gathered: gathered.min(kept + GATHERED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_few_may_be_open_few_are_kept_and_none_waits_for_others() {
        for (name, free, threads, kept, gathered) in [
            ("as usual", 950, 4, 237, 475),
            ("many threads", 950, 8, 237, 438),
            ("plenty", 1 << 20, 4, 4096, 4608),
            ("few", 100, 4, 25, 0),
            ("none", 0, 4, 0, 0),
        ] {
            assert_eq!(Descriptors::of(free, threads), Descriptors { kept, gathered }, "{name}");
        }
    }
}
