//! Several runs become one order.
//!
//! Functions that all runs called come first, in the order of their first calls; then those of
//! all runs but one, and so on, so that what any run needs lies densely. Of those that equally
//! many runs called, the ones that the same runs called stand together. Functions that fewer
//! than a share of the runs called are dropped. The order of the runs does not matter.

use super::document::{Document, FileOrder, Function};
use std::collections::HashMap;

/// The share of runs that must have called a function, unless the user says otherwise: with up
/// to ten runs none is dropped.
pub const DEFAULT_SHARE: f64 = 0.1;

/// One order of a file's functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order<'a> {
    /// In their order.
    pub functions: Vec<&'a Function>,
    /// How many that runs called are dropped.
    pub dropped: usize,
}

/// Merges the runs of a file. `share` is between 0 and 1.
pub fn order(file: &FileOrder, share: f64) -> Order<'_> {
    let mut calls = vec![Calls::default(); file.functions.len()];
    for (run, indices) in file.runs.iter().enumerate() {
        for (rank, index) in indices.iter().enumerate() {
            // A document may name functions that it does not have.
            if let Some(calls) = calls.get_mut(*index as usize) {
                calls.runs.push(run);
                calls.first = calls.first.min(rank);
            }
        }
    }
    let least = (share * file.runs.len() as f64).ceil().max(1.0) as usize;
    let called: Vec<_> = (0..).zip(calls).filter(|(_, calls)| !calls.runs.is_empty()).collect();
    let all = called.len();
    let mut kept: Vec<(usize, Calls)> =
        called.into_iter().filter(|(_, calls)| calls.runs.len() >= least).collect();
    // Where a group stands among those of equally many runs: by its first call, and its first
    // name where that is the same.
    let mut groups: HashMap<Vec<usize>, (usize, &str)> = HashMap::new();
    for (index, calls) in &kept {
        let place = (calls.first, file.functions[*index].name.as_str());
        let first = groups.entry(calls.runs.clone()).or_insert(place);
        *first = place.min(*first);
    }
    kept.sort_by_cached_key(|(index, calls)| {
        let function = &file.functions[*index];
        let fewer = file.runs.len() - calls.runs.len();
        let group = groups.get(&calls.runs).copied().unwrap_or_default();
        (fewer, group, calls.first, function.name.as_str(), function.address)
    });
    let functions: Vec<&Function> =
        kept.into_iter().map(|(index, _)| &file.functions[index]).collect();
    Order { dropped: all - functions.len(), functions }
}

/// The calls of one function.
#[derive(Clone, Debug)]
struct Calls {
    /// Runs that called it, in ascending order.
    runs: Vec<usize>,
    /// Its earliest rank.
    first: usize,
}

impl Default for Calls {
    fn default() -> Self {
        Self { runs: Vec::new(), first: usize::MAX }
    }
}

/// Puts documents together: files with the same path and build ID become one, with the runs of
/// all.
pub fn documents(all: impl IntoIterator<Item = Document>) -> Option<Document> {
    let mut all = all.into_iter();
    let mut merged = all.next()?;
    for document in all {
        for file in document.files {
            let same =
                |one: &&mut FileOrder| one.path == file.path && one.build_id == file.build_id;
            match merged.files.iter_mut().find(same) {
                Some(one) => add(one, file),
                None => merged.files.push(file),
            }
        }
    }
    Some(merged)
}

