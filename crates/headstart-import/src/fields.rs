//! Numbers and texts, one after another, in the byte order of this machine. Nothing is read beyond
//! the end.

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }
    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_ne_bytes)
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }
    /// So many bytes.
    pub(crate) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(head)
    }
    /// Bytes up to a NUL, which is skipped.
    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(text)
    }
    /// Skips these bytes; `None` if others are there.
    pub(crate) fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(bytes)?;
        Some(())
    }
}

/// The bytes from an offset on.
pub(crate) fn from(bytes: &[u8], offset: u64) -> Option<Fields<'_>> {
    bytes.get(usize::try_from(offset).ok()?..).map(Fields)
}
