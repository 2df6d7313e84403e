//! Joins packs: the next start into what is known, or two packs into one.
//! Pure.

use super::build::{FilePart, Parts};
use super::changing::{carries_on, changes_after};
use super::clock::Clock;
use super::history::HISTORY_STARTS;
use super::paths::{NodeId, PathInterner};
use super::pieces::{Piece, overlay};
use super::{FileSystem, History, Origin, Pack};
use crate::host::usage::How;
use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};

/// How the second pack relates to the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// It is the next start of the same program.
    NextStart {
        /// Starts in a row without a touch after which a range is dropped,
        /// 1 to 8.
        keep: u32,
        /// Whether metadata that the start did not touch was not needed: false if it was resident,
        /// since touches are not reported then.
        metadata_seen: bool,
        /// A range that is touched no more than this before or after the time that is known keeps that time, in
        /// µs of this start; 0 takes the times of this start.
        keep_time_us: u32,
    },
    /// It was learned independently: the ranges of both are kept.
    Union,
}

/// Whether a start with `lost` lost events may be merged into `old`: a lossy
/// profile never replaces a clean one.
pub fn accepts(old: &Pack, lost: u64) -> bool {
    lost == 0 || old.origin.lost_events > 0
}

/// Joins `new` into `old`. The new version of a file replaces the old one if the identity differs,
/// unless the file changes at each start ([`super::changing`]); so it does if the old ranges are
/// only inferred. A pack with another page size is replaced as a whole. One that is given away is
/// dropped once it is taken apart.
pub fn merge(old: impl Borrow<Pack>, new: impl Borrow<Pack>, rule: Rule) -> Pack {
    let mut names = PathInterner::default();
    let mut new = taken_apart(new, &mut names);
    let mut old = match old.borrow().origin.page_shift == new.origin.page_shift {
        true => taken_apart(old, &mut names),
        false => Parts::default(),
    };
    take_additions_for_reads(&mut old, &new.origin);
    if rule != Rule::Union {
        set_clock(&mut old, &new);
    }
    let mut out = Parts {
        origin: rule.origin(&old.origin, new.origin),
        file_systems: std::mem::take(&mut new.file_systems),
        ..Parts::default()
    };
    let numbers = OldNumbers::of(&old.file_systems, &mut out);
    out.files = join_files(rule, old.files, new.files, &numbers);
    out.metadata = join_metadata(rule, old.metadata, new.metadata, &numbers);
    drop_empty(&mut out);
    out.build(names.table())
}

fn taken_apart(pack: impl Borrow<Pack>, names: &mut PathInterner) -> Parts {
    Parts::of(pack.borrow(), names)
}

/// If the new start has access events and the old ones did not: a kernel that reports only
/// additions to the page cache recorded those, and additions were their touches.
fn take_additions_for_reads(old: &mut Parts, new: &Origin) {
    if !new.has_access_events || old.origin.has_access_events {
        return;
    }
    for piece in old.files.values_mut().flat_map(|file| &mut file.pieces) {
        if piece.how == How::INSERTED {
            piece.how = How::READ;
        }
    }
}

/// Sets the times of old ranges to those at which the new start would have touched them, by the
/// files in both.
fn set_clock(old: &mut Parts, new: &Parts) {
    let first = |part: &FilePart| part.pieces.iter().map(|piece| piece.at_us).min();
    let both = new.files.iter().filter_map(|(node, is)| {
        let was = old.files.get(node)?;
        Some((first(was)?, first(is)?))
    });
    let clock = Clock::between(both, (old.origin.duration_us, new.origin.duration_us));
    let of_files = old.files.values_mut().flat_map(|file| &mut file.pieces);
    for piece in of_files.chain(old.metadata.values_mut().flatten()) {
        piece.at_us = clock.at(piece.at_us);
    }
}

/// The indices of the old pack's file systems in the joined one; `None` without room.
struct OldNumbers(Vec<Option<u16>>);

impl OldNumbers {
    fn of(old: &[FileSystem], joined: &mut Parts) -> Self {
        Self(old.iter().map(|fs| joined.file_system(fs)).collect())
    }

    fn now(&self, old: u16) -> Option<u16> {
        self.0.get(usize::from(old)).copied().flatten()
    }
}

