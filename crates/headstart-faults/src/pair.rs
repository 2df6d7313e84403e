//! Pairs starts and ends of faults: by thread, since a thread serves one at a time. Not by address:
//! kernels have reported masked ones at the end.

use std::collections::HashMap;

/// A fault that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// In ns.
    pub time: u64,
    /// The instruction.
    pub ip: u64,
    /// What is accessed.
    pub address: u64,
    /// The size of the page that was mapped there, 0 if none; `None` where that is not known.
    pub page: Option<u64>,
}

/// The faults that have begun and not ended, by thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pairs(HashMap<i32, Begun>);

impl Pairs {
    /// A fault begins. An earlier one of the thread that has no end is returned: it ended in a
    /// signal, or its end was lost.
    pub fn begin(&mut self, tid: i32, begun: Begun) -> Option<Begun> {
        self.0.insert(tid, begun)
    }

    /// The fault of the thread has been served; `None` if its start is missing.
    pub fn end(&mut self, tid: i32) -> Option<Begun> {
        self.0.remove(&tid)
    }

    /// Those that are left, in the order of their starts.
    pub fn left(self) -> Vec<(i32, Begun)> {
        let mut left: Vec<_> = self.0.into_iter().collect();
        left.sort_unstable_by_key(|(tid, begun)| (begun.time, *tid));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(time: u64) -> Begun {
        Begun { time, ip: 0, address: 0, page: None }
    }

    #[test]
    fn an_end_belongs_to_the_last_begin_of_its_thread() {
        let mut pairs = Pairs::default();
        assert_eq!(pairs.begin(1, at(10)), None);
        assert_eq!(pairs.begin(2, at(11)), None);
        assert_eq!(pairs.begin(1, at(12)), Some(at(10)));
        assert_eq!(pairs.end(1), Some(at(12)));
        assert_eq!(pairs.end(1), None);
        assert_eq!(pairs.left(), [(2, at(11))]);
    }

    proptest! {
        #[test]
        fn each_begin_comes_back_once(
            steps in proptest::collection::vec((0i32..4, any::<bool>()), 0..200),
        ) {
            let (mut pairs, mut back, mut begun) = (Pairs::default(), Vec::new(), Vec::new());
            for (time, (tid, begins)) in steps.into_iter().enumerate() {
                let found = if begins {
                    begun.push((tid, time as u64));
                    pairs.begin(tid, at(time as u64))
                } else {
                    pairs.end(tid)
                };
                // What comes back began before, and was the last of its thread.
                if let Some(found) = found {
                    let mut before = begun.iter().filter(|(other, begin)| {
                        *other == tid && (!begins || *begin != time as u64)
                    });
                    prop_assert_eq!(before.next_back(), Some(&(tid, found.time)));
                    back.push((tid, found.time));
                }
            }
            back.extend(pairs.left().into_iter().map(|(tid, found)| (tid, found.time)));
            back.sort_unstable();
            begun.sort_unstable();
            prop_assert_eq!(back, begun);
        }
    }
}
