//! The dynamic section of a repacked file.
//!
//! It has no room for more than it was linked with, so entries that nothing reads make place.

use super::refuse::Refusal;
use crate::image::dynamic::{self, Dynamic};
use object::elf::{DF_1_NOW, DF_BIND_NOW};

/// New values, by tag; `None` removes the entry.
pub(super) type Changes = Vec<(u64, Option<u64>)>;

/// Entries that may be dropped, in this order, and none that a loader or a debugger needs: a
/// hint (`DT_RELACOUNT`), what another entry tells too, and the size of a symbol, which is fixed
/// and which no Linux loader reads.
pub(super) fn droppable(dynamic: &Dynamic) -> Vec<u64> {
    let value = |tag| dynamic.value(tag);
    let now = value(dynamic::FLAGS_1).is_some_and(|flags| flags & DF_1_NOW.0 != 0);
    let is_now_only = value(dynamic::FLAGS) == Some(DF_BIND_NOW.0);
    let mut out = vec![dynamic::RELACOUNT];
    if is_now_only && now {
        out.push(dynamic::FLAGS);
    }
    if value(dynamic::GNU_HASH).is_some() {
        out.push(dynamic::HASH);
    }
    if value(dynamic::SYMENT) == Some(24) {
        out.push(dynamic::SYMENT);
    }
    out
}

/// The entries after `changes`, with `added` behind them and the terminating one, as bytes.
pub(super) fn build(
    dynamic: &Dynamic,
    changes: &Changes,
    added: &[(u64, u64)],
) -> Result<Vec<u8>, Refusal> {
    let change = |tag| changes.iter().find(|(one, _)| *one == tag).map(|(_, value)| *value);
    let mut entries: Vec<(u64, u64)> = Vec::new();
    for (tag, value) in &dynamic.entries {
        match change(*tag) {
            None => entries.push((*tag, *value)),
            Some(Some(value)) => entries.push((*tag, value)),
            Some(None) => {}
        }
    }
    entries.extend(added);
    let lacking = |entries: &Vec<_>| (entries.len() as u64 + 1).saturating_sub(dynamic.slots);
    for tag in droppable(dynamic) {
        if lacking(&entries) > 0 {
            entries.retain(|(one, _)| *one != tag);
        }
    }
    match lacking(&entries) {
        0 => {}
        lacking => return Err(Refusal::NoRoom(lacking)),
    }
    let mut bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat())
        .collect();
    let size = dynamic.slots.saturating_mul(dynamic::ENTRY);
    bytes.resize(usize::try_from(size).map_err(|_| Refusal::NoRoom(0))?, 0);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(slots: u64, entries: &[(u64, u64)]) -> Dynamic {
        Dynamic { offset: 0, address: 0, slots, entries: entries.to_vec() }
    }

    fn tags(bytes: &[u8]) -> Vec<u64> {
        let tags = crate::relocations::words(bytes).step_by(2);
        tags.take_while(|tag| *tag != dynamic::NULL).collect()
    }

    #[test]
    fn entries_that_nothing_reads_make_place_and_no_others() {
        let entries = [
            (dynamic::NEEDED, 1),
            (dynamic::DEBUG, 0),
            (dynamic::FLAGS, 8),
            (dynamic::FLAGS_1, 1),
            (dynamic::RELACOUNT, 9),
            (dynamic::SYMENT, 24),
            (dynamic::HASH, 5),
        ];
        let added = [(dynamic::RELR, 1), (dynamic::RELRSZ, 8), (dynamic::RELRENT, 8)];
        for (slots, expected) in [
            (11, Some(vec![1, 21, 30, 0x6fff_fffb, 0x6fff_fff9, 11, 4, 36, 35, 37])),
            (10, Some(vec![1, 21, 30, 0x6fff_fffb, 11, 4, 36, 35, 37])),
            // The old hash is needed: there is no other.
            (8, Some(vec![1, 21, 0x6fff_fffb, 4, 36, 35, 37])),
            (7, None),
        ] {
            let built = build(&section(slots, &entries), &Vec::new(), &added);
            assert_eq!(built.ok().map(|bytes| tags(&bytes)), expected, "{slots}");
        }
    }

    #[test]
    fn flags_with_more_than_immediate_binding_stay() {
        for (flags, flags_1, goes) in [(8, 1, true), (8 | 16, 1, false), (8, 0, false)] {
            let dynamic = section(4, &[(dynamic::FLAGS, flags), (dynamic::FLAGS_1, flags_1)]);
            assert_eq!(droppable(&dynamic).contains(&dynamic::FLAGS), goes, "{flags}");
        }
    }
}
