//! The cached pages of a file as characters: `#` cached, `.` not cached, `+` in part.

use headstart::host::range::PageRange;

/// A map of `pages` pages in which each character stands for `scale` pages, the
/// last one perhaps for fewer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// Pages per character; 0 only for no pages at all.
    pub scale: u64,
    /// One character for each part.
    pub characters: String,
}

/// Draws the sorted, separate `runs` of a file of `pages` pages with at most
/// `width` characters.
pub fn draw(runs: &[PageRange], pages: u64, width: u64) -> Map {
    let scale = pages.div_ceil(width.max(1));
    let mut characters = String::new();
    let mut runs = runs.iter().peekable();
    let mut start = 0;
    while start < pages {
        let end = pages.min(start.saturating_add(scale));
        let mut cached = 0;
        while let Some(run) = runs.peek().filter(|run| run.first < end) {
            cached += run.within(PageRange { first: start, end }).count();
            if run.end > end {
                break;
            }
            runs.next();
        }
        characters.push(match cached {
            0 => '.',
            n if n == end - start => '#',
            _ => '+',
        });
        start = end;
    }
    Map { scale, characters }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges, some of one.
mod tests {
    use super::*;
    use std::ops::Range;

    #[test]
    fn each_character_says_whether_its_pages_are_cached() {
        type Case = (&'static [Range<u64>], u64, u64, u64, &'static str);
        let cases: &[Case] = &[
            (&[], 0, 10, 0, ""),
            (&[], 3, 10, 1, "..."),
            (&[0..3], 3, 10, 1, "###"),
            (&[0..1, 2..3], 3, 10, 1, "#.#"),
            (&[0..3], 10, 5, 2, "#+..."),
            (&[1..9], 10, 5, 2, "+###+"),
            // The last character is a single page.
            (&[10..11], 11, 10, 2, ".....#"),
            (&[0..1, 3..4, 5..6], 9, 3, 3, "++."),
            (&[0..u64::MAX], u64::MAX, 2, 1 << 63, "##"),
            (&[0..7], 7, 0, 7, "#"),
        ];
        for (runs, pages, width, scale, characters) in cases {
            let expected = Map { scale: *scale, characters: (*characters).to_owned() };
            let runs: Vec<_> = runs.iter().cloned().map(PageRange::from).collect();
            assert_eq!(draw(&runs, *pages, *width), expected, "{runs:?} of {pages}");
        }
    }
}
