//! How long a prefetched start takes, by what it computes and when its replay reads what. Pure.
//!
//! It is a model of one thread that touches all in one order: a start with several computes more at once. What a
//! program reads besides its replay is not in it.

use headstart::replay::requests::Submitted;

/// A start over time, in µs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    computing_us: u64,
    /// When something is in memory, and when a start that never waits needs it.
    needed: Vec<(u64, u64)>,
}

impl Start {
    /// One that computes for so long, with these requests, when each is answered, and when the start first touches
    /// something of each step.
    pub fn of(
        computing_us: u64,
        requests: &[Submitted],
        answered_us: &[u64],
        touched_us: &[u32],
    ) -> Self {
        let needed = |(one, answered_us): (&Submitted, &u64)| {
            let first = one.steps.iter().filter_map(|&step| touched_us.get(step)).min()?;
            Some((*answered_us, u64::from(*first)))
        };
        let needed = requests.iter().zip(answered_us).filter_map(needed).collect();
        Self { computing_us, needed }
    }

    /// How long it takes if reading takes `slower` times as long. Whatever it waits for last, it then computes what a
    /// start that never waits still has to: the longest such sum is what it takes.
    pub fn takes_us(&self, slower: f64) -> u64 {
        let through = |&(answered_us, needed_us): &(u64, u64)| {
            let left = self.computing_us.saturating_sub(needed_us);
            ((answered_us as f64 * slower) as u64).saturating_add(left)
        };
        self.needed.iter().map(through).fold(self.computing_us, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::replay::queue::Run;
    use proptest::prelude::*;

    fn one(steps: &[usize]) -> Submitted {
        Submitted { steps: steps.to_vec(), run: Run { count: 1, length: 4096 } }
    }

    /// Requests of one step each: when it is answered, and when touched.
    fn start(computing_us: u64, list: &[(u64, u32)]) -> Start {
        let (answered, touched): (Vec<_>, Vec<_>) = list.iter().copied().unzip();
        let requests: Vec<_> = (0..list.len()).map(|step| one(&[step])).collect();
        Start::of(computing_us, &requests, &answered, &touched)
    }

    #[test]
    fn a_start_takes_what_it_computes_and_what_it_waits_for() {
        for (name, list, slower, expected) in [
            ("nothing is read", vec![], 1.0, 100),
            ("all is read in time", vec![(10, 10), (50, 90)], 1.0, 100),
            ("it waits at its beginning", vec![(30, 0)], 1.0, 130),
            ("and later once more", vec![(30, 0), (90, 40)], 1.0, 150),
            ("it waits at its end", vec![(300, 100)], 1.0, 300),
            ("what is touched after it", vec![(300, 200)], 1.0, 300),
            ("reading takes longer", vec![(30, 0)], 2.0, 160),
        ] {
            assert_eq!(start(100, &list).takes_us(slower), expected, "{name}");
        }
    }

    #[test]
    fn a_request_is_needed_when_the_first_of_its_steps_is() {
        assert_eq!(Start::of(100, &[one(&[2, 0])], &[50], &[30, 0, 20]).takes_us(1.0), 130);
        // Metadata has none.
        assert_eq!(Start::of(100, &[one(&[])], &[500], &[0]).takes_us(1.0), 100);
    }

    proptest! {
        #[test]
        fn it_is_that_of_a_program_that_waits_where_something_is_not_there(
            list in prop::collection::vec((0u64..10_000, 0u32..1000), 0..20),
        ) {
            let mut by_touch = list.clone();
            by_touch.sort_by_key(|(_, touched)| *touched);
            let (mut now, mut computed) = (0, 0);
            for (answered, touched) in by_touch {
                now += u64::from(touched) - computed;
                computed = u64::from(touched);
                now = now.max(answered);
            }
            prop_assert_eq!(start(1000, &list).takes_us(1.0), now + 1000 - computed);
        }

        #[test]
        fn no_figures_break_it(
            list in prop::collection::vec((any::<u64>(), any::<u32>()), 0..5),
            computing_us: u64,
            slower: f64,
        ) {
            prop_assert!(start(computing_us, &list).takes_us(slower) >= computing_us);
        }
    }
}