/// Adds the runs of a file to those of the same one.
fn add(to: &mut FileOrder, file: FileOrder) {
    let key = |function: &Function| (function.name.clone(), function.address);
    let mut known: HashMap<_, u32> = to.functions.iter().map(key).zip(0..).collect();
    let mut places = Vec::new();
    for function in file.functions {
        let next = to.functions.len() as u32;
        let place = *known.entry(key(&function)).or_insert(next);
        if place == next {
            to.functions.push(function);
        }
        places.push(place);
    }
    let moved = |indices: Vec<u32>| -> Vec<u32> {
        indices.into_iter().filter_map(|index| places.get(index as usize).copied()).collect()
    };
    to.runs.extend(file.runs.into_iter().map(moved));
    // Initializers that only one of them ran lie behind the others.
    for index in moved(file.initializers) {
        if !to.initializers.contains(&index) {
            to.initializers.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::file;
    use super::super::document::{self, SCHEMA};
    use super::*;
    use proptest::prelude::*;

    fn names(order: &Order<'_>) -> Vec<String> {
        order.functions.iter().map(|function| function.name.clone()).collect()
    }

    #[test]
    fn functions_of_all_runs_come_first_and_those_of_the_same_runs_stand_together() {
        let all = ["a", "b", "c", "d", "e", "f"];
        type Case<'a> = (&'a [&'a [&'a str]], f64, &'a [&'a str], usize);
        let cases: [Case<'_>; 5] = [
            (&[&["c", "a"]], 0.1, &["c", "a"], 0),
            (&[], 0.1, &[], 0),
            // Both runs call a and b; then come those of the first run, and of the second.
            (
                &[&["a", "c", "b", "e"], &["a", "d", "f", "b"]],
                0.1,
                &["a", "b", "c", "e", "d", "f"],
                0,
            ),
            (&[&["a", "b"], &["a"], &["a"]], 0.5, &["a"], 1),
            (&[&["a", "b"], &["a"], &["a"]], 1.0, &["a"], 1),
        ];
        for (runs, share, expected, dropped) in cases {
            let file = file(&all, runs);
            let order = order(&file, share);
            assert_eq!(names(&order), expected, "{runs:?}");
            assert_eq!(order.dropped, dropped, "{runs:?}");
        }
    }

    #[test]
    fn runs_of_two_documents_are_those_of_one() {
        let document =
            |file| Document { schema: SCHEMA.into(), command: vec![], files: vec![file] };
        let one = file(&["a", "b"], &[&["b", "a"]]);
        // The same functions, found in another order.
        let mut two = file(&["a", "b", "c"], &[&["b", "c"]]);
        two.functions.swap(1, 2);
        two.runs = vec![vec![2, 1]];
        two.initializers = vec![2];
        let both = documents([document(one.clone()), document(two)]).unwrap();
        let [both] = &both.files[..] else { panic!("{both:?}") };
        assert_eq!(both.runs, [vec![1, 0], vec![1, 2]]);
        assert_eq!(both.initializers, [1]);
        assert_eq!(names(&order(both, 0.1)), ["b", "a", "c"]);
        // Another build of it is another file.
        let mut other = one.clone();
        other.build_id = "cd34".into();
        assert_eq!(documents([document(one), document(other)]).unwrap().files.len(), 2);
        assert!(documents([]).is_none());
    }

    /// Runs of up to twelve functions.
    fn runs() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let all: Vec<u32> = (0..12).collect();
        let run = Just(all)
            .prop_shuffle()
            .prop_flat_map(|run| (0..=run.len()).prop_map(move |count| run[..count].to_vec()));
        prop::collection::vec(run, 0..6)
    }

    fn of(runs: &[Vec<u32>]) -> FileOrder {
        let names: Vec<String> = (0..12).map(|n| format!("f{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        FileOrder { runs: runs.to_vec(), ..file(&names, &[]) }
    }

    proptest! {
        #[test]
        fn each_called_function_is_there_once_or_dropped(runs in runs(), share in 0.0..=1.0) {
            let file = of(&runs);
            let order = order(&file, share);
            let mut called: Vec<u32> = runs.concat();
            called.sort_unstable();
            called.dedup();
            prop_assert_eq!(order.functions.len() + order.dropped, called.len());
            let mut names = names(&order);
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), order.functions.len());
        }

        #[test]
        fn the_order_of_the_runs_does_not_matter_nor_that_each_comes_twice(
            (runs, shuffled) in runs().prop_flat_map(|runs| {
                (Just(runs.clone()), Just(runs).prop_shuffle())
            }),
        ) {
            let expected = names(&order(&of(&runs), 0.1));
            prop_assert_eq!(&names(&order(&of(&shuffled), 0.1)), &expected);
            let twice = [runs.clone(), runs].concat();
            prop_assert_eq!(&names(&order(&of(&twice), 0.1)), &expected);
        }

        #[test]
        fn one_run_is_its_own_order(run in runs().prop_filter_map("a run", |runs| runs.first().cloned())) {
            let file = of(std::slice::from_ref(&run));
            let expected: Vec<String> = run.iter().map(|index| format!("f{index}")).collect();
            prop_assert_eq!(names(&order(&file, 1.0)), expected);
        }

        #[test]
        fn a_merged_document_can_be_saved_and_read(a in runs(), b in runs()) {
            let document = |runs: &[Vec<u32>]| Document {
                schema: SCHEMA.into(), command: vec![], files: vec![of(runs)],
            };
            let merged = documents([document(&a), document(&b)]).unwrap();
            let text = serde_json::to_vec(&merged).unwrap();
            prop_assert_eq!(document::parse(&text).unwrap(), merged);
        }
    }
}
