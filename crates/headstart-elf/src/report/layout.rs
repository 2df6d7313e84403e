//! Where a file's parts are, and whether the kernel can map its code by large folios.
//!
//! A page-table entry for 2 MiB can map a folio of the page cache only where address and file
//! offset are equal modulo 2 MiB. The load bias of a program is a multiple of its segments'
//! `p_align` (Linux 5.10), that of a library mostly of 2 MiB already.

use crate::PAGE;
use crate::image::{Image, dynamic};
use serde::Serialize;

/// The size of a huge page on x86-64, and on aarch64 with pages of 4 KiB.
pub const HUGE: u64 = 2 << 20;

/// A loaded segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SegmentView {
    /// `r`, `w` and `x`, or `-`.
    pub flags: String,
    /// In the file.
    pub offset: u64,
    /// Without the load bias.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// `p_align`
    pub align: u64,
    /// The largest power of two, up to 2 MiB, modulo which address and offset are equal.
    pub congruent: u64,
}

/// How code can be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFolios {
    /// There is no whole 2 MiB of code.
    Small,
    /// By page-table entries for 2 MiB.
    Possible,
    /// Address and offset differ modulo 2 MiB.
    NotCongruent,
    /// The load bias of the program need not be a multiple of 2 MiB.
    NotAligned,
}

/// Which hash tables of symbols there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HashStyle {
    /// None.
    None,
    /// `DT_HASH`
    Sysv,
    /// `DT_GNU_HASH`
    Gnu,
    /// Both.
    Both,
}

/// The layout of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Layout {
    /// The loaded segments.
    pub segments: Vec<SegmentView>,
    /// How code can be mapped.
    pub large_folios: LargeFolios,
    /// Bytes of zeros in memory behind data from the file (`.bss`).
    pub bss_bytes: u64,
    /// How many of these are in the last page of the data, which the start writes to.
    pub bss_tail_bytes: u64,
    /// Entries that the dynamic section has room for.
    pub spare_dynamic_entries: u64,
    /// Hash tables of symbols.
    pub hash: HashStyle,
    /// Whether symbols are bound at the start (`BIND_NOW`).
    pub binds_now: bool,
    /// Libraries that it needs.
    pub needed: u64,
}

impl Layout {
    /// Of a file.
    pub fn of(image: &Image) -> Self {
        let segments: Vec<_> = image
            .loads()
            .map(|load| {
                let shift = load.address.wrapping_sub(load.offset);
                SegmentView {
                    flags: ["r", "w", "x"]
                        .into_iter()
                        .zip([4, 2, 1])
                        .map(|(letter, bit)| if load.flags & bit != 0 { letter } else { "-" })
                        .collect(),
                    offset: load.offset,
                    address: load.address,
                    file_size: load.file_size,
                    memory_size: load.memory_size,
                    align: load.align,
                    congruent: 1 << shift.trailing_zeros().min(HUGE.trailing_zeros()),
                }
            })
            .collect();
        let zeros = image.loads().filter(|load| load.memory_size > load.file_size);
        let (mut bss_bytes, mut bss_tail_bytes) = (0u64, 0u64);
        for load in zeros {
            let all = load.memory_size - load.file_size;
            bss_bytes = bss_bytes.saturating_add(all);
            bss_tail_bytes += all.min(load.file_end().wrapping_neg() % PAGE);
        }
        let has = |tag| image.tag(tag).is_some();
        let flag = |tag, bit| image.tag(tag).is_some_and(|flags| flags & bit != 0);
        Self {
            large_folios: large_folios(image),
            segments,
            bss_bytes,
            bss_tail_bytes,
            spare_dynamic_entries: image.dynamic.as_ref().map_or(0, dynamic::Dynamic::spare),
            hash: match (has(dynamic::HASH), has(dynamic::GNU_HASH)) {
                (false, false) => HashStyle::None,
                (true, false) => HashStyle::Sysv,
                (false, true) => HashStyle::Gnu,
                (true, true) => HashStyle::Both,
            },
            // DF_BIND_NOW, DF_1_NOW, DT_BIND_NOW.
            binds_now: flag(dynamic::FLAGS, 8) || flag(dynamic::FLAGS_1, 1) || has(24),
            needed: image.needed().len() as u64,
        }
    }
}

fn large_folios(image: &Image) -> LargeFolios {
    let code = image.loads().filter(|load| load.is_executable());
    let Some(code) = code.max_by_key(|load| load.file_size) else { return LargeFolios::Small };
    if code.address.wrapping_sub(code.offset) % HUGE != 0 {
        // Elsewhere it might have a whole one.
        let is_small = code.file_size < HUGE;
        return if is_small { LargeFolios::Small } else { LargeFolios::NotCongruent };
    }
    let first = code.address.checked_next_multiple_of(HUGE);
    let has_whole = first.and_then(|first| first.checked_add(HUGE));
    if has_whole.is_none_or(|end| end > code.file_end()) {
        return LargeFolios::Small;
    }
    let align = image.loads().map(|load| load.align).max().unwrap_or(0);
    let is_movable_program =
        image.kind == crate::image::FileKind::Shared && image.interpreter().is_some();
    // libc.so.6 can be started too, and is a library.
    let is_library = image.tag(dynamic::SONAME).is_some();
    if is_movable_program && !is_library && align < HUGE {
        return LargeFolios::NotAligned;
    }
    LargeFolios::Possible
}
