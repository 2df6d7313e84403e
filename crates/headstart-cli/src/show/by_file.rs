//! A pack by file, for the forms of `headstart show`.

use headstart::pack::history::HISTORY_STARTS;
use headstart::pack::{History, Pack, Range};
use std::path::PathBuf;

/// A pack with its ranges sorted by file.
pub struct View<'a> {
    /// The pack.
    pub pack: &'a Pack,
    /// For each file the indices of its ranges, by page.
    pub ranges: Vec<Vec<usize>>,
}

impl<'a> View<'a> {
    /// Of a pack.
    pub fn new(pack: &'a Pack) -> Self {
        let mut ranges = vec![Vec::new(); pack.files.len()];
        for (i, range) in pack.ranges.iter().enumerate() {
            ranges[range.file as usize].push(i);
        }
        for list in &mut ranges {
            list.sort_by_key(|i| pack.ranges[*i].first);
        }
        Self { pack, ranges }
    }

    /// The name of a file, by its index.
    pub fn path(&self, file: usize) -> PathBuf {
        self.pack.paths.path(self.pack.files[file].node)
    }

    /// The ranges of a file.
    pub fn ranges_of(&self, file: usize) -> impl Iterator<Item = &'a Range> {
        self.ranges[file].iter().map(|i| &self.pack.ranges[*i])
    }

    /// The bytes of these.
    pub fn bytes_of(&self, file: usize) -> u64 {
        self.ranges_of(file).map(|r| u64::from(r.pages) * self.pack.page_size()).sum()
    }
}

/// `11.1` after four starts: the last first.
pub fn history(History(bits): History, starts: u32) -> String {
    (0..starts.min(HISTORY_STARTS)).map(|i| if bits >> i & 1 == 1 { '1' } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_shows_the_last_start_first_and_no_more_than_there_were() {
        for (bits, starts, text) in
            [(0b1, 1, "1"), (0b1101, 4, "1.11"), (0b1, 3, "1.."), (0xff, 99, "11111111")]
        {
            assert_eq!(history(History(bits), starts), text);
        }
    }
}