fn join_files(
    rule: Rule,
    mut old: HashMap<NodeId, FilePart>,
    mut new: HashMap<NodeId, FilePart>,
    numbers: &OldNumbers,
) -> HashMap<NodeId, FilePart> {
    new.iter_mut().for_each(|(node, is)| join_file(rule, old.remove(node), is));
    for (node, was) in old {
        if let Some(file_system) = numbers.now(was.file_system) {
            new.insert(node, FilePart { file_system, ..untouched(rule, was) });
        }
    }
    new
}

/// A file that the new pack has.
fn join_file(rule: Rule, was: Option<FilePart>, is: &mut FilePart) {
    let is_known = |was: &FilePart| !was.is_assumed() && was.identity == is.identity;
    if rule == Rule::Union && is.is_assumed() && was.as_ref().is_some_and(is_known) {
        // It adds nothing to what is known.
        is.pieces.clear();
    }
    let changes = was.as_ref().map_or(is.changes, |was| rule.changes(was, is));
    let mut was = was.filter(|was| !was.is_assumed() && carries_on(was, is));
    if let Some(was) = was.as_mut().filter(|was| !has_grown(was, is)) {
        forget_appends(was);
    }
    let was = was.map_or_else(Vec::new, |was| was.pieces);
    is.changes = changes;
    is.pieces = join_data(rule, was, std::mem::take(&mut is.pieces), true);
}

/// Whether it is the same file with more bytes.
fn has_grown(was: &FilePart, is: &FilePart) -> bool {
    was.identity.ino == is.identity.ino && was.identity.size < is.identity.size
}

/// Of a file that did not grow, or was replaced.
fn forget_appends(part: &mut FilePart) {
    part.pieces.retain(|piece| !piece.how.has(How::APPENDED) || !piece.how.is_only_written());
    part.pieces.iter_mut().for_each(|piece| piece.how.0 &= !How::APPENDED.0);
}

/// Whether the pages of a piece leave no trace once they are prefetched. A file that one start wrote was perhaps
/// not appended to.
fn is_silent(piece: &Piece) -> bool {
    let is_appended = piece.how == How::WRITTEN | How::APPENDED;
    piece.how == How::INSERTED || is_appended && piece.history.count_in_last(HISTORY_STARTS) >= 2
}

/// A file that only the old pack has.
fn untouched(rule: Rule, was: FilePart) -> FilePart {
    // A start that used it would have touched the others.
    let is_used = was.pieces.iter().all(is_silent);
    // A write to a page that is in memory has no event.
    let is_appended = is_used && was.pieces.iter().any(|piece| piece.how.has(How::APPENDED));
    let changes = match rule {
        Rule::NextStart { .. } => was.changes.after_start(is_appended && was.changes.is_in_last()),
        Rule::Union => was.changes,
    };
    FilePart { changes, pieces: join_data(rule, was.pieces, Vec::new(), is_used), ..was }
}

/// The ranges of a file. `is_used`: the new start seems to have used the file.
fn join_data(rule: Rule, was: Vec<Piece>, is: Vec<Piece>, is_used: bool) -> Vec<Piece> {
    // A page that was only ever added without an access is not reported once it is prefetched, so
    // its absence means nothing.
    join_pieces(rule, was, is, |old| is_used && is_silent(old))
}

fn join_metadata(
    rule: Rule,
    old: HashMap<u16, Vec<Piece>>,
    new: HashMap<u16, Vec<Piece>>,
    numbers: &OldNumbers,
) -> HashMap<u16, Vec<Piece>> {
    let mut both: HashMap<u16, (Vec<Piece>, Vec<Piece>)> = HashMap::new();
    for (number, was) in old {
        if let Some(now) = numbers.now(number) {
            both.entry(now).or_default().0.extend(was);
        }
    }
    for (number, is) in new {
        both.entry(number).or_default().1 = is;
    }
    let is_unseen = matches!(rule, Rule::NextStart { metadata_seen: false, .. });
    let join = |(number, (was, is))| (number, join_pieces(rule, was, is, |_| is_unseen));
    both.into_iter().map(join).collect()
}

/// The ranges of one file or device. An old range that `is_silent` may have been needed by the new
/// start without an event.
///
/// A file that only one side has is overlaid with nothing, which sorts its ranges.
fn join_pieces(
    rule: Rule,
    mut was: Vec<Piece>,
    mut is: Vec<Piece>,
    is_silent: impl Fn(&Piece) -> bool,
) -> Vec<Piece> {
    if rule == Rule::Union {
        make_comparable(&mut was, &mut is);
    }
    overlay(was, is, |old, new| join_piece(rule, old, new, &is_silent))
}

