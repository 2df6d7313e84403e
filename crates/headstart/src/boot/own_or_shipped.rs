//! Selects which pack of a phase is read for a file system: the one that was learned here, or the
//! one that came with the image. Pure; the caller looks at the files.

use crate::pack::{File, FileSystem, Pack};
use std::path::Path;

/// So many files of a pack tell whether those of a file system are what was learned. Each
/// look may take a request of the disk, and most are of files that are needed anyway.
const SAMPLE: usize = 16;

/// How many files of a sample are what was learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// Unchanged.
    pub same: usize,
    /// Looked at.
    pub of: usize,
}

impl Match {
    /// Of the files of a pack that are `on` a file system, and that it reads something of.
    pub fn of(pack: &Pack, on: &FileSystem, is_same: impl Fn(&Path, &File) -> bool) -> Self {
        let Some(index) = pack.file_systems.iter().position(|fs| fs.is(on)) else {
            return Self::default();
        };
        let mut read = vec![false; pack.files.len()];
        for range in &pack.ranges {
            if let Some(read) = read.get_mut(range.file as usize) {
                *read = true;
            }
        }
        let here = |(file, read): &(&File, bool)| *read && usize::from(file.file_system) == index;
        let files: Vec<&File> =
            pack.files.iter().zip(read).filter(here).map(|(file, _)| file).collect();
        let sample: Vec<_> = files.iter().step_by(files.len().div_ceil(SAMPLE).max(1)).collect();
        let same = |file: &&&&File| is_same(&pack.paths.path(file.node), file);
        Self { same: sample.iter().filter(same).count(), of: sample.len() }
    }

    /// Whether a pack that was learned here and matches like this is read rather than one
    /// of the image. It is while half of its files are unchanged: it knows this machine's
    /// own services.
    pub fn is_better(self, shipped: Self) -> bool {
        let mostly_same = self.of > 0 && 2 * self.same >= self.of;
        mostly_same || self.same * shipped.of.max(1) >= shipped.same * self.of.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::range::PageRange;
    use crate::host::usage::How;
    use crate::pack::build::{FilePart, Parts};
    use crate::pack::paths::PathInterner;
    use crate::pack::pieces::Piece;
    use crate::pack::{History, Identity, Origin};

    fn fs(tag: u8) -> FileSystem {
        FileSystem { uuid: Some([tag; 16]), ..FileSystem::default() }
    }

    /// A pack of so many files on one file system and a file on another.
    fn pack(files: u64) -> Pack {
        let mut names = PathInterner::default();
        let origin = Origin { page_shift: 12, starts: 1, ..Origin::default() };
        let mut parts = Parts { origin, ..Parts::default() };
        let (one, other) = (parts.file_system(&fs(1)).unwrap(), parts.file_system(&fs(2)).unwrap());
        for ino in 0..=files {
            let pieces = vec![Piece {
                pages: PageRange::of(0, 1),
                at_us: 0,
                how: How::READ,
                history: History(1),
            }];
            let identity = Identity { ino, ..Identity::default() };
            let file_system = if ino == files { other } else { one };
            let name = format!("/{ino}");
            let node = names.intern(Path::new(&name)).unwrap();
            parts
                .files
                .insert(node, FilePart { file_system, identity, changes: History(0), pieces });
        }
        parts.build(names.table())
    }

    #[test]
    fn a_sample_of_the_files_of_a_file_system_tells_how_much_of_it_is_unchanged() {
        let even = |_: &Path, file: &File| file.identity.ino.is_multiple_of(2);
        for (files, on, of) in
            [(0, 1, 0), (1, 1, 1), (16, 1, 16), (17, 1, 9), (1600, 1, 16), (5, 2, 1), (5, 3, 0)]
        {
            let found = Match::of(&pack(files), &fs(on), even);
            assert_eq!(found.of, of, "{files} {on}");
            assert!(found.same <= of);
        }
        assert_eq!(Match::of(&pack(4), &fs(1), even), Match { same: 2, of: 4 });
        let mut unread = pack(4);
        unread.ranges.retain(|range| range.file == 0);
        assert_eq!(Match::of(&unread, &fs(1), |_, _| true).of, 1);
    }

    #[test]
    fn what_was_learned_here_is_read_unless_its_files_were_replaced_and_those_of_the_image_not() {
        let of = |same, of| Match { same, of };
        for (own, shipped, expected) in [
            (of(16, 16), of(16, 16), true),
            (of(8, 16), of(16, 16), true),
            (of(7, 16), of(16, 16), false),
            (of(7, 16), of(7, 16), true),
            (of(0, 16), of(0, 16), true),
            (of(0, 16), of(1, 16), false),
            (of(1, 1), of(16, 16), true),
            (of(0, 0), of(0, 0), true),
            (of(0, 0), of(4, 4), false),
            (of(16, 16), of(0, 0), true),
        ] {
            assert_eq!(own.is_better(shipped), expected, "{own:?} {shipped:?}");
        }
    }
}
