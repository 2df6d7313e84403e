//! What became of the pages of a start: brings together what was seen, what was
//! planned and what was asked for, by file. Pure.

use super::last_run::LastRun;
use super::last_run::timeline::{AskedSpan, Timeline};
use super::outcome::{Fates, Outcome};
use crate::id::Dev;
use crate::pack::build::Parts;
use crate::pack::changing::changes_often;
use crate::pack::paths::{NodeId, PathInterner};
use crate::pack::pieces::Piece;
use crate::pack::{FileSystem, Pack};
use crate::profile::fold::{Observation, Pages};
use crate::profile::resolve::Resolution;
use crate::profile::spans::Spans;
use crate::replay::engine::Log;
use std::collections::{HashMap, HashSet};

/// What was read ahead of a start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed<'a> {
    /// What of a pack was read ahead, if any was.
    pub pack: Option<&'a Pack>,
    /// What was asked for, if that was kept.
    pub log: Option<&'a Log>,
    /// When the program was let go, in µs on the clock of the log.
    pub released_us: u64,
}

/// What became of the pages that were planned and touched, in all and over time.
pub fn fates(
    seen: &Observation,
    names: &Resolution,
    file_systems: &HashMap<Dev, FileSystem>,
    replayed: Replayed<'_>,
) -> (Outcome, LastRun) {
    let mut paths = PathInterner::default();
    let Replayed { pack, log, released_us } = replayed;
    let mut planned = pack.map(|pack| Parts::of(pack, &mut paths)).unwrap_or_default();
    let page = rustix::param::page_size() as u64;
    let mut asked = log.map(|log| asked(log, released_us, page, &paths));
    let mut asked_of = |node: NodeId| asked.as_mut()?.remove(&node);
    let (mut outcome, mut timeline) = (Outcome::default(), Timeline::new(seen.duration));
    let none = Spans::default();
    let mut named = HashSet::new();
    // What was read before it was replaced comes first: that is what was planned.
    let replaced = names.replaced.iter().map(|replaced| (&replaced.was, &replaced.file));
    for (id, file) in replaced.chain(names.files.iter().map(|(id, file)| (id, file))) {
        let Some(pages) = seen.files.get(id) else { continue };
        named.insert(*id);
        let node = paths.find(&file.path);
        let part = node
            .and_then(|node| planned.files.remove(&node))
            .filter(|p| p.identity.ino == id.ino || changes_often(p.changes));
        let spans = part.map(|p| spans_of(&p.pieces)).unwrap_or_default();
        // Reads ask for whole buffers, beyond the end of the file.
        let mut touched = pages.touched.clone();
        touched.cut(file.size.div_ceil(page));
        let fates = Fates::of(&touched, &pages.inserted, &spans);
        outcome.add(&fates);
        let asked = node.and_then(&mut asked_of).unwrap_or_default();
        timeline.add(Some(&file.path), &fates, &asked);
    }
    for (_, pages) in seen.files.iter().filter(|(id, _)| !named.contains(id)) {
        let fates = Fates::of(&pages.touched, &pages.inserted, &none);
        outcome.add(&fates);
        timeline.add(None, &fates, &[]);
    }
    for (node, part) in &planned.files {
        let fates = Fates::of(&none, &none, &spans_of(&part.pieces));
        outcome.add(&fates);
        let path = paths.table().path(*node);
        timeline.add(Some(&path), &fates, &asked_of(*node).unwrap_or_default());
    }
    for (dev, pages) in &seen.metadata {
        let uuid = file_systems.get(dev).and_then(|fs| fs.uuid);
        let is_it = |index: &u16| {
            let fs = planned.file_systems.get(usize::from(*index));
            uuid.is_some() && fs.and_then(|fs| fs.uuid) == uuid
        };
        let part = planned.metadata.iter().find(|(index, _)| is_it(index));
        let spans = part.map(|(_, pieces)| spans_of(pieces)).unwrap_or_default();
        let fates = metadata(pages, &spans);
        outcome.add_metadata(&fates);
        timeline.add_metadata(&fates);
    }
    let run = LastRun { replayed: pack.is_some(), ..timeline.finish() };
    (outcome, run)
}

/// All that was brought in of a device was needed; what is looked at on the way is
/// not always reported.
fn metadata(pages: &Pages, planned: &Spans) -> Fates {
    Fates::of(&pages.inserted, &pages.inserted, planned)
}

/// What was asked for of each file, by the node of its path, on the clock of the
/// start.
fn asked(
    log: &Log,
    released_us: u64,
    page: u64,
    paths: &PathInterner,
) -> HashMap<NodeId, Vec<AskedSpan>> {
    let nanos = |us: u64| i64::try_from(us).unwrap_or(i64::MAX).saturating_mul(1000);
    let mut out = HashMap::new();
    for (path, parts) in log.files() {
        let Some(node) = paths.find(&path) else { continue };
        let spans = parts.iter().map(|asked| AskedSpan {
            first: asked.step.offset / page,
            end: (asked.step.offset + asked.step.length).div_ceil(page),
            at: nanos(asked.at_us).saturating_sub(nanos(released_us)),
        });
        out.insert(node, spans.collect());
    }
    out
}

fn spans_of(pieces: &[Piece]) -> Spans {
    let mut in_time: Vec<&Piece> = pieces.iter().collect();
    in_time.sort_by_key(|piece| piece.at_us);
    let mut spans = Spans::default();
    for p in in_time {
        spans.touch(p.first, p.end - p.first, u64::from(p.at_us) * 1000, p.how);
    }
    spans
}