/// What is kept of a stretch of pages.
fn join_piece(
    rule: Rule,
    old: Option<Piece>,
    new: Option<Piece>,
    is_silent: impl Fn(&Piece) -> bool,
) -> Option<Piece> {
    // The latest start knows the time best, where that differs enough.
    let mut latest = new.or(old)?;
    if let Rule::NextStart { keep_time_us, .. } = rule
        && let Some(old) = old.filter(|old| old.at_us.abs_diff(latest.at_us) <= keep_time_us)
    {
        latest.at_us = old.at_us;
    }
    // A write to a page in memory has no event: what the latest start knows of is a later page.
    // Times of independent packs can't be compared.
    if rule != Rule::Union
        && let Some(old) = old.filter(|old| latest.how.has(How::APPENDED) && latest.how == old.how)
    {
        latest.at_us = latest.at_us.min(old.at_us);
    }
    // That a file is written says nothing of what is read of it, and the other way round.
    let differs =
        |(old, new): &(Piece, Piece)| old.how.is_only_written() != new.how.is_only_written();
    if let Some((old, new)) = old.zip(new).filter(differs)
        && let Rule::NextStart { .. } = rule
    {
        let history = old.history.after_start(false);
        let read = Some(Piece { history, ..old });
        let read = read.filter(|_| new.how.is_only_written() && rule.keeps(history));
        return Some(read.unwrap_or(new));
    }
    let before = old.map(|piece| piece.history).unwrap_or_default();
    let history = match rule {
        Rule::Union => before.union(latest.history),
        Rule::NextStart { .. } => {
            // Without information the start counts like the last one.
            let counts = new.is_some() || is_silent(&latest);
            before.after_start(counts && latest.history.is_in_last())
        }
    };
    let how = old.map_or(latest.how, |old| old.how | latest.how);
    rule.keeps(history).then_some(Piece { how, history, ..latest })
}

/// Makes the histories of independently learned packs comparable: repeats those of the pack with
/// fewer starts, so that its ranges do not seem seldom touched.
fn make_comparable(was: &mut [Piece], is: &mut [Piece]) {
    let known = |pieces: &[Piece]| pieces.iter().map(|p| p.history.first_seen()).max().unwrap_or(0);
    let (of_was, of_is) = (known(was), known(is));
    let longer = of_was.max(of_is);
    for (pieces, known) in [(was, of_was), (is, of_is)] {
        for piece in pieces {
            piece.history = piece.history.repeated(known, longer);
        }
    }
}

/// Removes files and file systems without ranges.
fn drop_empty(parts: &mut Parts) {
    parts.files.retain(|_, file| !file.pieces.is_empty());
    parts.metadata.retain(|_, pieces| !pieces.is_empty());
    let of_files = parts.files.values().map(|file| file.file_system);
    let used: BTreeSet<u16> = of_files.chain(parts.metadata.keys().copied()).collect();
    let mut all = std::mem::take(&mut parts.file_systems);
    parts.file_systems =
        used.iter().map(|old| std::mem::take(&mut all[usize::from(*old)])).collect();
    let numbers: HashMap<u16, u16> = used.into_iter().zip(0..).collect();
    for file in parts.files.values_mut() {
        file.file_system = numbers[&file.file_system];
    }
    parts.metadata = parts.metadata.drain().map(|(old, p)| (numbers[&old], p)).collect();
}

impl Rule {
    /// What is known of the joined pack as a whole.
    fn origin(self, old: &Origin, new: Origin) -> Origin {
        match self {
            Self::NextStart { .. } => {
                Origin { starts: old.starts.saturating_add(new.starts), ..new }
            }
            Self::Union => Origin {
                starts: old.starts.max(new.starts),
                lost_events: old.lost_events.max(new.lost_events),
                ..new
            },
        }
    }

    /// In which starts a file changed that is in both.
    fn changes(self, was: &FilePart, is: &FilePart) -> History {
        match self {
            Self::NextStart { .. } => changes_after(was, is),
            Self::Union => was.changes.union(is.changes),
        }
    }

    /// Whether a range with this history is kept.
    fn keeps(self, history: History) -> bool {
        match self {
            Self::NextStart { keep, .. } => history.count_in_last(keep) > 0,
            Self::Union => history != History::default(),
        }
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
