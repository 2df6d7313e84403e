//! Places metadata among the data that it is touched with. Pure.
//!
//! With all metadata first, a program that touches little else (such as a look at each file of a
//! large tree) waits for all of it before it gets its own code. Metadata that is read with its data
//! makes the replay's threads wait when they open files. So metadata goes in front of the data by a
//! number of bytes of metadata.

use super::step::{HEAD_US, Step};

/// Steps in the order in which they are read.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Interleaved {
    pub(super) steps: Vec<Step>,
    /// How many there are before the first that reads data.
    pub(super) before_data: usize,
    /// How many at the beginning are due within [`HEAD_US`].
    pub(super) head: usize,
}

/// Merges two lists that are in the order of their touches.
pub(super) fn interleaved(metadata: &[Step], data: &[Step], lead: u64) -> Interleaved {
    let mut steps = Vec::with_capacity(metadata.len() + data.len());
    let (mut before_data, mut head) = (None, 0);
    // Of metadata, what is read before the step at `next`, and where that begins.
    let (mut next, mut behind, mut ahead) = (0, 0, 0u64);
    let mut data = data.iter().copied().peekable();
    loop {
        let of_metadata = metadata.get(next).map(|step| {
            while ahead > lead {
                ahead -= metadata[behind].bytes.length();
                behind += 1;
            }
            let due = if behind == 0 { 0 } else { metadata[behind - 1].touched_us };
            (due, *step)
        });
        let mut is_due = |due: u32| data.peek().is_none_or(|step| due <= step.touched_us);
        let (due, step) = match of_metadata.filter(|(due, _)| is_due(*due)) {
            Some((due, step)) => {
                next += 1;
                ahead = ahead.saturating_add(step.bytes.length());
                (due, step)
            }
            None => {
                let Some(step) = data.next() else { break };
                before_data.get_or_insert(steps.len());
                (step.touched_us, step)
            }
        };
        steps.push(step);
        if due <= HEAD_US {
            head = steps.len();
        }
    }
    Interleaved { before_data: before_data.unwrap_or(steps.len()), steps, head }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::ByteRange;
    use proptest::prelude::*;

    fn list(target: u32, touches: &[u32]) -> Vec<Step> {
        (0..)
            .zip(touches)
            .map(|(i, &touched_us)| Step { target, bytes: ByteRange::of(i * 10, 10), touched_us })
            .collect()
    }

    #[test]
    fn metadata_goes_ahead_by_so_many_bytes_of_itself() {
        let metadata = list(0, &[1000, 2000, 30_000, 40_000, 50_000]);
        let data = list(1, &[500, 31_000, 45_000]);
        for (name, lead, expected, before_data, head) in [
            ("all first", u64::MAX, vec![0, 0, 0, 0, 0, 1, 1, 1], 5, 6),
            ("by touches", 0, vec![0, 1, 0, 0, 0, 1, 0, 1], 1, 4),
            ("two steps ahead", 20, vec![0, 0, 0, 1, 0, 0, 1, 1], 3, 6),
        ] {
            let found = interleaved(&metadata, &data, lead);
            let targets: Vec<_> = found.steps.iter().map(|step| step.target).collect();
            assert_eq!(targets, expected, "{name}");
            assert_eq!((found.before_data, found.head), (before_data, head), "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_each_list_keeps_its_order(
            mut metadata in proptest::collection::vec(any::<u32>(), 0..20),
            mut data in proptest::collection::vec(any::<u32>(), 0..20), lead in 0u64..99
        ) {
            metadata.sort_unstable();
            data.sort_unstable();
            let (metadata, data) = (list(0, &metadata), list(1, &data));
            let found = interleaved(&metadata, &data, lead);
            let (of_metadata, of_data): (Vec<_>, Vec<_>) =
                found.steps.iter().copied().partition(|step| step.target == 0);
            prop_assert_eq!((of_metadata, of_data), (metadata, data));
            prop_assert!(found.head <= found.steps.len());
        }
    }
}
