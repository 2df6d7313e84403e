//! What was in memory of programs whose last start was hot. Such programs are not looked at for a while,
//! unless a few of their pages say that they are cold now. Bounded.

use crate::programs::Id;
use headstart::replay::sample::InMemory;
use std::collections::VecDeque;
use std::sync::Arc;

/// Programs that are kept, each with some KiB.
const MOST: usize = 256;

/// Samples of programs, the latest first.
#[derive(Debug, Default)]
pub(super) struct Hot(VecDeque<(Id, Arc<InMemory>)>);

impl Hot {
    /// A start of this program was hot, and this is in memory. That which was noted longest ago makes room.
    pub(super) fn note(&mut self, id: &Id, sample: InMemory) {
        self.0.retain(|(known, _)| known != id);
        self.0.truncate(MOST - 1);
        self.0.push_front((id.clone(), Arc::new(sample)));
    }

    /// What was in memory of a program, if that is known.
    pub(super) fn of(&self, id: &Id) -> Option<Arc<InMemory>> {
        self.0.iter().find(|(known, _)| known == id).map(|(_, sample)| Arc::clone(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_samples_of_a_bounded_number_of_programs_are_kept() {
        let id = |number: usize| Id { uid: 0, file_name: format!("{number}.pack") };
        let mut hot = Hot::default();
        (0..=MOST).for_each(|number| hot.note(&id(number), InMemory::default()));
        assert!(hot.of(&id(0)).is_none() && hot.of(&id(MOST)).is_some());
        let first = hot.of(&id(1)).unwrap();
        hot.note(&id(1), InMemory::default());
        assert!(!Arc::ptr_eq(&first, &hot.of(&id(1)).unwrap()));
        hot.note(&id(0), InMemory::default());
        assert_eq!(hot.0.len(), MOST);
        assert!(hot.of(&id(1)).is_some() && hot.of(&id(2)).is_none());
    }
}
