//! What a replay reads of directories and inode tables, which stay where they are. Pure.

use headstart::pack::Pack;
use headstart::replay::elevator::{DevicePosition, read_us};
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;
use headstart::replay::pack_strategy::read_strategy;
use serde::Serialize;

/// Metadata of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Metadata {
    /// At how many places it lies.
    pub places: u64,
    /// Bytes that are read there, with the gaps that a replay reads too.
    pub bytes: u64,
    /// How long a rotational disk needs for it, in µs; `None` for others, and without a model.
    pub us: Option<u64>,
}

impl Metadata {
    /// What these packs prefetch of the file system with this UUID.
    pub fn of(packs: &[Pack], uuid: Option<[u8; 16]>, model: Option<&Model>) -> Self {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut gap = 0;
        for pack in packs {
            gap = read_strategy(model.copied(), pack).metadata_gap_bytes().max(gap);
            let choice = Frequency::HALF.choice(pack);
            let is_here = |number: u16| {
                let known = pack.file_systems.get(usize::from(number));
                uuid.is_some() && known.is_some_and(|known| known.uuid == uuid)
            };
            let chosen = pack.metadata.iter().filter(|r| is_here(r.file_system));
            let bytes = chosen
                .filter(|range| choice.has_metadata(range))
                .map(|range| range.page_range().bytes(pack.page_size()));
            parts.extend(bytes.map(|bytes| (bytes.offset, bytes.end)));
        }
        parts.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in parts {
            match joined.last_mut() {
                Some(last) if begin <= last.1.saturating_add(gap) => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        let placed: Vec<_> = joined
            .iter()
            .map(|&(offset, end)| (DevicePosition { dev: 0, offset }, end.saturating_sub(offset)))
            .collect();
        let begin = joined.first().map_or(0, |first| first.0);
        let span = joined.last().map_or(0, |last| last.1.saturating_sub(begin));
        let seek = model.and_then(Model::seek);
        Self {
            places: joined.len() as u64,
            bytes: placed.iter().fold(0, |sum, (_, length)| length.saturating_add(sum)),
            us: seek.map(|seek| read_us(&placed, seek, span) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::pack::{FileSystem, History, MetadataRange, Origin};

    const HDD: Model = Model::of(8340, 140, 100, 1, 119);
    const EMMC: Model = Model::of(330, 330, 150, 1, 3000);

    #[test]
    fn metadata_of_a_file_system_is_counted_by_places_and_what_lies_close_is_one() {
        let here = Some([7; 16]);
        let system = |uuid| FileSystem { uuid, kind: "ext4".into(), source: Vec::new() };
        let range = |&(file_system, first, pages): &(u16, u64, u32)| MetadataRange {
            file_system,
            first,
            pages,
            at_us: 0,
            history: History(1),
        };
        // Gaps of 48 KiB and of 1 GiB; one range of another file system, one of none.
        let list = [(0, 100, 4), (0, 116, 4), (0, 262_264, 1), (1, 104, 1), (9, 1, 1)];
        let pack = Pack {
            origin: Origin { page_shift: 12, starts: 1, ..Origin::default() },
            file_systems: vec![system(here), system(Some([8; 16]))],
            metadata: list.iter().map(range).collect(),
            ..Pack::default()
        };
        for (uuid, model, expected) in [
            (here, Some(HDD), (2, 21 << 12)),
            (here, Some(EMMC), (3, 9 << 12)),
            (here, None, (3, 9 << 12)),
            (Some([9; 16]), Some(HDD), (0, 0)),
            (None, Some(HDD), (0, 0)),
        ] {
            let found = Metadata::of(std::slice::from_ref(&pack), uuid, model.as_ref());
            assert_eq!((found.places, found.bytes), expected, "{uuid:?} {model:?}");
            assert_eq!(found.us.is_some(), model == Some(HDD));
            assert!(found.us.is_none_or(|us| found.places == 0 || us > 8200 + 860));
        }
    }
}
