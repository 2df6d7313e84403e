//! One side of a comparison: the runs of several result files. Opens no files.

use crate::compare::{Reason, ResultSet, Skipped};
use crate::document::Results;
use crate::recorded::Recorded;
use std::collections::{BTreeSet, HashMap};

/// What the files of one side say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Side {
    /// All counters, each with its values in the order of the files.
    pub counters: ResultSet,
    /// [`crate::document::Benchmark::io_part_s`] of all benchmarks.
    pub io_part_s: Vec<f64>,
    /// How many recordings of page faults there are.
    pub recordings: usize,
    /// Of which some faults were lost.
    pub not_whole: usize,
    /// What was recorded.
    pub commands: BTreeSet<String>,
    /// Counters of recordings; each has a value for each recording once [`align`] was called.
    /// Hashed, since ordering hundred thousands of long names for each recording takes most of the time.
    recorded: HashMap<String, Vec<f64>>,
    unknown: BTreeSet<&'static str>,
}

impl Side {
    /// Adds what another file says.
    pub fn add(&mut self, results: Results) {
        match results {
            Results::Benchmark(benchmark) => {
                for (counter, values) in benchmark.counters {
                    self.counters.entry(counter).or_default().extend(values);
                }
                self.io_part_s.extend(benchmark.io_part_s);
            }
            Results::Recording(Recorded { counters, unknown, command, is_whole }) => {
                for (counter, value) in counters {
                    let values = self.recorded.entry(counter).or_default();
                    values.resize(self.recordings, 0.0);
                    values.push(value);
                }
                self.recordings += 1;
                self.not_whole += usize::from(!is_whole);
                self.unknown.extend(unknown);
                self.commands.insert(command);
            }
        }
    }

    fn fill(&mut self) {
        for values in self.recorded.values_mut() {
            values.resize(self.recordings, 0.0);
        }
    }

    /// Takes the counters of recordings among the others.
    fn finish(&mut self, unknown: &BTreeSet<&str>) {
        self.fill();
        let is_known = |counter: &str| !unknown.contains(first_word(counter));
        let recorded = std::mem::take(&mut self.recorded);
        let recorded = recorded.into_iter().filter(|(counter, _)| is_known(counter));
        // Made at once, it is sorted once.
        self.counters = std::mem::take(&mut self.counters).into_iter().chain(recorded).collect();
    }
}

/// Makes the counters of two sides comparable: what a recording does not have is 0, as the faults of
/// a file that it did not map, and what one of them can't know is no counter. Returns the latter.
pub fn align(first: &mut Side, second: &mut Side) -> Vec<Skipped> {
    let both = first.recordings > 0 && second.recordings > 0;
    if both {
        add_names(first, second);
        add_names(second, first);
    }
    let unknown: BTreeSet<&str> = first.unknown.union(&second.unknown).copied().collect();
    first.finish(&unknown);
    second.finish(&unknown);
    let skipped =
        |counter: &&str| Skipped { counter: (*counter).to_owned(), reason: Reason::NotRecorded };
    unknown.iter().filter(|_| both).map(skipped).collect()
}

/// Adds the counters of recordings that only `from` has.
fn add_names(from: &Side, to: &mut Side) {
    for counter in from.recorded.keys() {
        if !to.recorded.contains_key(counter) {
            to.recorded.insert(counter.clone(), Vec::new());
        }
    }
}

fn first_word(counter: &str) -> &str {
    counter.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Benchmark;

    fn recording(counters: &[(&str, f64)], unknown: &[&'static str], command: &str) -> Results {
        Results::Recording(Recorded {
            counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            unknown: unknown.to_vec(),
            command: command.to_owned(),
            is_whole: command != "lost",
        })
    }

    #[test]
    fn what_a_recording_does_not_have_is_zero_and_what_one_cannot_know_is_no_counter() {
        let (mut first, mut second) = (Side::default(), Side::default());
        first.add(recording(&[("minor", 1.0), ("copied", 5.0)], &[], "a"));
        first.add(recording(&[("major /x", 2.0)], &[], "a"));
        second.add(recording(&[("minor", 3.0)], &[], "b"));
        second.add(recording(&[("minor", 4.0), ("new", 9.0)], &["copied"], "lost"));
        let skipped = align(&mut first, &mut second);
        let values = |side: &Side| -> Vec<(String, Vec<f64>)> {
            side.counters.clone().into_iter().collect()
        };
        let expect = |rows: [(&str, [f64; 2]); 3]| {
            rows.map(|(name, values)| (name.to_owned(), values.to_vec())).to_vec()
        };
        let of_first = [("major /x", [0.0, 2.0]), ("minor", [1.0, 0.0]), ("new", [0.0, 0.0])];
        assert_eq!(values(&first), expect(of_first));
        let of_second = [("major /x", [0.0, 0.0]), ("minor", [3.0, 4.0]), ("new", [0.0, 9.0])];
        assert_eq!(values(&second), expect(of_second));
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].to_string(), "copied: not all recordings know it");
        assert_eq!((first.commands.len(), second.commands.len(), second.not_whole), (1, 2, 1));
    }

    #[test]
    fn runs_of_several_benchmarks_are_one_set() {
        let benchmark = |values: &[f64]| {
            Results::Benchmark(Benchmark {
                counters: [("hot time_s".to_owned(), values.to_vec())].into(),
                io_part_s: values.to_vec(),
            })
        };
        let (mut side, mut other) = (Side::default(), Side::default());
        side.add(benchmark(&[1.0, 2.0]));
        side.add(benchmark(&[3.0]));
        other.add(recording(&[("minor", 3.0)], &["huge"], "b"));
        assert!(align(&mut side, &mut other).is_empty());
        assert_eq!(side.counters["hot time_s"], [1.0, 2.0, 3.0]);
        assert_eq!((side.io_part_s.len(), side.recordings), (3, 0));
        assert_eq!((side.counters.len(), other.counters["minor"].len()), (1, 1));
    }
}
