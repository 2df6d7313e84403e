//! The pages of one CPU, unpacked a chunk at a time.

use crate::fields::Fields;
use crate::unpack::{Compression, unpack};
use std::borrow::Cow;

/// No chunk is larger: trace-cmd compresses ten pages at a time.
const LARGEST: usize = 1 << 20;

/// A chunk that can't be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

/// What is left of the trace of a CPU.
#[derive(Clone, Debug)]
pub(super) struct Chunks<'a> {
    rest: Fields<'a>,
    /// `None` for a trace that is not compressed.
    packed: Option<(Compression, u32)>,
}

impl<'a> Chunks<'a> {
    /// A trace that is not compressed.
    pub(super) fn whole(trace: &'a [u8]) -> Self {
        Self { rest: Fields(trace), packed: None }
    }

    /// A compressed one: the number of chunks, and of each its size, that of its content, and it.
    pub(super) fn compressed(trace: &'a [u8], compression: Compression) -> Option<Self> {
        let mut rest = Fields(trace);
        let count = rest.u32()?;
        Some(Self { rest, packed: Some((compression, count)) })
    }

    /// Its bytes in the file.
    pub(super) fn bytes(&self) -> usize {
        self.rest.0.len()
    }

    /// The next chunk; `limit` is what it may take. After a broken one there is none.
    pub(super) fn next(&mut self, limit: usize) -> Option<Result<Cow<'a, [u8]>, Broken>> {
        let Some((compression, left)) = &mut self.packed else {
            let trace = std::mem::take(&mut self.rest.0);
            return (!trace.is_empty()).then(|| Ok(trace.into()));
        };
        *left = left.checked_sub(1)?;
        let (rest, compression) = (&mut self.rest, *compression);
        let mut chunk = || {
            let (packed, unpacked) = (rest.u32()?, usize::try_from(rest.u32()?).ok()?);
            let content = rest.take(packed.into())?;
            (unpacked <= LARGEST.min(limit)).then_some(())?;
            unpack(content, compression, unpacked)
        };
        let Some(content) = chunk() else {
            *left = 0;
            return Some(Err(Broken));
        };
        Some(Ok(content.into()))
    }
}
