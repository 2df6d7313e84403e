//! Who ran on each CPU lately: what others waited for that could run.

use std::collections::VecDeque;

/// Of each CPU, so many changes are kept.
const KEPT: usize = 64;
/// A time is cut into no more parts.
const MOST_PARTS: usize = 16;
/// `TASK_COMM_LEN`
const NAME: usize = 16;

/// Who ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The thread.
    pub tid: i32,
    name: [u8; NAME],
}

impl Ran {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        self.name.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// A part of a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// In ns.
    pub start: u64,
    /// Likewise.
    pub end: u64,
    /// Who ran; `None` for nobody, or if that is not known.
    pub ran: Option<Ran>,
}

/// Those of all CPUs.
#[derive(Clone, Debug, Default)]
pub struct Histories(Vec<VecDeque<(u64, Option<Ran>)>>);

/// Rings are no more than these.
const MOST_CPUS: usize = 1 << 16;

impl Histories {
    /// A CPU runs a thread from now on, or none (0).
    pub fn runs(&mut self, time: u64, cpu: usize, tid: i32, name: &[u8]) {
        if cpu >= MOST_CPUS {
            return;
        }
        if cpu >= self.0.len() {
            self.0.resize_with(cpu + 1, VecDeque::new);
        }
        let mut padded = [0; NAME];
        padded.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        let history = &mut self.0[cpu];
        if history.len() == KEPT {
            history.pop_front();
        }
        history.push_back((time, (tid != 0).then_some(Ran { tid, name: padded })));
    }

    /// That is not known any more.
    pub fn lose(&mut self) {
        self.0.iter_mut().for_each(VecDeque::clear);
    }

    /// The parts of a time on a CPU, without a gap; of many, the first ones are one.
    pub fn parts(&self, cpu: usize, start: u64, end: u64) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut until = end;
        for (since, ran) in self.0.get(cpu).into_iter().flatten().rev() {
            if until <= start || parts.len() == MOST_PARTS - 1 {
                break;
            }
            let since = (*since).clamp(start, until);
            match parts.last_mut() {
                Some(after) if after.ran == *ran => after.start = since,
                _ if since < until => parts.push(Part { start: since, end: until, ran: *ran }),
                _ => {}
            }
            until = since;
        }
        if until > start {
            parts.push(Part { start, end: until, ran: None });
        }
        parts.reverse();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_is_cut_by_who_ran_and_its_beginning_may_be_unknown() {
        let mut histories = Histories::default();
        histories.runs(10, 1, 7, b"seven");
        histories.runs(20, 1, 0, b"swapper/1");
        histories.runs(25, 1, 8, b"a name of 16 and more");
        let parts = histories.parts(1, 5, 30);
        let tids = parts.iter().map(|part| (part.start, part.ran.map(|ran| ran.tid)));
        assert_eq!(tids.collect::<Vec<_>>(), [(5, None), (10, Some(7)), (20, None), (25, Some(8))]);
        assert_eq!(parts[3].ran.unwrap().name(), b"a name of 16 and");
        assert_eq!(histories.parts(0, 5, 6), [Part { start: 5, end: 6, ran: None }]);
        histories.lose();
        assert_eq!(histories.parts(1, 5, 6).len(), 1);
    }

    proptest! {
        #[test]
        fn parts_cover_the_time_and_are_few(
            changes in proptest::collection::vec((0u64..9, 0i32..4), 0..100),
            start in 0u64..300, length in 1u64..300,
        ) {
            let (mut histories, mut time) = (Histories::default(), 0);
            for (more, tid) in changes {
                time += more;
                histories.runs(time, 0, tid, b"x");
            }
            let parts = histories.parts(0, start, start + length);
            prop_assert!(parts.len() <= MOST_PARTS);
            let mut at = start;
            for part in parts {
                prop_assert_eq!(part.start, at);
                prop_assert!(part.end > part.start);
                at = part.end;
            }
            prop_assert_eq!(at, start + length);
        }
    }
}
