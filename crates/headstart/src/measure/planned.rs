//! What became of the pages of a start, file by file: the start and the pack that was
//! read ahead for it are brought together by names. Pure.

use super::outcome::Outcome;
use crate::pack::Pack;
use crate::pack::build::Parts;
use crate::pack::paths::PathInterner;
use crate::pack::pieces::Piece;
use crate::profile::fold::Observation;
use crate::profile::resolve::Resolution;
use crate::profile::spans::Spans;
use std::collections::HashSet;

/// What became of the pages that were planned and touched. `pack` is what was read
/// ahead, if anything was.
pub fn outcome(seen: &Observation, names: &Resolution, pack: Option<&Pack>) -> Outcome {
    let mut paths = PathInterner::default();
    let mut planned = pack.map(|pack| Parts::of(pack, &mut paths)).unwrap_or_default();
    let mut outcome = Outcome::default();
    let none = Spans::default();
    let mut named = HashSet::new();
    for (id, file) in &names.files {
        let Some(pages) = seen.files.get(id) else { continue };
        named.insert(*id);
        let node = paths.find(&file.path);
        let part =
            node.and_then(|node| planned.files.remove(&node)).filter(|p| p.identity.ino == id.ino);
        let spans = part.map(|p| spans_of(&p.pieces)).unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let mut touched = pages.touched.clone();
        touched.cut(file.size.div_ceil(page));
        outcome.add(&touched, &pages.inserted, &spans);
    }
    for (_, pages) in seen.files.iter().filter(|(id, _)| !named.contains(id)) {
        outcome.add(&pages.touched, &pages.inserted, &none);
    }
    for part in planned.files.values() {
        outcome.add(&none, &none, &spans_of(&part.pieces));
    }
    outcome
}

fn spans_of(pieces: &[Piece]) -> Spans {
    let mut spans = Spans::default();
    for p in pieces {
        spans.touch(p.first, p.end - p.first, 0, p.how);
    }
    spans
}
