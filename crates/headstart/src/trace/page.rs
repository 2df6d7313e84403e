//! Decodes one sub-buffer ("page") of the kernel's ring buffer into records.
//!
//! Pure over bytes and safe on any of them: a record that exceeds the page ends it with an error,
//! after the records before it were returned. [`super::decode`] interprets the records.
//!
//! Source: `kernel/trace/ring_buffer.c` (`rb_update_event`, `rb_event_length`, `rb_fix_abs_ts`,
//! `ring_buffer_read_page`).

use super::format::{Field, PageHeader};
use thiserror::Error;

/// Flag of `commit`: events were lost before this page.
const MISSED_EVENTS: u64 = 1 << 31;
/// Flag of `commit`: their number follows the data.
const MISSED_STORED: u64 = 1 << 30;
/// The bits of `commit` that are a length.
const COMMIT_MASK: u64 = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// Bits of a record header that hold the time delta.
const DELTA_BITS: u32 = 27;
/// Absolute time stamps carry 59 bits; the rest comes from the time before.
const ABSOLUTE_MASK: u64 = (1 << 59) - 1;

/// How many events the kernel dropped before a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// None.
    None,
    /// Some; the kernel had no room to say how many.
    Unknown,
    /// This many.
    Count(u64),
}

/// A page that contradicts its own header.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PageError {
    /// Shorter than the page header.
    #[error("The trace page is {0} bytes, shorter than its header")]
    Short(usize),
    /// The header claims more data than there is.
    #[error("The trace page claims {claimed} bytes of records and has {actual}")]
    Commit {
        /// Bytes in use according to the header.
        claimed: usize,
        /// Bytes behind the header.
        actual: usize,
    },
    /// A record reaches beyond the data.
    #[error("A trace record at byte {0} of its page reaches beyond the page")]
    Record(usize),
}

/// The used bytes of `page`; the rest is unused, and may be most of a page that was read before it
/// was full.
pub fn used(page: &[u8], header: &PageHeader) -> usize {
    let Some(commit) = header.commit.read(page) else { return page.len() };
    let records = (commit & COMMIT_MASK) as usize;
    let count = if commit & MISSED_STORED != 0 { header.commit.size } else { 0 };
    page.len().min(header.data.saturating_add(records).saturating_add(count))
}

