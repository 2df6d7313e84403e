//! What the called functions cost where they are, and where they would be if they lay in their
//! order at the beginning of the code: pages, and what the kernel maps and reads around them.
//!
//! A function counts with all of its bytes, also where a run executes only some of them, so
//! both figures are upper bounds.

use super::document::Function;
use crate::PAGE;
use serde::Serialize;

/// Bytes that a page fault maps if they are resident: `fault_around_bytes` of mm/memory.c, as
/// it is by default.
pub const FAULT_AROUND: u64 = 64 << 10;
/// Bytes that the kernel reads at a page fault: `read_ahead_kb` of block devices by default.
pub const READAHEAD: u64 = 128 << 10;
/// Linkers put sections of code at multiples of this, as GCC, clang and rustc want for x86-64.
const ALIGN: u64 = 16;

/// What code takes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Layout {
    /// 4 KiB pages with called functions.
    pub pages: u64,
    /// Windows of [`FAULT_AROUND`] with such pages.
    pub fault_around_windows: u64,
    /// Windows of [`READAHEAD`] with such pages.
    pub readahead_windows: u64,
    /// Bytes from the first such page to the end of the last.
    pub span: u64,
}

/// Now and after a link with an order file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Prediction {
    /// Bytes of called functions.
    pub bytes: u64,
    /// As it is.
    pub now: Layout,
    /// As it would be.
    pub ordered: Layout,
}

/// Predicts for functions in their order. `text` is where the code begins.
pub fn predict(functions: &[&Function], text: u64) -> Prediction {
    let now = layout(functions.iter().map(|one| (one.address, one.size)));
    let mut at = text;
    let moved = functions.iter().map(|one| {
        let begin = at.checked_next_multiple_of(ALIGN).unwrap_or(at);
        at = begin.saturating_add(one.size);
        (begin, one.size)
    });
    let ordered = layout(moved);
    // Identical functions that the linker folded have several names and one place.
    let bytes = functions.iter().fold(0u64, |sum, one| sum.saturating_add(one.size));
    Prediction { bytes, now, ordered }
}

/// What functions take that begin there and have this many bytes.
fn layout(functions: impl Iterator<Item = (u64, u64)>) -> Layout {
    // Ranges of pages, not pages: a size may be wrong by orders of magnitude.
    let mut ranges: Vec<(u64, u64)> = functions
        .map(|(begin, size)| {
            let last = begin.saturating_add(size.saturating_sub(1));
            (begin / PAGE, last / PAGE)
        })
        .collect();
    ranges.sort_unstable();
    let count = |pages: u64| {
        let (mut count, mut next) = (0u64, 0);
        for (first, last) in &ranges {
            let (first, last) = ((first / pages).max(next), last / pages);
            if first <= last {
                count = count.saturating_add(last - first + 1);
                next = last + 1;
            }
        }
        count
    };
    let first = ranges.first().map_or(0, |range| range.0);
    let end = ranges.iter().map(|range| range.1 + 1).max().unwrap_or(first);
    Layout {
        pages: count(1),
        fault_around_windows: count(FAULT_AROUND / PAGE),
        readahead_windows: count(READAHEAD / PAGE),
        span: (end - first).saturating_mul(PAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::file;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn functions_that_are_scattered_over_pages_share_one_afterwards() {
        let file = file(&["a", "b", "c"], &[]);
        let functions: Vec<_> = file.functions.iter().collect();
        let found = predict(&functions, file.text_address);
        assert_eq!(found.bytes, 300);
        let (pages, span) = (3, 3 * PAGE);
        let now = Layout { pages, fault_around_windows: 1, readahead_windows: 1, span };
        assert_eq!(found.now, now);
        assert_eq!(found.ordered, Layout { pages: 1, span: PAGE, ..now });
        assert_eq!(predict(&[], 0), Prediction::default());
    }

    #[test]
    fn a_function_of_any_size_is_counted_without_walking_its_pages() {
        let one = |address, size| Function { name: "f".into(), aliases: vec![], address, size };
        let huge = one(4096, u64::MAX - 4096);
        assert_eq!(predict(&[&huge], 0).now.pages, (u64::MAX / PAGE));
        // A function without a size still is on a page.
        assert_eq!(predict(&[&one(5, 0)], 0).now.pages, 1);
        assert_eq!(predict(&[&one(PAGE - 1, 2)], 0).now.pages, 2);
    }

    proptest! {
        #[test]
        fn ranges_of_pages_count_as_their_pages(
            places in prop::collection::vec((0u64..2_000_000, 0u64..20_000), 0..30),
        ) {
            let mut pages = BTreeSet::new();
            for (begin, size) in &places {
                pages.extend(begin / PAGE..=(begin + size.max(&1) - 1) / PAGE);
            }
            let windows = |bytes: u64| {
                let all: BTreeSet<u64> = pages.iter().map(|page| page * PAGE / bytes).collect();
                all.len() as u64
            };
            let found = layout(places.iter().copied());
            prop_assert_eq!(found.pages, pages.len() as u64);
            prop_assert_eq!(found.fault_around_windows, windows(FAULT_AROUND));
            prop_assert_eq!(found.readahead_windows, windows(READAHEAD));
            let span = pages.last().map_or(0, |last| last + 1 - pages.first().unwrap());
            prop_assert_eq!(found.span, span * PAGE);
        }

        #[test]
        fn functions_in_order_take_hardly_more_than_their_bytes(
            sizes in prop::collection::vec(1u64..10_000, 1..60), text in 0u64..100_000,
        ) {
            let functions: Vec<Function> = sizes.iter().map(|size| Function {
                name: "f".into(), aliases: vec![], address: 0, size: *size,
            }).collect();
            let found = predict(&functions.iter().collect::<Vec<_>>(), text);
            let padded = found.bytes + ALIGN * sizes.len() as u64;
            prop_assert!(found.ordered.pages <= padded / PAGE + 2);
            prop_assert!(found.ordered.pages >= found.bytes.div_ceil(PAGE));
        }
    }
}
