//! Code that is run through backwards, a major fault for each page: since Linux 6.16 a fault in a
//! mapping that may be executed reads on upwards only, up to the end of the mapping
//! (`do_sync_mmap_readahead` in `mm/filemap.c`). The rule looks for the pattern, not for the version.

use super::found::{Found, json_path};
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::Facts;
use crate::observed::{Part, is_backward, sum};
use crate::text::{number, percent, time};
use headstart_faults::tables::Segment;

/// Fewer are chance.
const LEAST: u64 = 64;
/// Of major faults of a forward walk, one in 32 is left: 839 instead of 26,847 (doc/advice.md).
const LEFT: u64 = 32;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    let text = facts.observed.parts.iter().filter(|part| part.segment == Segment::Text);
    text.filter_map(|part| of_part(facts, part)).collect()
}

fn of_part(facts: &Facts, part: &Part) -> Option<Found> {
    let steps = part.major_steps();
    let backward = sum(steps.iter().filter(|step| is_backward(step)).map(|step| &step.touch));
    let all = part.touches.iter().filter(|touch| touch.is_major).count() as u64;
    if backward.count < LEAST || backward.count * 2 < all {
        return None;
    }
    let left = backward.time_ns / LEFT;
    let command = facts.command_line();
    Some(Found {
        rule: Rule::BackwardText,
        file: json_path(&part.path),
        evidence: format!(
            "{} of {} major faults in its code are right below the one before ({}), took {}, and \
             read hardly more than their page: the kernel reads code on upwards only",
            number(backward.count),
            number(all),
            percent(backward.count, all),
            time(backward.time_ns),
        ),
        start: Start::Recorded,
        gain_ns: backward.time_ns.saturating_sub(left) as f64,
        formula: format!("{} × (1 − 1/{LEFT}), as forwards", time(backward.time_ns)),
        command: format!("sudo headstart run -- {command}"),
        note: format!("or a link in the order of calls: headstart elf order -- {command}"),
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
    use crate::observed::Touch;

    #[test]
    fn the_first_fault_of_each_process_counts_too() {
        let touch = |process, page| Touch { process, page, latency: 1_000_000, is_major: true };
        let touches = (0..3).flat_map(|process| (0..40).map(move |n| touch(process, 90 - n)));
        let part = Part { touches: touches.collect(), ..part(Segment::Text, []) };
        let found = apply(&facts(vec![part])).pop().unwrap();
        assert!(found.evidence.starts_with("117 of 120 major faults"), "{}", found.evidence);
    }

    #[test]
    fn a_fault_a_page_downwards_is_found_and_no_other_walk() {
        let walk = |segment, page: fn(u64) -> u64, ns| {
            let facts = facts(vec![part(segment, (0..320).map(|n| (page(n), ns)))]);
            apply(&facts).pop().map(|found| found.gain_ns as u64)
        };
        let ms = 1_000_000;
        for (name, segment, page, ns, gain) in [
            ("down", Segment::Text, (|n| 900 - n) as fn(u64) -> u64, ms, Some(319 * ms / 32 * 31)),
            (
                "down by fault-around",
                Segment::Text,
                |n| 9000 - 16 * n,
                ms,
                Some(319 * ms / 32 * 31),
            ),
            ("up", Segment::Text, |n| n, ms, None),
            ("scattered", Segment::Text, |n| n * 7919 % 10_000, ms, None),
            ("data", Segment::Rodata, |n| 900 - n, ms, None),
            ("in memory", Segment::Text, |n| 900 - n, 2000, None),
        ] {
            let found = walk(segment, page, ns);
            assert!(
                found.zip(gain).map_or(found == gain, |(a, b)| a.abs_diff(b) < ms),
                "{name}: {found:?}"
            );
        }
    }
}
