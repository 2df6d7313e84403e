//! Tests of the codec: round trips, refusals, and bounds on memory.

use super::*;
use crate::pack::History;
use crate::pack::paths::PathInterner;
use proptest::prelude::*;
use std::path::Path;

/// Any pack that the library could have built.
pub fn packs() -> impl Strategy<Value = Pack> {
    let names = proptest::collection::vec("[^/\0.][^/\0]{0,6}(/[^/\0.][^/\0]{0,6}){0,3}", 0..12);
    let ids = proptest::collection::vec(any::<(u64, u64, i64, i64, u8)>(), 12);
    let ranges = proptest::collection::vec(
        (any::<u32>(), 0u64..1 << 40, 1u32..1 << 30, any::<u32>(), any::<(u8, u8)>()),
        0..30,
    );
    (names, ids, ranges, any::<Option<[u8; 16]>>(), any::<(u64, u32, bool)>()).prop_map(
        |(names, ids, ranges, uuid, (number, small, flag))| {
            let mut interner = PathInterner::default();
            let files: Vec<File> = names
                .iter()
                .zip(ids)
                .filter_map(|(name, (ino, size, mtime_ns, ctime_ns, changes))| {
                    let node = interner.intern(Path::new(&format!("/{name}")))?;
                    let identity = Identity { ino, size, mtime_ns, ctime_ns };
                    Some(File { file_system: 0, node, identity, changes: History(changes) })
                })
                .collect();
            let count = files.len() as u32;
            Pack {
                origin: Origin {
                    name: "prog".into(),
                    command: b"prog\0arg\xff".to_vec(),
                    kernel: "6.18".into(),
                    page_shift: 12 + (small % 5) as u8,
                    starts: small,
                    learned_at: number,
                    lost_events: number,
                    has_access_events: flag,
                    buffer_kb: small,
                    duration_us: number,
                    dropped: Dropped { deleted: small, written: 3, ..Dropped::default() },
                },
                file_systems: vec![FileSystem { uuid, kind: "ext4".into(), source: vec![0xff] }],
                paths: interner.finish(),
                metadata: ranges
                    .iter()
                    .map(|&(_, first, pages, at_us, (_, history))| MetadataRange {
                        file_system: 0,
                        first,
                        pages,
                        at_us,
                        history: History(history),
                    })
                    .collect(),
                ranges: ranges
                    .into_iter()
                    .filter(|_| count > 0)
                    .map(|(file, first, pages, at_us, (how, history))| Range {
                        file: file % count,
                        first,
                        pages,
                        at_us,
                        how: How(how),
                        history: History(history),
                    })
                    .collect(),
                files,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_pack_comes_back(pack in packs()) {
        prop_assert_eq!(decode(&encode(&pack)).unwrap(), pack);
    }

    #[test]
    fn one_wrong_bit_anywhere_is_noticed(pack in packs(), at: usize, bit in 0u8..8) {
        let mut bytes = encode(&pack);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_body_decodes_to_something_walkable_or_is_refused(
        body in proptest::collection::vec(any::<u8>(), 0..400)
    ) {
        if let Ok(pack) = decode(&with_header(&body)) {
            for range in &pack.ranges {
                let file = pack.files[range.file as usize];
                let _ = pack.paths.path(file.node);
                let _ = &pack.file_systems[usize::from(file.file_system)];
            }
        }
    }

    #[test]
    fn a_changed_body_with_a_right_checksum_is_refused_or_walkable(
        pack in packs(),
        changes in proptest::collection::vec(any::<(usize, u8)>(), 1..6)
    ) {
        let mut body = encode(&pack)[HEADER_BYTES..].to_vec();
        for (at, value) in changes {
            let at = at % body.len();
            body[at] = value;
        }
        if let Ok(pack) = decode_body(&body) {
            prop_assert_eq!(decode(&encode(&pack)).unwrap(), pack);
        }
    }
}

#[test]
fn each_kind_of_damage_has_its_own_sentence() {
    let good =
        encode(&Pack { origin: Origin { page_shift: 12, ..Origin::default() }, ..Pack::default() });
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    let length = good.len() as u64;
    let cases = [
        (b"ELF".to_vec(), PackError::Magic),
        (vec![], PackError::Magic),
        (with(0, b'X'), PackError::Magic),
        (with(8, 1), PackError::Version(1)),
        (good[..20].to_vec(), PackError::Length { expected: 32, actual: 20 }),
        (
            good[..good.len() - 1].to_vec(),
            PackError::Length { expected: length, actual: length - 1 },
        ),
        ([&good[..], b"x"].concat(), PackError::Length { expected: length, actual: length + 1 }),
        (with(40, 0xff), PackError::Checksum),
        (with(12, 1), PackError::Checksum),
        (with_header(b""), PackError::Corrupt("number")),
    ];
    assert!(decode(&good).is_ok());
    for (bytes, expected) in cases {
        assert_eq!(decode(&bytes), Err(expected));
    }
}

#[test]
fn file_systems_are_bounded() {
    let mut pack =
        Pack { origin: Origin { page_shift: 12, ..Origin::default() }, ..Pack::default() };
    pack.file_systems = vec![FileSystem::default(); MAX_FILE_SYSTEMS];
    assert_eq!(decode(&encode(&pack)).as_ref(), Ok(&pack));
    pack.file_systems.push(FileSystem::default());
    assert_eq!(decode(&encode(&pack)), Err(PackError::Corrupt("count")));
}

#[test]
fn sums_of_a_hostile_pack_end_at_the_largest_number() {
    let mut pack =
        Pack { origin: Origin { page_shift: 16, ..Origin::default() }, ..Pack::default() };
    let (pages, how) = (u32::MAX, How::READ);
    let range = Range { file: 0, first: 0, pages, at_us: 0, how, history: History(1) };
    let metadata = MetadataRange { file_system: 0, first: 0, pages, at_us: 0, history: History(1) };
    pack.ranges = vec![range; 2];
    assert_eq!(pack.data_bytes(), 2 * (u64::from(u32::MAX) << 16));
    pack.ranges = vec![range; (1 << 16) + 2];
    pack.metadata = vec![metadata; (1 << 16) + 2];
    assert_eq!((pack.data_bytes(), pack.metadata_bytes()), (u64::MAX, u64::MAX));
}
