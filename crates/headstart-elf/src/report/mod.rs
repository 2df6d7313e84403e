//! What a file costs at the start of a program. Pure.
//!
//! ```text
//! image ──▶ counts        relocations by kind, tables, pages they write
//!       ──▶ initializers  what runs before main, in order
//!       ──▶ layout        segments, alignment for large folios, .bss, dynamic section
//!                └─────▶ advice
//! ```

pub mod advice;
pub mod counts;
pub mod initializers;
pub mod layout;

use crate::image::Image;
use crate::repack::{self, Change};
use advice::Advice;
use counts::Counts;
use initializers::Initializer;
use layout::Layout;
use serde::Serialize;

/// What a file costs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Bytes of the file.
    pub size: u64,
    /// Its relocations.
    pub relocations: Counts,
    /// What packing would do (`headstart elf repack`), or why it can't be.
    #[serde(flatten)]
    pub packing: Packing,
    /// What runs before main, in order.
    pub initializers: Vec<Initializer>,
    /// Where things are.
    pub layout: Layout,
    /// What to do.
    pub advice: Vec<Advice>,
}

/// What packing a file would do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Packing {
    /// What it would do.
    pub repack: Option<Change>,
    /// Or why it can't be done.
    pub not_repacked: Option<String>,
}

impl Report {
    /// Of a file.
    pub fn of(image: &Image) -> Self {
        let packed = repack::change_of(image);
        let relocations = Counts::of(image);
        let initializers = initializers::list(image);
        let layout = Layout::of(image);
        let advice = advice::advise(image, &relocations, packed.as_ref().ok(), &layout);
        let packing = match packed {
            Ok(change) => Packing { repack: Some(change), not_repacked: None },
            Err(why) => Packing { repack: None, not_repacked: Some(why.to_string()) },
        };
        Self { size: image.data.len() as u64, relocations, packing, initializers, layout, advice }
    }

    /// Bytes that packing would save.
    pub fn saved(&self) -> u64 {
        self.packing.repack.map_or(0, |change| change.saved)
    }
}
