//! A capture as a value, and its file form: the kernel's pages verbatim, without their unused rest,
//! and all that is needed to decode them elsewhere, so that fixtures are real traces.
//!
//! Layout: magic (8 bytes), length of the JSON description (u32, little endian), the description,
//! then chunks of cpu (u32), length (u32) and bytes.

use super::EventKind;
use super::decode::Decoder;
use super::events::Events;
use super::format::FormatError;
use super::raw::RawPages;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"HSTRACE\x01";

/// Whether a file with this content is a trace, of whatever version.
pub fn is_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC[..7])
}

/// What is needed to decode a capture, and what only the driver knew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Text of `events/header_page`.
    pub header_page: String,
    /// Text of each traced event's `format`.
    pub formats: Vec<String>,
    /// Bytes of a page of the traced kernel.
    pub page_size: u64,
    /// Kernel release and machine, as uname(2) says.
    pub kernel: String,
    /// Device numbers (kernel encoding) of the block devices that carry a
    /// mounted file system: inserts into them are file-system metadata.
    pub block_devices: Vec<u32>,
    /// Threads whose events are not the program's (headstart's own).
    pub ignored_tids: Vec<i32>,
    /// Those of them that read files for the program: metadata that they read counts as read by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata_tids: Vec<i32>,
    /// How far the clock of the events is ahead of the monotonic one, in nanoseconds, if both were
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ns: Option<i64>,
    /// Events the kernel dropped in all, from the buffers' own statistics.
    pub lost: u64,
    /// Size the buffer of one CPU had to grow to, in KiB; 0 when the kernel's
    /// default did.
    pub buffer_kb: u32,
}

impl Description {
    /// The decoder for pages of the described kernel.
    pub fn decoder(&self) -> Result<Decoder, FormatError> {
        Decoder::new(&self.header_page, self.formats.iter().map(String::as_str), self.page_size)
    }
}

/// Raw pages of one start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capture {
    /// How to read them.
    pub description: Description,
    /// The pages.
    pub pages: RawPages,
}

/// A trace file that can't be used.
#[derive(Debug, Error)]
pub enum TraceFileError {
    /// Another format.
    #[error("This is no headstart trace file")]
    Magic,
    /// The file ends early.
    #[error("The trace file is cut off; record it again")]
    Truncated,
    /// The description is no valid JSON.
    #[error("The trace file's description is broken; record it again")]
    Description(#[from] serde_json::Error),
}

impl Capture {
    /// All events in the order of time.
    ///
    /// # Errors
    /// The description can't be understood.
    pub fn events(&self) -> Result<Events<'_>, FormatError> {
        Events::of(self)
    }

    /// Whether the kernel reports accesses, not only additions to the page cache.
    pub fn has_access_events(&self) -> bool {
        self.description
            .decoder()
            .is_ok_and(|decoder| decoder.knows(EventKind::Read) && decoder.knows(EventKind::Map))
    }

    /// The file form.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TraceFileError> {
        let description = serde_json::to_vec(&self.description)?;
        let mut out = MAGIC.to_vec();
        out.extend((description.len() as u32).to_le_bytes());
        out.extend(&description);
        for page in self.pages.iter() {
            let bytes = page.unpack();
            out.extend(page.cpu().to_le_bytes());
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        }
        Ok(out)
    }

    /// Reads the file form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TraceFileError> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(TraceFileError::Magic)?;
        let length = take_u32(&mut rest)?;
        let description = serde_json::from_slice(take(&mut rest, length)?)?;
        let mut pages = RawPages::default();
        while !rest.is_empty() {
            let (cpu, length) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
            pages.push(cpu, take(&mut rest, length)?);
        }
        Ok(Self { description, pages })
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u32) -> Result<&'a [u8], TraceFileError> {
    let (head, tail) = rest.split_at_checked(length as usize).ok_or(TraceFileError::Truncated)?;
    *rest = tail;
    Ok(head)
}

fn take_u32(rest: &mut &[u8]) -> Result<u32, TraceFileError> {
    let bytes = take(rest, 4)?;
    Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| TraceFileError::Truncated)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(pages: Vec<(u32, Vec<u8>)>) -> Capture {
        Capture {
            description: Description {
                header_page: "header".into(),
                formats: vec!["format".into()],
                page_size: 4096,
                kernel: "6.18 x86_64".into(),
                block_devices: vec![7 << 20],
                ignored_tids: vec![1],
                metadata_tids: vec![1],
                lost: 3,
                clock_ahead_ns: Some(-5),
                buffer_kb: 1408,
            },
            pages: pages.iter().map(|(cpu, page)| (*cpu, &page[..])).collect(),
        }
    }

    proptest! {
        #[test]
        fn a_capture_survives_its_file_form(
            pages in proptest::collection::vec(
                (0u32..8, proptest::collection::vec(any::<u8>(), 0..50)), 0..8)
        ) {
            let capture = capture(pages);
            prop_assert_eq!(Capture::from_bytes(&capture.to_bytes().unwrap()).unwrap(), capture);
        }

        #[test]
        fn a_file_cut_anywhere_is_refused_or_shorter(cut in 0usize..400) {
            let whole = capture(vec![(0, vec![1; 40]), (1, vec![2; 40])]).to_bytes().unwrap();
            let cut = cut.min(whole.len() - 1);
            if let Ok(shorter) = Capture::from_bytes(&whole[..cut]) {
                prop_assert!(shorter.pages.len() < 2);
            }
        }
    }
}
