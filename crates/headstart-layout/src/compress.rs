//! Compression of what is laid out on btrfs: how much smaller that gets. A driver with a pure part.
//!
//! The kernel compresses extents of at most 128 KiB each, and a read of one page reads all of its extent.
//! A sample is compressed in the same steps by deflate, which was within 3 % of zstd at level 3 for libraries of
//! LibreOffice and LLVM, so that a plan needs no root, writes nothing, and no C library is needed.

use super::content::read_at_most;
use super::examine::Found;
use super::plan::{Piece, Plan};
use headstart::host::range::ByteRange;
use headstart_sys::fiemap::Extent;
use miniz_oxide::deflate::compress_to_vec;
use serde::Serialize;
use std::fs::File;
use std::path::Path;

/// Bytes of a file in one compressed extent, at most (`BTRFS_MAX_UNCOMPRESSED`).
const EXTENT: u64 = 128 << 10;
/// Extents begin and end at whole blocks, in bytes.
const BLOCK: u64 = 4096;
/// How many extents are compressed for a sample.
const EXTENTS: u64 = 64;
/// The level of deflate.
const LEVEL: u8 = 6;

/// How much smaller a sample got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Sample {
    /// Bytes of the sample.
    pub bytes: u64,
    /// What they take compressed.
    pub compressed: u64,
}

impl Sample {
    /// Of ranges of a plan, spread evenly over all of them. What can't be read is skipped.
    pub fn of(root: &Path, found: &Found, plan: &Plan) -> Self {
        let mut out = Self::default();
        for (file, range) in chosen(plan) {
            let Some(file) = found.files.get(file) else { continue };
            let opened = File::open(root.join(&file.path));
            if let Ok(bytes) = opened.and_then(|file| read_at_most(&file, range)) {
                out.add(&bytes);
            }
        }
        out
    }

    fn add(&mut self, bytes: &[u8]) {
        let whole = (bytes.len() as u64).next_multiple_of(BLOCK);
        let compressed = (compress_to_vec(bytes, LEVEL).len() as u64).next_multiple_of(BLOCK);
        self.bytes += whole;
        self.compressed += compressed.min(whole);
    }

    /// What so many bytes take, compressed as the sample was: whole blocks.
    pub fn shrunk(&self, bytes: u64) -> u64 {
        let (bytes, all) = (u128::from(bytes), u128::from(self.bytes.max(1)));
        let part = if self.bytes == 0 {
            bytes
        } else {
            (bytes * u128::from(self.compressed)).div_ceil(all)
        };
        u64::try_from(part).unwrap_or(u64::MAX).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
    }
}

impl Sample {
    /// Where the pieces of a plan lie if they are compressed so and follow each other from a place on.
    pub fn placed(&self, plan: &Plan, mut at: u64) -> Vec<Vec<Extent>> {
        let place = |piece: &Piece| {
            let (physical, length) = (at, self.shrunk(piece.bytes.length()));
            at = at.saturating_add(length);
            vec![Extent { logical: piece.bytes.offset, physical, length }]
        };
        plan.pieces.iter().map(place).collect()
    }
}

/// Files and ranges of a sample: as many extents as are wanted, at equal distances in all that is planned.
fn chosen(plan: &Plan) -> Vec<(usize, ByteRange)> {
    let extents = plan.pieces.iter().flat_map(|piece| {
        let ByteRange { offset, end } = piece.bytes;
        let begins = (offset..end).step_by(EXTENT as usize);
        begins.map(move |at| (piece.file, ByteRange { offset: at, end: end.min(at + EXTENT) }))
    });
    let all: Vec<_> = extents.collect();
    all.iter().step_by(all.len().div_ceil(EXTENTS as usize).max(1)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_whole_blocks_and_never_more_than_it_has() {
        let mut sample = Sample::default();
        assert_eq!(sample.shrunk(10_000), 12_288);
        sample.add(&[7; 100_000]);
        assert_eq!(sample, Sample { bytes: 102_400, compressed: 4096 });
        let noise: Vec<u8> =
            (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut hard = Sample::default();
        hard.add(&noise[..4096]);
        assert_eq!(hard.compressed, hard.bytes);
        let half = Sample { bytes: 1 << 20, compressed: 1 << 19 };
        assert_eq!(
            (half.shrunk(1 << 30), half.shrunk(1), half.shrunk(u64::MAX)),
            (1 << 29, 4096, 1 << 63)
        );
    }

    #[test]
    fn a_sample_is_spread_over_all_of_a_plan() {
        let piece = |file: usize, length: u64| Piece {
            file,
            bytes: ByteRange::of(4096, length),
            old: vec![Extent { logical: 4096, physical: 0, length }],
            donor: 0,
        };
        let plan = Plan {
            pieces: vec![piece(0, 64 << 20), piece(1, 5000)],
            donor_bytes: 0,
            ..Plan::default()
        };
        let found = chosen(&plan);
        assert!(
            (EXTENTS as usize / 2..=EXTENTS as usize).contains(&found.len()),
            "{}",
            found.len()
        );
        assert!(found.iter().all(|(_, range)| range.length() <= EXTENT));
        let small = Plan { pieces: vec![piece(1, 5000)], donor_bytes: 0, ..Plan::default() };
        assert_eq!(chosen(&small), [(1, ByteRange { offset: 4096, end: 9096 })]);
        assert!(chosen(&Plan::default()).is_empty());
    }
}