/// Delivers the `(time, data)` of each data record of `page`, oldest first,
/// and returns how many events were lost before the page.
pub fn records<'a>(
    page: &'a [u8],
    header: &PageHeader,
    mut each: impl FnMut(u64, &'a [u8]),
) -> Result<Lost, PageError> {
    let short = PageError::Short(page.len());
    let (Some(mut time), Some(commit), Some(data)) =
        (header.timestamp.read(page), header.commit.read(page), page.get(header.data..))
    else {
        return Err(short);
    };
    let used = (commit & COMMIT_MASK) as usize;
    let records =
        data.get(..used).ok_or(PageError::Commit { claimed: used, actual: data.len() })?;
    let lost = match (commit & MISSED_EVENTS != 0, commit & MISSED_STORED != 0) {
        (false, _) => Lost::None,
        (true, false) => Lost::Unknown,
        // The number is a long, which has the size of `commit`.
        (true, true) => {
            let number = Field { offset: used, ..header.commit.clone() };
            number.read(data).map_or(Lost::Unknown, Lost::Count)
        }
    };
    let word = |at: usize| {
        let bytes = records.get(at..at.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let mut at = 0;
    while at < records.len() {
        let error = PageError::Record(at);
        let Some(head) = word(at) else { return Err(error) };
        // include/linux/ring_buffer.h: bit fields start at the low end on
        // little-endian machines and at the high end on big-endian ones.
        let (kind, delta) = if cfg!(target_endian = "little") {
            (head & 31, head >> 5)
        } else {
            (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1))
        };
        let second = word(at + 4);
        let wide = |high: u32| (u64::from(high) << DELTA_BITS) + u64::from(delta);
        match (kind, second) {
            // The rest of the page is unused.
            (TYPE_PADDING, _) if delta == 0 => return Ok(lost),
            // A discarded event.
            (TYPE_PADDING, Some(length)) => at = advance(at, 4, length).ok_or(error)?,
            (TYPE_TIME_EXTEND, Some(high)) => {
                time = time.wrapping_add(wide(high));
                at += 8;
            }
            (TYPE_TIME_STAMP, Some(high)) => {
                time = absolute(wide(high), time);
                at += 8;
            }
            (0, Some(length)) if length >= 4 => {
                time = time.wrapping_add(u64::from(delta));
                let end = advance(at, 4, length).ok_or(PageError::Record(at))?;
                each(time, records.get(at + 8..end).ok_or(error)?);
                at = end.next_multiple_of(4);
            }
            (1..TYPE_PADDING, _) => {
                time = time.wrapping_add(u64::from(delta));
                let end = advance(at, 4, kind * 4).ok_or(PageError::Record(at))?;
                each(time, records.get(at + 4..end).ok_or(error)?);
                at = end;
            }
            _ => return Err(error),
        }
    }
    Ok(lost)
}

fn advance(at: usize, head: usize, length: u32) -> Option<usize> {
    at.checked_add(head)?.checked_add(usize::try_from(length).ok()?)
}

/// Restores the top bits of an absolute time stamp from the time before it.
fn absolute(stamp: u64, before: u64) -> u64 {
    let full = stamp & ABSOLUTE_MASK | before & !ABSOLUTE_MASK;
    if before & !ABSOLUTE_MASK != 0 && full < before {
        full.wrapping_add(ABSOLUTE_MASK + 1)
    } else {
        full
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn header() -> PageHeader {
        let field = |offset| Field { name: String::new(), offset, size: 8 };
        PageHeader { timestamp: field(0), commit: field(8), data: 16 }
    }

    /// A page with these record bytes, and what follows them.
    fn page(time: u64, flags: u64, records: &[u8], after: &[u8]) -> Vec<u8> {
        let mut out = time.to_ne_bytes().to_vec();
        out.extend((records.len() as u64 | flags).to_ne_bytes());
        out.extend(records);
        out.extend(after);
        out
    }

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        (kind | delta << 5).to_le_bytes()
    }

    type Records = Vec<(u64, Vec<u8>)>;

    fn decode(page: &[u8]) -> (Records, Result<Lost, PageError>) {
        let mut out = Vec::new();
        let end = records(page, &header(), |time, data| out.push((time, data.to_vec())));
        (out, end)
    }

    #[test]
    fn every_record_type_moves_time_and_position_as_the_kernel_does() {
        let long: Vec<u8> = [&head(0, 5)[..], &(4 + 5u32).to_le_bytes(), b"hello\0\0\0"].concat();
        let cases: Vec<(&str, Vec<u8>, Records)> = vec![
            ("small", [&head(1, 7)[..], b"abcd"].concat(), vec![(1007, b"abcd".to_vec())]),
            ("long, unaligned", long, vec![(1005, b"hello".to_vec())]),
            (
                "time extend",
                [&head(30, 3)[..], &2u32.to_le_bytes(), &head(1, 1), b"abcd"].concat(),
                vec![(1000 + (2 << 27) + 3 + 1, b"abcd".to_vec())],
            ),
            (
                "absolute time",
                [&head(31, 9)[..], &1u32.to_le_bytes(), &head(1, 1), b"abcd"].concat(),
                vec![((1 << 27) + 9 + 1, b"abcd".to_vec())],
            ),
            (
                "discarded event",
                [&head(29, 1)[..], &8u32.to_le_bytes(), b"xxxx", &head(1, 2), b"abcd"].concat(),
                vec![(1002, b"abcd".to_vec())],
            ),
            (
                "unused rest",
                [&head(1, 2)[..], b"abcd", &head(29, 0), b"rubbish!"].concat(),
                vec![(1002, b"abcd".to_vec())],
            ),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(decode(&page(1000, 0, &bytes, b"")), (expected, Ok(Lost::None)), "{name}");
        }
    }

    #[test]
    fn absolute_times_keep_the_bits_that_do_not_fit() {
        assert_eq!(absolute(5, 3), 5);
        assert_eq!(absolute(5, 1 << 60), 1 << 60 | 5);
        assert_eq!(absolute(1, 1 << 60 | 7), (1 << 60) + (1 << 59) + 1);
    }

    #[test]
    fn losses_are_counted_exactly_where_the_kernel_stored_them() {
        let record = [&head(1, 0)[..], b"abcd"].concat();
        let count = 32_568u64.to_ne_bytes();
        for (flags, after, expected) in [
            (0, &count[..], Lost::None),
            (MISSED_EVENTS, &count, Lost::Unknown),
            (MISSED_EVENTS | MISSED_STORED, &count, Lost::Count(32_568)),
            (MISSED_EVENTS | MISSED_STORED, b"", Lost::Unknown),
        ] {
            assert_eq!(decode(&page(0, flags, &record, after)).1, Ok(expected));
        }
    }

    #[test]
    fn all_that_counts_of_a_page_is_used_and_the_rest_is_not() {
        let record = [&head(1, 0)[..], b"abcd"].concat();
        for (flags, used_bytes) in
            [(0, 24), (MISSED_EVENTS, 24), (MISSED_EVENTS | MISSED_STORED, 32)]
        {
            let whole = page(7, flags, &record, &[&9u64.to_ne_bytes()[..], &[0; 99]].concat());
            let trimmed = &whole[..used(&whole, &header())];
            assert_eq!(trimmed.len(), used_bytes);
            assert_eq!(decode(trimmed), decode(&whole));
        }
        for broken in [&b"short"[..], &page(0, 1 << 20, b"", b"x")] {
            assert_eq!(used(broken, &header()), broken.len());
        }
    }

    #[test]
    fn a_kernel_of_32_bits_stores_the_number_of_losses_in_32_bits() {
        let mut header = header();
        header.commit.size = 4;
        header.data = 12;
        let flags = (MISSED_EVENTS | MISSED_STORED) as u32;
        let page = [&[0; 8][..], &flags.to_ne_bytes(), &77u32.to_ne_bytes()].concat();
        assert_eq!(records(&page, &header, |_, _| ()), Ok(Lost::Count(77)));
    }

    #[test]
    fn a_record_that_leaves_the_page_is_an_error_after_those_before_it() {
        let bytes = [&head(1, 0)[..], b"abcd", &head(28, 0), b"abcd"].concat();
        let (records, end) = decode(&page(0, 0, &bytes, b""));
        assert_eq!((records.len(), end), (1, Err(PageError::Record(8))));
        assert_eq!(decode(b"short").1, Err(PageError::Short(5)));
        let mut claims = page(0, 0, b"", b"");
        claims[8] = 8;
        assert_eq!(decode(&claims).1, Err(PageError::Commit { claimed: 8, actual: 0 }));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode(&bytes);
            let _ = decode(&page(0, 0, &bytes, b""));
        }

        #[test]
        fn written_records_come_back(
            list in proptest::collection::vec(
                (0u32..1000, proptest::collection::vec(any::<u8>(), 1..200)), 0..20)
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            let mut time = 77;
            for (delta, data) in list {
                time += u64::from(delta);
                if data.len() % 4 == 0 && data.len() <= 112 {
                    bytes.extend(head(data.len() as u32 / 4, delta));
                } else {
                    bytes.extend(head(0, delta));
                    bytes.extend((data.len() as u32 + 4).to_le_bytes());
                }
                bytes.extend(&data);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
                expected.push((time, data));
            }
            prop_assert_eq!(decode(&page(77, 0, &bytes, b"")), (expected, Ok(Lost::None)));
        }
    }
}
