//! How many threads a replay may start, so that the program can start its own. The driver: it reads control groups.

use super::contents;
use super::memory::our_groups;

/// One of so many of those that our control groups leave is the replay's.
const PART: u64 = 4;

/// So many threads, at least one; of users' limits (getrlimit(2)) it knows nothing.
pub fn most() -> usize {
    let left = our_groups()
        .iter()
        .filter_map(|group| group.threads_left(|file| contents::text(group.dir.join(file)).ok()));
    within(left.min())
}

fn within(left: Option<u64>) -> usize {
    left.map_or(usize::MAX, |left| usize::try_from(left / PART).unwrap_or(usize::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_takes_a_quarter_of_the_threads_that_are_left_and_never_none() {
        let found = [None, Some(100), Some(3), Some(0)].map(within);
        assert_eq!(found, [usize::MAX, 25, 1, 1]);
    }
}
