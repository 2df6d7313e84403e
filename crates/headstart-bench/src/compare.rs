//! Which counters differ between two builds, settings or days.
//!
//! The method is a performance engineer's: sample every metric of a good and a bad build, and let
//! Welch's t-test pick those to look at. With many counters some differ by chance, so the p values
//! are adjusted.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::stats::summary::{Summary, summarise};
use crate::stats::unpaired::{Ranks, Shift, Tested, Welch, test, welch};
use crate::stats::{CONFIDENCE, fdr};

/// The values of each counter, one a run, by the counter's name (with its unit
/// where it has one: `time_s`, `major_faults`, `read_bytes`).
pub type ResultSet = BTreeMap<String, Vec<f64>>;

/// What differs between two result sets; see [`compare`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The counters that could be tested, those with the largest |t| first.
    pub rows: Vec<Row>,
    /// Counters that could be tested and are not in [`Self::rows`], since those would be too many.
    pub unlisted: Unlisted,
    /// The others, by name.
    pub skipped: Vec<Skipped>,
}

/// Counters that were tested and are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Unlisted {
    /// How many.
    pub counters: usize,
    /// Of which differ.
    pub differ: usize,
}

/// One counter in both sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub counter: String,
    /// The first set's values.
    pub first: Summary,
    /// The second set's values.
    pub second: Summary,
    /// Second minus first, by Welch's t-test. An infinite t (both sets constant,
    /// but different) is `null` in JSON.
    pub welch: Welch,
    /// Its p value, adjusted by Benjamini and Hochberg for the number of counters that were tested.
    pub p_adjusted: f64,
    /// The typical second ÷ first; `None` when a value is not above 0.
    pub ratio: Option<Shift>,
}

impl Row {
    /// Whether the difference stands, at a false discovery rate of 5 %.
    pub fn differs(&self) -> bool {
        differs(self.p_adjusted)
    }
}

/// A counter that was not tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub counter: String,
    /// Why not.
    pub reason: Reason,
}

/// Why a counter was not tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The second set lacks it.
    OnlyInFirst,
    /// The first set lacks it.
    OnlyInSecond,
    /// A set has fewer than two finite values of it.
    TooFewValues,
    /// A recording of one of the sets does not know it.
    NotRecorded,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::OnlyInFirst => "only the first set has it",
            Reason::OnlyInSecond => "only the second set has it",
            Reason::TooFewValues => "a set has fewer than two values of it",
            Reason::NotRecorded => "not all recordings know it",
        })
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.counter, self.reason)
    }
}

fn differs(p_adjusted: f64) -> bool {
    p_adjusted <= 1.0 - CONFIDENCE
}

/// Compares every counter that both sets have; lists at most `most` rows.
///
/// All are tested in one pass; intervals, which take most of the time, have only the rows that are
/// listed.
pub fn compare(first: &ResultSet, second: &ResultSet, most: usize) -> Comparison {
    let mut found = Vec::new();
    let mut skipped = Vec::new();
    let mut others = second.iter().peekable();
    let mut skip =
        |counter: &String, reason| skipped.push(Skipped { counter: counter.clone(), reason });
    for (counter, a) in first {
        while let Some((before, _)) = others.next_if(|(other, _)| *other < counter) {
            skip(before, Reason::OnlyInSecond);
        }
        let tested = match others.next_if(|(other, _)| *other == counter) {
            None => Err(Reason::OnlyInFirst),
            Some((_, b)) => test(a, b).map(|tested| (tested, a, b)).ok_or(Reason::TooFewValues),
        };
        match tested {
            Ok((tested, a, b)) => found.push((counter, tested, a, b)),
            Err(reason) => skip(counter, reason),
        }
    }
    others.for_each(|(counter, _)| skip(counter, Reason::OnlyInSecond));
    let adjusted = adjusted(found.iter().map(|(_, tested, ..)| tested));
    let mut found: Vec<_> = found.into_iter().zip(adjusted).collect();
    // Many that are constant on both sides have an infinite t: totals are before their parts.
    let size = |tested: &Tested| (tested.t.abs(), tested.difference.abs());
    found.sort_by(|((_, a, ..), _), ((_, b, ..), _)| {
        let ((t_a, by_a), (t_b, by_b)) = (size(a), size(b));
        t_b.total_cmp(&t_a).then(by_b.total_cmp(&by_a))
    });
    let rest = found.split_off(most.min(found.len()));
    let unlisted = Unlisted {
        counters: rest.len(),
        differ: rest.iter().filter(|(_, p_adjusted)| differs(*p_adjusted)).count(),
    };
    let mut ranks = Ranks::default();
    let row = |((counter, _, a, b), p_adjusted): ((&String, _, &Vec<f64>, &Vec<f64>), f64)| {
        Some(Row {
            counter: counter.clone(),
            first: summarise(a)?,
            second: summarise(b)?,
            welch: welch(a, b)?,
            p_adjusted,
            ratio: ranks.ratio(a, b),
        })
    };
    skipped.sort_by(|a, b| a.counter.cmp(&b.counter));
    Comparison { rows: found.into_iter().filter_map(row).collect(), unlisted, skipped }
}

