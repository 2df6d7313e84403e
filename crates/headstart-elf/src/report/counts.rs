//! Relocations by kind, the tables they are in, and the pages they write.

use crate::PAGE;
use crate::image::Image;
use crate::relocations::{Rela, Tables, entries, kinds, relr, words};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many relocations of a kind there are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kind {
    /// As in the psABI, without the prefix of the processor; a number for rare ones.
    pub kind: String,
    /// How many.
    pub count: u64,
}

/// The relocations of a file. Sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// By kind, the most first.
    pub kinds: Vec<Kind>,
    /// `DT_RELA`
    pub rela_bytes: u64,
    /// `DT_JMPREL`
    pub plt_bytes: u64,
    /// `DT_RELR`
    pub relr_bytes: u64,
    /// Relative relocations in `DT_RELA`.
    pub relative: u64,
    /// Relocations in `DT_RELR`.
    pub packed: u64,
    /// What all relative ones would take in `DT_RELR`; those at odd addresses excluded.
    pub as_relr_bytes: u64,
    /// Relative ones that `DT_RELR` can't have: at odd addresses.
    pub unaligned: u64,
    /// 4 KiB pages that relocations write, each a private copy.
    pub pages_written: u64,
    /// Where the RELA table is in the file: offset and length.
    #[serde(skip)]
    pub rela_at: Option<(u64, u64)>,
}

impl Counts {
    /// Of a file; nothing where its tables are not in its segments.
    pub fn of(image: &Image) -> Self {
        let Some(tables) = Tables::of(image) else { return Self::default() };
        let relative = kinds::relative(image.machine).map(u64::from);
        let is_relative = |entry: &Rela| Some(entry.info) == relative;
        let mut by_kind = BTreeMap::<u32, u64>::new();
        let mut pages = BTreeSet::new();
        let mut last_page = None;
        let mut touch = |place: u64| {
            // Most are next to each other.
            if last_page != Some(place / PAGE) {
                last_page = Some(place / PAGE);
                pages.insert(place / PAGE);
            }
        };
        let mut places = Vec::new();
        let mut out = Self {
            rela_bytes: tables.rela.len() as u64,
            plt_bytes: tables.plt.len() as u64,
            relr_bytes: tables.relr.len() as u64,
            ..Self::default()
        };
        for entry in entries(tables.rela).chain(entries(tables.plt)) {
            *by_kind.entry(entry.kind()).or_default() += 1;
            touch(entry.place);
            if is_relative(&entry) {
                out.relative += 1;
                if entry.place.is_multiple_of(8) {
                    places.push(entry.place);
                } else {
                    out.unaligned += 1;
                }
            }
        }
        for place in relr::decode(words(tables.relr)) {
            touch(place);
            out.packed += 1;
        }
        places.sort_unstable();
        places.dedup();
        out.as_relr_bytes = relr::encode(&places).len() as u64 * 8;
        out.pages_written = pages.len() as u64;
        let name =
            |kind: u32| kinds::name(image.machine, kind).map_or(kind.to_string(), Into::into);
        out.kinds =
            by_kind.into_iter().map(|(kind, count)| Kind { kind: name(kind), count }).collect();
        if out.packed > 0 {
            out.kinds.push(Kind { kind: "RELATIVE, packed".into(), count: out.packed });
        }
        out.kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        let rela = image.tag(crate::image::dynamic::RELA);
        let range = rela.and_then(|address| image.file_range(address, out.rela_bytes));
        out.rela_at = range.map(|range| (range.start as u64, out.rela_bytes));
        out
    }
}
