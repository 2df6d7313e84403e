//! How many bytes of a pack a start has used at which share of its computing. Pure.

use crate::stats::hot::Progress;
use headstart::host::range::PageRange;
use headstart::pack::{Pack, Range};
use std::collections::HashMap;
use std::path::PathBuf;

/// The progress of a start at each of its first touches of what is in the pack; metadata is needed
/// before anything else.
///
/// Times are those of the packs of `hot` starts, in the middle of these. Without hot starts, and for pages
/// that one did not touch, they are those of the pack's last learned start, which count what it
/// waited for its disk as computing.
pub fn progress(pack: &Pack, hot: &[Pack]) -> Vec<Progress> {
    let mut touches = touches(pack, hot);
    touches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let metadata = pack.metadata_bytes() as f64;
    let all = (metadata + touches.iter().map(|touch| touch.1).sum::<f64>()).max(1.0);
    let mut used = metadata;
    let begin = Progress { computed: 0.0, used: metadata / all };
    let of_touch = |(computed, bytes): (f64, f64)| {
        used += bytes;
        Progress { computed, used: used / all }
    };
    std::iter::once(begin).chain(touches.into_iter().map(of_touch)).collect()
}

/// The ranges of which a start read something.
fn read_ranges(pack: &Pack) -> impl Iterator<Item = &Range> {
    pack.ranges.iter().filter(|range| !range.how.is_only_written())
}

/// The share of a start that had passed at the first touch of each piece of the ranges that each hot start touched at
/// one time, and its bytes.
fn touches(pack: &Pack, hot: &[Pack]) -> Vec<(f64, f64)> {
    let hot: Vec<_> = hot.iter().map(touched_files).collect();
    let (page, duration) = (pack.page_size() as f64, duration_us(pack));
    let mut touches = Vec::new();
    for range in read_ranges(pack) {
        let path = pack.paths.path(pack.files[range.file as usize].node);
        let whole = range.page_range();
        let seen: Vec<&[Touched]> = hot
            .iter()
            .map(|files| files.get(&path).map_or(&[][..], |touched| overlapping(touched, whole)))
            .collect();
        let ends = seen.iter().copied().flatten().flat_map(|(pages, _)| [pages.first, pages.end]);
        let mut cuts: Vec<u64> = ends.map(|end| end.clamp(whole.first, whole.end)).collect();
        cuts.extend([whole.first, whole.end]);
        cuts.sort_unstable();
        cuts.dedup();
        for piece in cuts.windows(2) {
            let piece = PageRange { first: piece[0], end: piece[1] };
            let learned = f64::from(range.at_us) / duration;
            let share = |touched: &&[Touched]| {
                overlapping(touched, piece).first().map_or(learned, |(_, share)| *share)
            };
            let mut shares: Vec<f64> = seen.iter().map(share).collect();
            shares.sort_by(f64::total_cmp);
            let share = shares.get(shares.len() / 2).copied().unwrap_or(learned);
            touches.push((share, piece.count() as f64 * page));
        }
    }
    touches
}

/// Pages that a start touched, and the share of it that had passed then.
type Touched = (PageRange, f64);

/// What a start touched of each file, in the order of pages.
fn touched_files(pack: &Pack) -> HashMap<PathBuf, Vec<Touched>> {
    let duration = duration_us(pack);
    let mut files = HashMap::<_, Vec<_>>::new();
    for range in read_ranges(pack) {
        let path = pack.paths.path(pack.files[range.file as usize].node);
        let touched = (range.page_range(), f64::from(range.at_us) / duration);
        files.entry(path).or_default().push(touched);
    }
    files.values_mut().for_each(|touched| touched.sort_by_key(|(pages, _)| *pages));
    files
}

/// Those of sorted ranges, which don't overlap, that have pages of this one.
fn overlapping(touched: &[Touched], pages: PageRange) -> &[Touched] {
    let from = touched.partition_point(|(other, _)| other.end <= pages.first);
    let count = touched[from..].partition_point(|(other, _)| other.first < pages.end);
    &touched[from..from + count]
}

fn duration_us(pack: &Pack) -> f64 {
    let last = pack.ranges.iter().map(|range| range.at_us).max().unwrap_or(0);
    (pack.origin.duration_us as f64).max(f64::from(last)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::paths::PathInterner;
    use headstart::pack::{File, History, Identity, MetadataRange, Origin};

    fn range(file: u32, first: u32, pages: u32, at_us: u32) -> Range {
        Range { file, first: first.into(), pages, at_us, how: How::READ, history: History(1) }
    }

    /// The pack of a start of 1 ms that touched these ranges of these files.
    fn pack(files: &[&str], ranges: &[Range]) -> Pack {
        let mut paths = PathInterner::default();
        let file = |path: &&str| File {
            node: paths.intern(path.as_ref()).unwrap(),
            identity: Identity::default(),
            changes: History::default(),
            file_system: 0,
        };
        let files = files.iter().map(file).collect();
        let metadata =
            MetadataRange { file_system: 0, first: 0, pages: 2, at_us: 700, history: History(1) };
        Pack {
            origin: Origin { page_shift: 12, duration_us: 1000, ..Origin::default() },
            files,
            ranges: ranges.to_vec(),
            metadata: vec![metadata],
            paths: paths.table().clone(),
            ..Pack::default()
        }
    }

    fn at(computed: f64, used: f64) -> Progress {
        Progress { computed, used }
    }

    #[test]
    fn metadata_comes_first_and_files_as_they_are_touched() {
        let written = Range { how: How::WRITTEN, ..range(0, 20, 8, 0) };
        let pack = pack(&["/a"], &[range(0, 9, 2, 500), range(0, 0, 4, 100), written]);
        assert_eq!(progress(&pack, &[]), [at(0.0, 0.25), at(0.1, 0.75), at(0.5, 1.0)]);
        assert_eq!(progress(&Pack::default(), &[]), [at(0.0, 0.0)]);
    }

    #[test]
    fn most_hot_starts_tell_when_each_page_is_needed() {
        let learned = pack(&["/a", "/b"], &[range(0, 0, 4, 900), range(1, 0, 2, 950)]);
        let early = pack(&["/b", "/a"], &[range(1, 0, 3, 100), range(0, 0, 2, 400)]);
        let other = pack(&["/a"], &[range(0, 2, 9, 300), range(0, 0, 2, 200)]);
        let late = pack(&["/a", "/b"], &[range(0, 0, 4, 500), range(1, 0, 1, 600)]);
        let two = [0, 1].map(|_| early.clone());
        for (name, hot, expected) in [
            ("the one that there is", &two[..1], vec![(0.1, 0.625), (0.4, 0.875), (0.9, 1.0)]),
            (
                "that in the middle, of each page",
                &[early, other, late],
                vec![(0.2, 0.5), (0.3, 0.625), (0.5, 0.75), (0.6, 0.875), (0.95, 1.0)],
            ),
        ] {
            let begin = at(0.0, 0.25);
            let expected: Vec<_> = expected.into_iter().map(|(c, u)| at(c, u)).collect();
            assert_eq!(progress(&learned, hot), [vec![begin], expected].concat(), "{name}");
        }
    }
}
