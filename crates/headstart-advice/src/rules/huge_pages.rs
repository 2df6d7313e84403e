//! Anonymous memory that is touched page by page in parts as large as huge pages, where these are
//! given only to memory that requests them.

use super::found::Found;
use crate::advice::{Faults, Measure, Rule, Start};
use crate::facts::Facts;
use crate::observed::PAGE;
use crate::text::{number, time};
use headstart_faults::tables::Sum;

/// What a fault takes that clears a huge page of 2 MiB, in ns (doc/advice.md), and the size.
const CLEAR_NS: f64 = 150_000.0;
const CLEARED: f64 = 2_097_152.0;
/// A part is dense from this share of its pages on.
const LEAST_PERCENT: u64 = 50;

pub(super) fn apply(facts: &Facts) -> Vec<Found> {
    of_memory(facts).into_iter().collect()
}

fn of_memory(facts: &Facts) -> Option<Found> {
    let host = &facts.host;
    let command = facts.command_line();
    let (command, note) = match &*host.huge_pages {
        "madvise" => (
            format!("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {command}"),
            "malloc of glibc 2.35 and later; or madvise(MADV_HUGEPAGE) in the program",
        ),
        "never" => (
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
            "then see what headstart faults advises",
        ),
        _ => return None,
    };
    let pages = host.huge_page_bytes / PAGE;
    let is_dense = |sum: &&Sum| pages > 1 && sum.count.saturating_mul(100) >= pages * LEAST_PERCENT;
    let dense = || facts.observed.anonymous.iter().filter(is_dense);
    let parts = dense().count() as u64;
    let (mut count, mut time_ns) = (0u64, 0u64);
    for sum in dense() {
        (count, time_ns) = (count.saturating_add(sum.count), time_ns.saturating_add(sum.time_ns));
    }
    let each = CLEAR_NS * host.huge_page_bytes as f64 / CLEARED;
    Some(Found {
        rule: Rule::HugePages,
        file: None,
        evidence: format!(
            "{} faults in {} parts of {} MiB of anonymous memory took {}; transparent huge pages are \
             set to {}",
            number(count),
            number(parts),
            host.huge_page_bytes >> 20,
            time(time_ns),
            host.huge_pages,
        ),
        start: Start::Recorded,
        gain_ns: time_ns as f64 - parts as f64 * each,
        formula: format!("{} − {} × {}", time(time_ns), number(parts), time(each as u64)),
        command,
        note: note.to_owned(),
        lowers: Some(Measure {
            faults: Faults::Minor,
            memory: vec!["[anonymous]".into(), "[heap]".into()],
            ..Measure::default()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Host;

    #[test]
    fn dense_memory_gains_where_huge_pages_have_to_be_requested() {
        let found = |enabled: &str, count, time_ns| {
            let mut facts =
                Facts { host: Host::new("6.18", enabled, "2097152"), ..Facts::default() };
            facts.observed.anonymous = vec![Sum { count, time_ns }; 10];
            apply(&facts).pop().map(|found| found.gain_ns)
        };
        for (name, enabled, count, gain) in [
            ("requested", "always [madvise] never", 512, Some(10.0 * (800_000.0 - CLEAR_NS))),
            ("forbidden", "always madvise [never]", 512, Some(10.0 * (800_000.0 - CLEAR_NS))),
            ("always", "[always] madvise never", 512, None),
            ("no huge pages", "", 512, None),
            ("sparse", "always [madvise] never", 255, Some(0.0)),
        ] {
            assert_eq!(found(enabled, count, 800_000), gain, "{name}");
        }
    }
}
