//! Files that are in the page cache page by page: their mappings need a fault for each 16 pages, where
//! a large folio is mapped at once.

use super::found::{Found, json_path};
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::{Facts, Host};
use crate::observed::{PAGE, Part, Touch};
use crate::text::{number, time};
use headstart_faults::tables::Segment;
use std::collections::HashMap;

/// Faults in a part of a file as large as a huge page, from which on the part is dense: half of those
/// that map 16 pages each. A huge page has one.
const LEAST: u64 = 16;
/// What a fault maps at most of single pages.
const FAULT_AROUND_PAGES: u64 = 16;
/// From this kernel on a fault maps all of a large folio (commit 357b92761d94).
const KERNEL: (u32, u32) = (6, 18);
/// File systems that have large folios, and since when.
const FILE_SYSTEMS: [(&str, (u32, u32)); 3] =
    [("xfs", (5, 18)), ("ext4", (6, 16)), ("erofs", (6, 2))];

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    let host = &facts.host;
    if host.huge_page_bytes <= PAGE || host.kernel < KERNEL {
        return Vec::new();
    }
    let parts = &facts.observed.parts;
    let read_only = parts.iter().filter(|p| matches!(p.segment, Segment::Text | Segment::Rodata));
    read_only.filter_map(|part| of_part(facts, part)).collect()
}

fn has_large_folios(host: &Host, file_system: &str) -> bool {
    FILE_SYSTEMS.iter().any(|(name, since)| *name == file_system && host.kernel >= *since)
}

fn of_part(facts: &Facts, part: &Part) -> Option<Found> {
    let file = facts.files.get(&part.path)?;
    let huge = facts.host.huge_page_bytes;
    if !has_large_folios(&facts.host, &file.file_system) || file.size < huge {
        return None;
    }
    let (parts, mut latencies) = dense(&part.touches, huge / PAGE);
    let faults = latencies.len() as u64;
    let middle = latencies.len().checked_sub(1)? / 2;
    let median = *latencies.select_nth_unstable(middle).1;
    let segment = part.segment.name();
    Some(Found {
        rule: Rule::LargeFolios,
        file: json_path(&part.path),
        evidence: format!(
            "{} minor faults of {} in {} parts of {} MiB of its {segment}: it is in memory page by page",
            number(faults),
            time(median),
            number(parts),
            huge >> 20,
        ),
        start: Start::Recorded,
        gain_ns: (faults.saturating_sub(parts) as f64) * median as f64,
        formula: format!(
            "({} − {}) × {}, one fault for each part, at least",
            number(faults),
            number(parts),
            time(median)
        ),
        command: format!("sudo headstart run --large-folios -- {}", facts.command_line()),
        note: String::new(),
        lowers: Some(Measure {
            faults: Faults::Minor,
            file: json_path(&part.path),
            segment: Some(part.segment),
            ..Measure::default()
        }),
    })
}

/// A part of a file in a process.
#[derive(Default)]
struct Extent {
    /// Windows of fault-around that had faults.
    windows: u64,
    last: Option<u64>,
    latencies: Vec<u64>,
}

/// How many parts of so many pages are dense in a process, and the latencies of the minor faults in
/// them; without those that waited for pages in flight, which large folios don't change.
fn dense(touches: &[Touch], pages: u64) -> (u64, Vec<u64>) {
    let mut parts: HashMap<(u32, u64), Extent> = HashMap::new();
    let mut sorted: Vec<_> = touches.iter().filter(|touch| !touch.is_wait()).collect();
    sorted.sort_unstable_by_key(|touch| (touch.process, touch.page));
    for touch in sorted {
        let part = parts.entry((touch.process, touch.page / pages)).or_default();
        // Several faults in one window are of threads at the same time.
        let window = touch.page / FAULT_AROUND_PAGES;
        part.windows += u64::from(part.last.replace(window) != Some(window));
        part.latencies.push(touch.latency);
    }
    let dense = || parts.values().filter(|part| part.windows >= LEAST);
    (dense().count() as u64, dense().flat_map(|part| &part.latencies).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::super::examples::{facts, part};
    use super::*;
    use crate::facts::FileFacts;

    #[test]
    fn a_dense_file_that_is_mapped_by_small_faults_gains_from_large_folios() {
        let found = |release: &str, file_system: &str, step: u64, ns| {
            let touches = (0..2048 / step).map(|n| (step * n, ns));
            let mut facts = facts(vec![part(Segment::Text, touches)]);
            facts.host = Host::new(release, "[madvise]", "2097152");
            let file = FileFacts {
                size: 8 << 20,
                file_system: file_system.into(),
                ..FileFacts::default()
            };
            facts.files.insert("/lib/x.so".into(), file);
            apply(&facts).pop().map(|found| found.gain_ns as u64)
        };
        // 128 faults of 20 µs in 4 parts.
        let gain = Some(128 * 20_000 - 4 * 20_000);
        for (name, release, file_system, step, ns, gain) in [
            ("page by page", "6.18.1", "ext4", 16, 20_000, gain),
            ("on xfs", "7.0", "xfs", 16, 20_000, gain),
            ("sparse", "6.18", "ext4", 64, 20_000, None),
            ("large folios", "6.18", "ext4", 512, 20_000, None),
            ("no large folios", "6.18", "btrfs", 16, 20_000, None),
            ("an old kernel", "6.17", "xfs", 16, 20_000, None),
            ("waits for the disk", "6.18", "ext4", 16, 200_000, None),
            ("waits for pages in flight", "6.18", "ext4", 16, 90_000, None),
        ] {
            assert_eq!(found(release, file_system, step, ns), gain, "{name}");
        }
    }
}
