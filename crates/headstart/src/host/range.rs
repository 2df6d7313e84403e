//! Parts of a file or a block device, in pages and in bytes, and the conversions between them.
//! Pure.
//!
//! Both are half-open. Values from files and the kernel may be anything, so nothing overflows: an
//! end is at most `u64::MAX`, and a range that ends before it begins is empty. Packs, JSON
//! documents and kernel interfaces have their own forms, which are made from these.

use std::ops::Range;

/// A range of pages, by their index.
///
/// ```
/// use headstart::host::range::PageRange;
/// let pages = PageRange::of(2, 3);
/// assert_eq!((pages.count(), pages.bytes(4096).length()), (3, 12288));
/// assert_eq!(pages.bytes(4096).pages(4096), pages);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PageRange {
    /// First page.
    pub first: u64,
    /// The page behind the last.
    pub end: u64,
}

/// A range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// The byte behind the last.
    pub end: u64,
}

impl PageRange {
    /// So many pages from `first` on.
    pub const fn of(first: u64, pages: u64) -> Self {
        Self { first, end: first.saturating_add(pages) }
    }

    /// The pages of the first `length` bytes of a file.
    pub const fn of_length(length: u64, page_size: u64) -> Self {
        Self { first: 0, end: length.div_ceil(page_size) }
    }

    /// How many pages it has.
    pub const fn count(self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// The pages that are in both.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), end: self.end.min(other.end) }
    }

    /// Its bytes, with pages of so many.
    pub const fn bytes(self, page_size: u64) -> ByteRange {
        let (offset, end) =
            (self.first.saturating_mul(page_size), self.end.saturating_mul(page_size));
        ByteRange { offset, end }
    }

    /// Each of its pages.
    pub fn iter(self) -> Range<u64> {
        self.first..self.end
    }
}

impl ByteRange {
    /// So many bytes from `offset` on.
    pub const fn of(offset: u64, length: u64) -> Self {
        Self { offset, end: offset.saturating_add(length) }
    }

    /// How many bytes it has.
    pub const fn length(self) -> u64 {
        self.end.saturating_sub(self.offset)
    }

    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.offset >= self.end
    }

    /// The pages of so many bytes that hold any of it.
    pub const fn pages(self, page_size: u64) -> PageRange {
        PageRange { first: self.offset / page_size, end: self.end.div_ceil(page_size) }
    }
}

impl From<Range<u64>> for PageRange {
    fn from(pages: Range<u64>) -> Self {
        Self { first: pages.start, end: pages.end }
    }
}

impl From<Range<u64>> for ByteRange {
    fn from(bytes: Range<u64>) -> Self {
        Self { offset: bytes.start, end: bytes.end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pages_come_back_from_bytes_and_bytes_lie_in_their_pages(
            first in 0u64..1 << 40, pages in 1u64..1 << 20, shift in 12u32..17,
            cut in 0u64..1 << 12,
        ) {
            let (page, range) = (1u64 << shift, PageRange::of(first, pages));
            let bytes = range.bytes(page);
            prop_assert_eq!((range.count(), bytes.length()), (pages, pages * page));
            prop_assert_eq!(bytes.pages(page), range);
            prop_assert_eq!(PageRange::of_length(bytes.end, page), PageRange::of(0, range.end));
            let part = ByteRange { offset: bytes.offset + cut, end: bytes.end - cut };
            prop_assert_eq!(part.pages(page), range.within(part.pages(page)));
            let holding = part.pages(page).bytes(page);
            prop_assert!(part.is_empty() || holding.offset <= part.offset && part.end <= holding.end);
            prop_assert!(holding.length() < part.length() + 2 * page);
        }

        #[test]
        fn a_page_is_within_both_exactly_if_it_is_in_each(
            a in (0u64..30, 0u64..9), b in (0u64..30, 0u64..9),
        ) {
            let (a, b) = (PageRange::of(a.0, a.1), PageRange::of(b.0, b.1));
            let common: Vec<u64> = a.within(b).iter().collect();
            let expected: Vec<u64> = a.iter().filter(|page| b.iter().contains(page)).collect();
            prop_assert_eq!(a.within(b).count(), expected.len() as u64);
            prop_assert_eq!(a.within(b).is_empty(), expected.is_empty());
            prop_assert_eq!(common, expected);
        }

        #[test]
        fn no_numbers_make_it_panic(
            a in any::<(u64, u64)>(), b in any::<(u64, u64)>(), page in 1u64..,
        ) {
            let (x, y) = (PageRange::from(a.0..a.1), PageRange::of(b.0, b.1));
            prop_assert!(x.within(y).count() <= x.count().min(y.count()));
            prop_assert!(x.is_empty() || x.bytes(page).pages(page).count() <= x.count());
            prop_assert!(ByteRange::of(b.0, b.1).length() <= b.1);
            prop_assert_eq!(ByteRange::from(a.0..a.1).is_empty(), a.0 >= a.1);
        }
    }
}
