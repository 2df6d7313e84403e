//! Builds a pack from parts in any order, and takes one apart again. Pure.

use super::paths::{NodeId, PathInterner, PathTable};
use super::pieces::Piece;
use super::{File, FileSystem, History, Identity, MetadataRange, Origin, Pack, Range};
use crate::host::range::PageRange;
use crate::host::usage::How;
use std::collections::HashMap;

/// The most file systems of a pack. One start uses a handful, a host with many containers some
/// hundred.
pub const MAX_FILE_SYSTEMS: usize = 4096;

/// A pack's file systems and everything on them, by name instead of index. The
/// names are kept apart from it, so that several may share them.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Where and when it was learned.
    pub origin: Origin,
    /// The file systems.
    pub file_systems: Vec<FileSystem>,
    /// Files by the node of their path.
    pub files: HashMap<NodeId, FilePart>,
    /// Metadata by index of the file system.
    pub metadata: HashMap<u16, Vec<Piece>>,
}

/// One file of [`Parts`].
#[derive(Clone, Debug)]
pub struct FilePart {
    /// Index of its file system.
    pub file_system: u16,
    /// What it was when it was learned.
    pub identity: Identity,
    /// Which of the starts wrote it, or found it changed: bit 0 is the last.
    pub changes: History,
    /// Its ranges.
    pub pieces: Vec<Piece>,
}

impl FilePart {
    /// Whether all of its ranges were learned from an earlier file at its path.
    pub fn is_assumed(&self) -> bool {
        self.pieces.iter().any(|piece| piece.how.has(How::INFERRED))
    }
}

impl Parts {
    /// The index of a file system, which is added when it is new; `None` when
    /// there are too many.
    pub fn file_system(&mut self, wanted: &FileSystem) -> Option<u16> {
        let known = self.file_systems.iter().position(|fs| fs.is(wanted));
        let at = known.or_else(|| {
            let new = self.file_systems.len();
            (new < MAX_FILE_SYSTEMS).then(|| self.file_systems.push(wanted.clone()))?;
            Some(new)
        });
        u16::try_from(at?).ok()
    }

    /// The pack, in the order of first touches. `names` has those of the files.
    pub fn build(mut self, names: &PathTable) -> Pack {
        let first_touch = |part: &FilePart| part.pieces.iter().map(|piece| piece.at_us).min();
        let mut order = Vec::with_capacity(self.files.len());
        order
            .extend(self.files.iter().filter_map(|(node, part)| Some((first_touch(part)?, *node))));
        order.sort_unstable();
        let (paths, nodes) = names.pick(order.iter().map(|(_, node)| *node));
        let ranges = self.files.values().map(|part| part.pieces.len()).sum();
        let mut pack = Pack {
            origin: self.origin,
            file_systems: self.file_systems,
            paths,
            files: Vec::with_capacity(order.len()),
            ranges: Vec::with_capacity(ranges),
            metadata: Vec::new(),
        };
        // Not all at once out of the map, which would take as much memory again.
        for ((_, was), node) in order.into_iter().zip(nodes) {
            let Some((part, node)) = self.files.remove(&was).zip(node) else { continue };
            let Ok(file) = u32::try_from(pack.files.len()) else { break };
            let FilePart { file_system, identity, changes, pieces } = part;
            pack.files.push(File { file_system, node, identity, changes });
            pack.ranges.extend(pieces.iter().flat_map(limited).map(|p| Range {
                file,
                first: p.pages.first,
                pages: p.pages.count() as u32,
                at_us: p.at_us,
                how: p.how,
                history: p.history,
            }));
        }
        pack.ranges.sort_by_key(|r| (r.at_us, r.file, r.first));
        for (file_system, pieces) in self.metadata {
            pack.metadata.extend(pieces.iter().flat_map(limited).map(|p| MetadataRange {
                file_system,
                first: p.pages.first,
                pages: p.pages.count() as u32,
                at_us: p.at_us,
                history: p.history,
            }));
        }
        pack.metadata.sort_by_key(|r| (r.at_us, r.file_system, r.first));
        pack
    }

    /// Takes a pack apart; its names join `names`.
    pub fn of(pack: &Pack, names: &mut PathInterner) -> Self {
        let nodes = names.adopt(&pack.paths);
        // Most files have one range, and a list takes room for four.
        let mut counts = vec![0; pack.files.len()];
        pack.ranges.iter().for_each(|r| counts[r.file as usize] += 1);
        let mut pieces: Vec<_> = counts.into_iter().map(Vec::with_capacity).collect();
        for r in &pack.ranges {
            let Range { at_us, how, history, .. } = *r;
            pieces[r.file as usize].push(Piece { pages: r.page_range(), at_us, how, history });
        }
        let mut out = Self {
            origin: pack.origin.clone(),
            file_systems: pack.file_systems.clone(),
            files: HashMap::with_capacity(pack.files.len()),
            ..Self::default()
        };
        for (file, pieces) in pack.files.iter().zip(pieces) {
            let File { file_system, identity, node, changes } = *file;
            let Some(node) = nodes.get(node.0 as usize).copied().flatten() else { continue };
            out.files.insert(node, FilePart { file_system, identity, changes, pieces });
        }
        for r in &pack.metadata {
            let MetadataRange { file_system, at_us, history, .. } = *r;
            let piece = Piece { pages: r.page_range(), at_us, how: How::READ, history };
            out.metadata.entry(file_system).or_default().push(piece);
        }
        out
    }
}

/// A piece in lengths that a range can hold.
fn limited(piece: &Piece) -> impl Iterator<Item = Piece> + use<> {
    let piece = *piece;
    piece.pages.iter().step_by(u32::MAX as usize).map(move |first| Piece {
        pages: PageRange::of(first, u32::MAX.into()).within(piece.pages),
        ..piece
    })
}
