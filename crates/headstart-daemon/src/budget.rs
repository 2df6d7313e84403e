//! How much memory all replays in flight may fill together. Pure: the caller tells what is
//! available.

use std::collections::HashMap;

/// A replay that is in flight.
pub type Number = u64;

/// Memory for gaps between metadata, which is scattered: on a rotational disk they may have 256 KiB each, many
/// times what a small program reads, and metadata comes before the data.
const METADATA_GAPS: u64 = 32 << 20;

/// What a replay of a pack with so many bytes may read: the gaps between its ranges, too, where that is
/// faster than skipping them. Those of data are at most a quarter of it.
pub fn with_gaps(bytes: u64) -> u64 {
    bytes.saturating_mul(2).saturating_add(METADATA_GAPS)
}

/// What each replay in flight may read.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    reserved: HashMap<Number, u64>,
    next: Number,
}

impl Budget {
    /// Reserves up to `wanted` bytes of this percentage of the available bytes; `None` if nothing
    /// is left.
    pub fn reserve(&mut self, wanted: u64, available: u64, percent: u64) -> Option<(Number, u64)> {
        let all = available / 100 * percent;
        let left = all.saturating_sub(self.in_flight());
        let granted = wanted.min(left);
        if granted == 0 {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.reserved.insert(number, granted);
        Some((number, granted))
    }

    /// Gives back what a replay had.
    pub fn release(&mut self, number: Number) {
        self.reserved.remove(&number);
    }

    /// Bytes that the replays in flight may read.
    pub fn in_flight(&self) -> u64 {
        self.reserved.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::{File, FileSystem, History, MetadataRange, Origin, Pack, Range};
    use headstart::replay::frequency::Frequency;
    use headstart::replay::plan::{Limits, Plan};
    use headstart::replay::strategy::{Order, ReadStrategy};
    use proptest::prelude::*;

    #[test]
    fn replays_share_the_budget_and_give_it_back() {
        let mut budget = Budget::default();
        let (first, granted) = budget.reserve(20, 100, 25).unwrap();
        assert_eq!(granted, 20);
        assert_eq!(budget.reserve(20, 100, 25).unwrap().1, 5);
        assert!(budget.reserve(1, 100, 25).is_none());
        budget.release(first);
        assert_eq!(budget.reserve(100, 100, 25).unwrap().1, 20);
        budget.release(first);
        assert_eq!(budget.in_flight(), 25, "twice gives back once");
    }

    #[test]
    fn data_has_room_behind_metadata_that_lies_far_apart() {
        let bounds = Limits { budget: with_gaps(104 << 12), metadata: true };
        let metadata = (0..100).map(|n| MetadataRange {
            file_system: 0,
            first: 64 * n,
            pages: 1,
            at_us: 0,
            history: History(1),
        });
        let data =
            Range { file: 0, first: 0, pages: 4, at_us: 1, how: How::READ, history: History(1) };
        let pack = Pack {
            origin: Origin { page_shift: 12, ..Origin::default() },
            file_systems: vec![FileSystem::default()],
            files: vec![File::default()],
            ranges: vec![data],
            metadata: metadata.collect(),
            ..Pack::default()
        };
        let strategy = ReadStrategy { order: Order::Elevator, ..ReadStrategy::default() };
        let plan = Plan::of_pack(&pack, &Frequency::EVER.choice(&pack), bounds, strategy);
        assert!(plan.bytes() > 20 * (104 << 12), "{}", plan.bytes());
        assert_eq!(plan.over_budget, 0);
    }

    proptest! {
        #[test]
        fn no_more_than_the_budget_is_ever_in_flight(
            steps in proptest::collection::vec((any::<bool>(), 0u64..1000), 0..50)
        ) {
            let mut budget = Budget::default();
            let mut open = Vec::new();
            for (reserves, bytes) in steps {
                if reserves {
                    open.extend(budget.reserve(bytes, 4000, 25).map(|(number, _)| number));
                } else if let Some(number) = open.pop() {
                    budget.release(number);
                }
                prop_assert!(budget.in_flight() <= 1000);
            }
            open.into_iter().for_each(|number| budget.release(number));
            prop_assert_eq!(budget.in_flight(), 0);
        }
    }
}
