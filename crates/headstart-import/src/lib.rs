//! What other tools recorded of a start, as accesses to files.
//!
//! ```text
//! bytes of a file ──▶ detect ──▶ strace, trace_dat, perf_data, lists, ureadahead, android
//!                                     └──▶ Accesses ──▶ build ──▶ Pack
//!                                                        names on this machine
//! ```
//!
//! All of it is pure: parsers take bytes and return values, [`build`] takes what was found of the
//! names. Input is untrusted: nothing here panics on any of it, and what is kept of a file is bounded
//! by its length (`doc/import.md`). [`unpack`] decompresses.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods))] // Files of tests end.

pub mod accesses;
pub mod android;
pub mod build;
mod clock;
pub mod detect;
pub mod error;
mod fields;
pub mod lists;
pub mod perf_data;
pub mod strace;
pub mod trace_dat;
pub mod unpack;
pub mod ureadahead;

use accesses::Accesses;
use detect::Format;
use error::ImportError;

/// What a file of this format says of a start; `page_size` is that of this machine, for formats that
/// don't tell that of theirs.
///
/// # Errors
/// The file is damaged, or is of a version or machine that is not supported.
pub fn import(bytes: &[u8], format: Format, page_size: u64) -> Result<Accesses, ImportError> {
    match format {
        Format::Strace => strace::import(bytes, page_size),
        Format::TraceDat => trace_dat::import(bytes),
        Format::PerfData => perf_data::import(bytes, page_size),
        Format::List => lists::import(bytes, page_size),
        Format::Fatrace => lists::import_fatrace(bytes, page_size),
        Format::Ureadahead => ureadahead::import(bytes, page_size),
        Format::AndroidPrefetch => android::import_records(bytes, page_size),
        Format::Iorap => android::import_iorap(bytes, page_size),
    }
}
