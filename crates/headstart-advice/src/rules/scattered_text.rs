//! Code that a start calls here and there in a file: each place is a wait for the disk. A link in the
//! order of calls puts it together.

use super::found::{Found, json_path};
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::Facts;
use crate::observed::{PAGE, Part, is_backward, is_sequential, sum};
use crate::text::{number, size, time};
use headstart_faults::tables::Segment;

/// Fewer places gain too little for a link.
const LEAST: u64 = 8;
/// Of the time of major faults in the code, an ordered link saves this part: 7.3 to 1.7 ms with
/// git, which is the only measurement (doc/advice.md).
const SAVED_PERCENT: u64 = 77;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    let text = facts.observed.parts.iter().filter(|part| part.segment == Segment::Text);
    text.filter_map(|part| of_part(facts, part)).collect()
}

fn of_part(facts: &Facts, part: &Part) -> Option<Found> {
    let readahead = facts.readahead_pages(&part.path);
    let steps = part.major_steps();
    let scattered: Vec<_> = steps
        .iter()
        .filter(|step| !is_backward(step) && !is_sequential(step, readahead))
        .map(|step| step.touch)
        .collect();
    let waits = sum(&scattered);
    if waits.count < LEAST {
        return None;
    }
    let pages = || scattered.iter().map(|touch| touch.page);
    let span = pages().max()?.saturating_sub(pages().min()?).saturating_add(1);
    Some(Found {
        rule: Rule::ScatteredText,
        file: json_path(&part.path),
        evidence: format!(
            "{} major faults in its code are in {} of it, each far from the one before, and took {}",
            number(waits.count),
            size(span.saturating_mul(PAGE)),
            time(waits.time_ns),
        ),
        start: Start::Recorded,
        gain_ns: waits.time_ns as f64 * SAVED_PERCENT as f64 / 100.0,
        formula: format!("{} × {SAVED_PERCENT} %, as measured with git", time(waits.time_ns)),
        command: format!("headstart elf order -- {}", facts.command_line()),
        note: "it predicts the pages that a link in the order of calls saves".to_owned(),
        lowers: Some(Measure {
            faults: Faults::Major,
            file: json_path(&part.path),
            segment: Some(Segment::Text),
            ..Measure::default()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::super::examples::{facts, part};
    use super::*;

    #[test]
    fn places_far_from_each_other_are_scattered_and_walks_are_not() {
        let ms = 1_000_000;
        for (name, segment, page, ns, gain) in [
            ("scattered", Segment::Text, (|n| n * 7919 % 10_000) as fn(u64) -> u64, ms, true),
            ("up", Segment::Text, |n| 32 * n, ms, false),
            ("down", Segment::Text, |n| 900 - n, ms, false),
            ("data", Segment::Data, |n| n * 7919 % 10_000, ms, false),
            ("in memory", Segment::Text, |n| n * 7919 % 10_000, 2000, false),
        ] {
            let facts = facts(vec![part(segment, (0..20).map(|n| (page(n), ns)))]);
            let found = apply(&facts).pop();
            assert_eq!(found.is_some(), gain, "{name}");
            if let Some(found) = found {
                assert!((found.gain_ns - 19.0 * 1e6 * 0.77).abs() < 3e6, "{}", found.formula);
                assert!(found.command.starts_with("headstart elf order -- x"));
            }
        }
    }
}
