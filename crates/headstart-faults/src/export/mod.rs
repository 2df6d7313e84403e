//! A recording in the formats of other tools: [`firefox`] for the Firefox Profiler, [`perfetto`] for
//! Perfetto, [`folded`] for flame graphs. Pure but for the writer that each is given.
//!
//! No call stacks are recorded: where others have functions, a fault has file, segment and section.

pub mod firefox;
pub mod folded;
pub mod perfetto;
mod places;
mod protobuf;
mod waits;

#[cfg(test)]
mod test_recordings;

/// When a recording began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Began {
    /// In ns of the monotonic clock.
    pub monotonic_ns: u64,
    /// In ns of Unix time.
    pub unix_ns: u64,
}
