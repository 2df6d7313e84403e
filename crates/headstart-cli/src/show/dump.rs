//! A map of each file in the form of `ureadahead --dump`: a bracketed line is a stretch of the
//! file, a character is a page.

use super::by_file::View;
use crate::output;
use headstart::host::range::PageRange;
use std::io::{self, Write};

/// What stands around a line of the map.
const FRAME: usize = "  []".len();
/// So many lines in a row are drawn though nothing is on them, for the look of it; more, as of
/// an image of a disk that has a few used places, are counted.
const DRAWN: u64 = 100;

/// Prints all files.
pub fn print(view: &View<'_>, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let page = view.pack.page_size();
    for (i, file) in view.pack.files.iter().enumerate() {
        writeln!(
            out,
            "{} ({} kB), {} ({} kB)",
            output::shown(&view.path(i)),
            file.identity.size.div_ceil(1024),
            output::counted(view.ranges[i].len() as u64, "block"),
            view.bytes_of(i) / 1024
        )?;
        let ranges: Vec<_> = view.ranges_of(i).map(|r| r.page_range()).collect();
        let pages = file.identity.size.div_ceil(page);
        map(&ranges, pages, width.saturating_sub(FRAME).max(1), out)?;
        writeln!(out)?;
        for r in view.ranges_of(i) {
            let (bytes, at) = (r.page_range().bytes(page), f64::from(r.at_us) / 1000.0);
            writeln!(out, "\t{}, {} bytes (at {at:.3} ms)", bytes.offset, bytes.length())?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Draws the sorted ranges of a file of `pages` pages.
fn map(ranges: &[PageRange], pages: u64, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let columns = width as u64;
    let mut ranges = ranges.iter().peekable();
    let mut start = 0;
    while start < pages {
        while ranges.next_if(|range| range.end <= start).is_some() {}
        let next = ranges.peek().map_or(pages, |range| range.first.clamp(start, pages));
        let empty = (next - start) / columns;
        if empty > DRAWN {
            writeln!(out, "  … {} without a block", output::counted(empty, "line"))?;
            start += empty * columns;
            continue;
        }
        let end = pages.min(start.saturating_add(columns));
        let mut line = String::with_capacity(width);
        for page in start..end {
            while ranges.next_if(|range| range.end <= page).is_some() {}
            line.push(match ranges.peek() {
                Some(range) if range.first == page => '@',
                Some(range) if range.first < page => '#',
                _ => '.',
            });
        }
        writeln!(out, "  [{line:<width$}]")?;
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_range_begins_with_its_own_sign_and_lines_are_filled() {
        for (ranges, pages, expected) in [
            (&[][..], 0, ""),
            (&[(0, 1)], 1, "  [@   ]\n"),
            (&[(1, 3), (3, 4), (5, 7)], 8, "  [.@#@]\n  [.@#.]\n"),
            (&[(0, 6)], 6, "  [@###]\n  [##  ]\n"),
            (&[(1, 2), (410, 411)], 411, "  [.@..]\n  … 101 lines without a block\n  [..@ ]\n"),
            (
                &[(404, 405)],
                u64::MAX,
                "  … 101 lines without a block\n  [@...]\n  \
                 … 4611686018427387801 lines without a block\n  [... ]\n",
            ),
        ] {
            let mut out = Vec::new();
            let drawn: Vec<_> = ranges.iter().map(|&(a, b)| PageRange::from(a..b)).collect();
            map(&drawn, pages, 4, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{ranges:?}");
        }
    }
}