/// The adjusted p values. A counter that has the same value in all runs of both sets can't differ,
/// so it is not one of the tests: thousands of such places in a recording would hide those that do.
fn adjusted<'a>(tested: impl Iterator<Item = &'a Tested>) -> Vec<f64> {
    let is_constant = |tested: &Tested| tested.error == 0.0 && tested.difference == 0.0;
    let p = tested.map(|tested| if is_constant(tested) { f64::NAN } else { tested.p });
    let adjusted = fdr::adjust(&p.collect::<Vec<_>>());
    adjusted.into_iter().map(|p| if p.is_nan() { 1.0 } else { p }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(counters: &[(&str, &[f64])]) -> ResultSet {
        counters.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    #[test]
    fn the_counter_that_differs_most_comes_first() {
        let good = set(&[
            ("time_s", &[1.0, 1.1, 0.9, 1.05, 0.95]),
            ("major_faults", &[100.0, 101.0, 99.0, 100.0, 100.0]),
            ("threads", &[4.0, 4.0, 4.0, 4.0, 4.0]),
        ]);
        let bad = set(&[
            ("time_s", &[1.2, 1.0, 1.1, 1.3, 0.9]),
            ("major_faults", &[300.0, 303.0, 297.0, 300.0, 300.0]),
            ("threads", &[4.0, 4.0, 4.0, 4.0, 4.0]),
        ]);
        let found = compare(&good, &bad, usize::MAX);
        let names: Vec<&str> = found.rows.iter().map(|row| row.counter.as_str()).collect();
        assert_eq!(names, ["major_faults", "time_s", "threads"]);
        let faults = &found.rows[0];
        assert!(faults.differs() && faults.welch.t > 100.0);
        assert!((faults.ratio.as_ref().unwrap().estimate - 3.0).abs() < 0.03);
        assert!(faults.p_adjusted > faults.welch.p, "two counters were tested");
        assert!(!found.rows[1].differs() && !found.rows[2].differs());
    }

    #[test]
    fn what_cannot_be_tested_is_named_with_the_reason() {
        let first = set(&[("a", &[1.0, 2.0]), ("b", &[1.0, 2.0]), ("c", &[1.0])]);
        let second = set(&[("b", &[0.0, 2.0]), ("c", &[1.0, 2.0]), ("d", &[])]);
        let found = compare(&first, &second, usize::MAX);
        assert_eq!((found.rows.len(), found.rows[0].ratio.is_none()), (1, true));
        let skipped: Vec<String> = found.skipped.iter().map(Skipped::to_string).collect();
        assert_eq!(
            skipped,
            [
                "a: only the first set has it",
                "c: a set has fewer than two values of it",
                "d: only the second set has it"
            ]
        );
    }

    #[test]
    fn each_counter_is_compared_with_that_of_its_name() {
        let values = |n: usize, at: f64| vec![at + n as f64, at + n as f64 + 1.0];
        let every = |step: usize, at: f64| -> ResultSet {
            (0..60).step_by(step).map(|n| (n.to_string(), values(n, at))).collect()
        };
        let (first, second) = (every(2, 1.0), every(3, 5.0));
        let found = compare(&first, &second, usize::MAX);
        assert_eq!((found.rows.len(), found.skipped.len()), (10, 30));
        for row in &found.rows {
            let both = [&first, &second].map(|set| &set[&row.counter]);
            assert_eq!(Some(&row.welch), welch(both[0], both[1]).as_ref());
            assert_eq!(row.welch.difference, 4.0);
        }
        for Skipped { counter, reason } in &found.skipped {
            let is_in = [&first, &second].map(|set| set.contains_key(counter));
            let expected = if is_in[0] { Reason::OnlyInFirst } else { Reason::OnlyInSecond };
            assert_eq!((is_in[0] != is_in[1], *reason), (true, expected), "{counter}");
        }
    }

    #[test]
    fn an_infinite_t_comes_first_and_is_null_in_json() {
        let first = set(&[("x", &[1.0, 1.0, 1.0]), ("y", &[1.0, 2.0, 3.0])]);
        let second = set(&[("x", &[2.0, 2.0, 2.0]), ("y", &[11.0, 12.0, 13.0])]);
        let found = compare(&first, &second, usize::MAX);
        assert_eq!(found.rows[0].counter, "x");
        let json = serde_json::to_value(&found).unwrap();
        assert!(json["rows"][0]["welch"]["t"].is_null());
        assert_eq!(json["rows"][0]["welch"]["df"], 4.0);
    }

    #[test]
    fn rows_beyond_the_most_that_are_listed_are_counted() {
        let values = |n: usize, at: f64| -> Vec<f64> {
            (0..8).map(|run| at + if run % 2 == 0 { 0.1 } else { 0.0 } + n as f64).collect()
        };
        let set = |at: f64| -> ResultSet {
            let moved = |n: usize| if n < 3 { at } else { 0.0 };
            (0..7).map(|n| (n.to_string(), values(n, moved(n)))).collect()
        };
        let found = compare(&set(0.0), &set(5.0), 2);
        assert_eq!((found.rows.len(), found.rows[0].differs()), (2, true));
        assert_eq!(found.unlisted, Unlisted { counters: 5, differ: 1 });
    }

    #[test]
    fn a_counter_that_never_changes_is_not_one_of_the_tests() {
        let set = |at: f64| -> ResultSet {
            let mut set: ResultSet = (0..1000).map(|n| (n.to_string(), vec![7.0; 5])).collect();
            set.insert("moved".into(), (0..5).map(|run| at + f64::from(run) / 10.0).collect());
            set
        };
        let found = compare(&set(0.0), &set(1.0), 3);
        assert_eq!((&*found.rows[0].counter, found.rows[0].differs()), ("moved", true));
        assert_eq!(
            (found.rows[0].p_adjusted, found.rows[1].p_adjusted),
            (found.rows[0].welch.p, 1.0)
        );
    }

    proptest! {
        #[test]
        fn swapping_the_sets_turns_every_sign(
            a in prop::collection::vec(0.1..9.0f64, 0..8),
            b in prop::collection::vec(0.1..9.0f64, 0..8),
        ) {
            let (first, second) = (set(&[("a", &a), ("b", &b)]), set(&[("a", &b), ("c", &a)]));
            let (there, back) = (compare(&first, &second, usize::MAX), compare(&second, &first, usize::MAX));
            prop_assert_eq!(there.rows.len(), back.rows.len());
            prop_assert_eq!(there.rows.len() + there.skipped.len(), 3, "every counter is accounted for");
            for (x, y) in there.rows.iter().zip(&back.rows) {
                prop_assert!((x.welch.difference + y.welch.difference).abs() < 1e-9);
            }
        }
    }
}
