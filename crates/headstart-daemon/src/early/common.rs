//! The login pack: pages of a user's programs that are likely used soon after a login. Pure.
//!
//! A page is used if one of the programs that touch it starts. With the chance of each, taken as
//! independent, that is 1 − Π (1 − chance): so a library that several programs share is in the pack
//! although none of them is likely, and all of a program that nearly each login starts.

use super::model::Likely;
use headstart::host::range::PageRange;
use headstart::host::usage::How;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::paths::PathInterner;
use headstart::pack::pieces::Piece;
use headstart::pack::{File, History, Origin, Pack};

/// A page is in the pack if its chance is at least this.
const LEAST: f64 = 0.5;
/// The touch time of pages whose programs never followed a login: the last ones.
const LATE_US: u32 = 300_000_000;

/// A program that may start after a login.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is read for it: the ranges that are prefetched.
    pub pack: Pack,
    /// How likely, and when.
    pub likely: Likely,
}

/// What programs touch of one file or device.
#[derive(Clone, Copy, Debug)]
struct Touch {
    pages: PageRange,
    chance: f64,
    at_us: u32,
    how: How,
}

/// A part of the login pack.
#[derive(Clone, Copy, Debug)]
struct Part<K> {
    of: K,
    chance: f64,
    piece: Piece,
}

/// The login pack of these programs, with data and metadata of at most so many bytes. Each pack is dropped
/// once it is taken apart.
pub fn common(mut candidates: Vec<Candidate>, most_bytes: u64) -> Pack {
    let page_shift = candidates.first().map_or(12, |first| first.pack.origin.page_shift);
    candidates.retain(|one| one.pack.origin.page_shift == page_shift);
    let origin = Origin { name: "login".into(), page_shift, starts: 1, ..Origin::default() };
    let mut names = PathInterner::default();
    let mut out = Parts { origin, ..Parts::default() };
    let (mut touches, mut metadata) = (Vec::new(), Vec::new());
    // The latest pack knows best which file it is.
    candidates.sort_by_key(|one| std::cmp::Reverse(one.pack.origin.learned_at));
    for Candidate { pack, likely } in candidates {
        let after_us = likely.after_ms.saturating_mul(1000).min(LATE_US);
        let chance = likely.chance.clamp(0.0, 1.0);
        let touch =
            |pages, at_us, how| Touch { pages, chance, at_us: after_us.saturating_add(at_us), how };
        let systems: Vec<_> = pack.file_systems.iter().map(|fs| out.file_system(fs)).collect();
        let system = |old: u16| systems.get(usize::from(old)).copied().flatten();
        let nodes = names.adopt(&pack.paths);
        // The name of each file, if it is the one that is known.
        let named = |file: &File| {
            let node = nodes.get(file.node.0 as usize).copied().flatten()?;
            let (file_system, File { identity, changes, .. }) = (system(file.file_system)?, *file);
            let empty = || FilePart { file_system, identity, changes, pieces: Vec::new() };
            let known = out.files.entry(node).or_insert_with(empty);
            (known.identity == identity).then_some(node)
        };
        let named: Vec<_> = pack.files.iter().map(named).collect();
        touches.extend(pack.ranges.iter().filter_map(|range| {
            let node = named.get(range.file as usize).copied().flatten()?;
            Some((node, touch(range.page_range(), range.at_us, range.how)))
        }));
        metadata.extend(pack.metadata.iter().filter_map(|range| {
            let file_system = system(range.file_system)?;
            Some((file_system, touch(range.page_range(), range.at_us, How::READ)))
        }));
    }
    let mut room = most_bytes >> page_shift;
    // Without metadata each file costs several requests, and there is little of it.
    for Part { of, piece, .. } in best(metadata, &mut room) {
        out.metadata.entry(of).or_default().push(piece);
    }
    for Part { of, piece, .. } in best(touches, &mut room) {
        out.files.entry(of).and_modify(|file| file.pieces.push(piece));
    }
    out.build(names.table())
}

/// The parts that are likely used, the most likely ones that so many pages have room for.
fn best<K: Copy + Ord>(mut touches: Vec<(K, Touch)>, room: &mut u64) -> Vec<Part<K>> {
    touches.sort_by_key(|(of, touch)| (*of, touch.pages.first));
    let mut parts: Vec<_> =
        touches.chunk_by(|(one, _), (other, _)| one == other).flat_map(likely_parts).collect();
    parts.sort_by(|a, b| {
        let order = (a.of, a.piece.pages.first).cmp(&(b.of, b.piece.pages.first));
        b.chance.total_cmp(&a.chance).then(a.piece.at_us.cmp(&b.piece.at_us)).then(order)
    });
    for part in &mut parts {
        let pages = &mut part.piece.pages;
        pages.end = pages.end.min(pages.first.saturating_add(*room));
        *room -= pages.count();
    }
    parts.retain(|part| !part.piece.pages.is_empty());
    parts
}

/// The ranges of pages of one file that are likely used; its touches come in the order of their pages.
fn likely_parts<K: Copy>(touches: &[(K, Touch)]) -> Vec<Part<K>> {
    let Some(&(of, _)) = touches.first() else { return Vec::new() };
    let ends = |(_, touch): &(K, Touch)| [touch.pages.first, touch.pages.end];
    let mut cuts: Vec<_> = touches.iter().flat_map(ends).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let (mut open, mut next): (Vec<Touch>, _) = (Vec::new(), touches.iter().peekable());
    let mut parts: Vec<Part<K>> = Vec::new();
    for pair in cuts.windows(2) {
        let &[first, end] = pair else { continue };
        open.retain(|touch| touch.pages.end > first);
        while let Some((_, touch)) = next.next_if(|(_, touch)| touch.pages.first <= first) {
            open.push(*touch);
        }
        let chance = 1.0 - open.iter().map(|touch| 1.0 - touch.chance).product::<f64>();
        let Some(earliest) = open.iter().min_by_key(|touch| touch.at_us) else { continue };
        if chance < LEAST {
            continue;
        }
        match parts.last_mut() {
            Some(last) if last.piece.pages.end == first && last.chance == chance => {
                last.piece.pages.end = end;
                last.piece.at_us = last.piece.at_us.min(earliest.at_us);
            }
            _ => {
                let (at_us, how) = (earliest.at_us, earliest.how);
                let pages = PageRange { first, end };
                parts.push(Part {
                    of,
                    chance,
                    piece: Piece { pages, at_us, how, history: History(1) },
                });
            }
        }
    }
    parts
}

#[cfg(test)]
#[path = "common_tests.rs"]
mod tests;
