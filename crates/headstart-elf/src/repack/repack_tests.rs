//! Tests of packing as a whole, on made-up files.

use super::made::{DATA, Made, relative, word};
use super::proof::prove;
use super::refuse::Refusal;
use super::{Repacked, repack};
use crate::image::{Image, dynamic};
use crate::relocations::{Rela, Tables, entries, relr, words};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

type IsExpected = fn(&Refusal) -> bool;

fn packed(made: &Made) -> (Vec<u8>, Repacked) {
    let bytes = made.bytes();
    let repacked = repack(&bytes, 1).unwrap_or_else(|why| panic!("{why}: {made:?}"));
    (bytes, repacked)
}

#[test]
fn a_table_of_relative_relocations_becomes_a_bitmap() {
    for machine in [62, 183] {
        for (in_place, versions_behind_strings) in [(true, true), (false, false), (false, true)] {
            let rela = relative(machine, 0..400);
            let made = Made { machine, rela, in_place, versions_behind_strings, ..Made::default() };
            let (old, new) = packed(&made);
            assert_eq!((new.change.packed, new.change.rela_after), (400, 0));
            assert!(new.change.relr < 100, "{:?}", new.change);
            let image = Image::parse(&new.bytes).unwrap();
            let tables = Tables::of(&image).unwrap();
            let places: Vec<u64> = relr::decode(words(tables.relr)).collect();
            assert_eq!(places, (0..400).map(word).collect::<Vec<_>>());
            assert_eq!(image.tag(dynamic::RELA), None);
            assert!(image.section(".relr.dyn").is_some());
            // Everything but what had to change is as it was.
            let rodata = image.section(".rodata").unwrap();
            let before = Image::parse(&old).unwrap();
            assert_eq!(image.at(rodata.address, 8), before.at(rodata.address, 8));
            assert_eq!(repack(&new.bytes, 1), Err(Refusal::AlreadyPacked));
            assert!(new.hole.start < new.hole.end);
            let hole = &new.bytes[new.hole.start as usize..new.hole.end as usize];
            assert!(hole.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn glibc_is_told_by_a_version_that_is_needed() {
    let (_, new) = packed(&Made::default());
    let image = Image::parse(&new.bytes).unwrap();
    let needs = super::versions::needs(&image).unwrap();
    let names: Vec<_> = needs[0]
        .versions
        .iter()
        .map(|one| (image.dynamic_string(one.name.into()).unwrap(), one.index))
        .collect();
    assert_eq!(names, [(&b"GLIBC_2.34"[..], 2), (b"GLIBC_ABI_DT_RELR", 3)]);
}

#[test]
fn relocations_that_share_bytes_or_have_symbols_stay_as_they_are() {
    let mut rela = relative(62, 0..300);
    let twice = Rela { place: word(7), info: 8, addend: 9 };
    let symbolic = Rela { place: word(310), info: 3 << 32 | 1, addend: 0 };
    let odd = Rela { place: word(320) + 4, info: 8, addend: 1 };
    let overlapping = Rela { place: word(20) + 4, info: 8, addend: 1 };
    rela.extend([symbolic, twice, odd, overlapping]);
    let (_, new) = packed(&Made { rela, ..Made::default() });
    let image = Image::parse(&new.bytes).unwrap();
    let kept: Vec<Rela> = entries(Tables::of(&image).unwrap().rela).collect();
    // Both of the same place, the one that overlaps two, these, and the others; in their order.
    assert_eq!(kept.len(), 7);
    assert_eq!(kept[3..], [symbolic, twice, odd, overlapping]);
    assert_eq!(image.tag(dynamic::RELACOUNT), Some(3));
    assert_eq!((new.change.packed, new.change.relative_kept), (297, 6));
}

#[test]
fn what_must_not_be_changed_is_refused() {
    let made = Made::default;
    // With one that stays the entries of the old table stay too.
    let stays = Rela { place: word(900), info: 1 << 32 | 6, addend: 0 };
    let with_one = [relative(62, 0..400), vec![stays]].concat();
    let cases: [(&str, Made, IsExpected); 8] = [
        ("no room", Made { spare: 0, rela: with_one, ..made() }, |why| *why == Refusal::NoRoom(1)),
        ("trailer", Made { trailer: b"PK archive".to_vec(), ..made() }, |why| {
            *why == Refusal::Trailer(10)
        }),
        ("no gain", Made { rela: relative(62, [0]), ..made() }, |why| {
            matches!(why, Refusal::NoGain { .. } | Refusal::DoesNotFit(_))
        }),
        ("processor", Made { machine: 243, ..made() }, |why| *why == Refusal::Machine),
        ("packed", Made { more: vec![(36, 0)], ..made() }, |why| *why == Refusal::AlreadyPacked),
        ("REL too", Made { more: vec![(17, 0)], ..made() }, |why| {
            matches!(why, Refusal::Unusual(_))
        }),
        ("twice", Made { more: vec![(5, 0)], ..made() }, |why| matches!(why, Refusal::Unusual(_))),
        ("prelinked", Made { more: vec![(0x6fff_fdf5, 0)], ..made() }, |why| {
            matches!(why, Refusal::Unusual(_))
        }),
    ];
    for (name, made, is_expected) in cases {
        match repack(&made.bytes(), 1) {
            Err(why) => assert!(is_expected(&why), "{name}: {why}"),
            Ok(_) => panic!("{name}: repacked"),
        }
    }
}

#[test]
fn a_proof_fails_where_any_byte_of_the_result_is_wrong() {
    let (old, new) = packed(&Made::default());
    assert!(prove(&old, &new.bytes).is_ok());
    let image = Image::parse(&new.bytes).unwrap();
    let data = image.file_range(word(0), 8000).unwrap();
    let relr = image.file_range(image.tag(dynamic::RELR).unwrap(), 8).unwrap();
    let rodata = image.section(".rodata").unwrap().offset as usize;
    let entries = image.file_range(DATA, 16).unwrap();
    for at in
        [data.start, data.end - 1, relr.start, rodata, entries.start, entries.start + 8, 24, 64]
    {
        let mut wrong = new.bytes.clone();
        wrong[at] ^= 4;
        assert!(prove(&old, &wrong).is_err(), "{at:#x}");
    }
    assert!(prove(&old, &old).is_err());
    assert!(prove(&new.bytes, &old).is_err());
}

/// Relocations of any places and kinds.
fn relocations() -> impl Strategy<Value = Vec<Rela>> {
    let other = (
        0u64..7000,
        prop_oneof![Just(1u64), Just(6), Just(8), Just(16), Just(36), Just(5)],
        0u64..12,
    );
    (btree_set(0u64..900, 150..500), vec(other, 0..30), any::<bool>()).prop_map(
        |(relatives, others, first)| {
            let mut out = relative(62, relatives);
            let others = others.into_iter().map(|(at, kind, symbol)| Rela {
                place: word(0) + at,
                info: symbol << 32 | kind,
                addend: at,
            });
            if first {
                out.splice(0..0, others);
            } else {
                out.extend(others);
            }
            out
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_relocated_the_result_is_proved_or_refused(
        rela in relocations(),
        in_place in any::<bool>(),
        versions_behind_strings in any::<bool>(),
        spare in 0usize..5,
    ) {
        let made = Made { rela, in_place, versions_behind_strings, spare, ..Made::default() };
        let bytes = made.bytes();
        match repack(&bytes, 1) {
            Ok(new) => {
                prop_assert!(prove(&bytes, &new.bytes).is_ok());
                prop_assert!(new.change.packed > 0);
            }
            Err(why) => {
                let is_unproven = matches!(why, Refusal::Unproven(_));
                prop_assert!(!is_unproven, "{}", why);
            }
        }
    }

    #[test]
    fn a_damaged_file_is_repacked_with_a_proof_or_refused(
        at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = Made::default().bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(new) = repack(&bytes, 1) {
            prop_assert!(prove(&bytes, &new.bytes).is_ok());
        }
    }
}
