//! Packs the relative relocations of a finished program or library (RELA to `DT_RELR`), without
//! moving an address.
//!
//! ```text
//! bytes ──▶ select ──▶ plan ──▶ new bytes ──▶ proof ──▶ Repacked
//!           places     tables in              old and new, relocated,
//!                      the old one's room     compared
//! ```
//!
//! The room of the old table holds what is left of it, the packed table, the version needs with
//! `GLIBC_ABI_DT_RELR`, and zeros, which become a hole. Pure. The result is never returned
//! without its proof.

mod entries;
#[cfg(test)]
mod made;
pub mod plan;
pub mod proof;
pub mod refuse;
#[cfg(test)]
mod repack_tests;
mod sections;
mod select;
mod versions;

use crate::image::Image;
use plan::Plan;
use proof::Proof;
use refuse::Refusal;
use std::ops::Range;

/// A file whose relocations are packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repacked {
    /// All bytes of it.
    pub bytes: Vec<u8>,
    /// Zeros that need no room on a disk.
    pub hole: Range<u64>,
    /// What was done.
    pub change: Change,
    /// What was compared.
    pub proof: Proof,
}

/// What packing does to a file. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Change {
    /// Relocations that are packed.
    pub packed: u64,
    /// Relative relocations that can't be packed.
    pub relative_kept: u64,
    /// The RELA table before.
    pub rela_before: u64,
    /// The RELA table after.
    pub rela_after: u64,
    /// The packed table.
    pub relr: u64,
    /// Of the old table what nothing uses any more.
    pub saved: u64,
}

/// What packing a file would do, if anything becomes free. Without a proof, since there is no
/// result.
///
/// # Errors
/// The reason why it is not done.
pub fn change_of(image: &Image) -> Result<Change, Refusal> {
    Ok(Plan::of(image, 1)?.change)
}

/// Packs a file, if at least `minimum` bytes of its table become free.
///
/// # Errors
/// The reason why not.
pub fn repack(data: &[u8], minimum: u64) -> Result<Repacked, Refusal> {
    let image = Image::parse(data)?;
    let plan = Plan::of(&image, minimum)?;
    let bytes = plan.apply(data);
    let proof = proof::prove(data, &bytes).map_err(Refusal::Unproven)?;
    Ok(Repacked { bytes, hole: plan.hole, change: plan.change, proof })
}
