//! How many bytes a start has used at which share of its computing, from its pack. Pure.

use crate::stats::hot::Progress;
use headstart::pack::Pack;

/// The progress of a pack's start, at each of its first touches; metadata is needed
/// before anything else. Times are those of the last learned start.
pub fn progress(pack: &Pack) -> Vec<Progress> {
    let bytes = |pages: u32| f64::from(pages) * pack.page_size() as f64;
    let metadata = pack.metadata_bytes() as f64;
    let mut touches: Vec<_> = pack.ranges.iter().map(|r| (r.at_us, bytes(r.pages))).collect();
    touches.sort_by_key(|touch| touch.0);
    let last = touches.last().map_or(0, |touch| touch.0);
    let duration = (pack.origin.duration_us as f64).max(f64::from(last)).max(1.0);
    let all = (metadata + touches.iter().map(|touch| touch.1).sum::<f64>()).max(1.0);
    let mut used = metadata;
    let begin = Progress { computed: 0.0, used: metadata / all };
    let of_touch = |(at_us, bytes): (u32, f64)| {
        used += bytes;
        Progress { computed: f64::from(at_us) / duration, used: used / all }
    };
    std::iter::once(begin).chain(touches.into_iter().map(of_touch)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::usage::How;
    use headstart::pack::{History, MetadataRange, Origin, Range};

    #[test]
    fn metadata_comes_first_and_files_as_they_are_touched() {
        let range = |first, pages, at_us| Range {
            file: 0,
            first,
            pages,
            at_us,
            how: How::READ,
            history: History(1),
        };
        let metadata =
            MetadataRange { file_system: 0, first: 0, pages: 2, at_us: 700, history: History(1) };
        let pack = Pack {
            origin: Origin { page_shift: 12, duration_us: 1000, ..Origin::default() },
            ranges: vec![range(9, 2, 500), range(0, 4, 100)],
            metadata: vec![metadata],
            ..Pack::default()
        };
        let at = |computed, used| Progress { computed, used };
        assert_eq!(progress(&pack), [at(0.0, 0.25), at(0.1, 0.75), at(0.5, 1.0)]);
        assert_eq!(progress(&Pack::default()), [at(0.0, 0.0)]);
    }
}
