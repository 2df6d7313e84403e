//! How large trace buffers are, and how many raw pages are kept. Pure, but for the limits of this
//! machine.

use crate::host::cpus;
use crate::host::memory;
use crate::trace::tracefs::Tracefs;

/// Largest buffer of one CPU, in KiB: half a million events.
const MAX_BUFFER_KB: u32 = 32 * 1024;
/// The kernel's own, in KiB (`TRACE_BUF_SIZE_DEFAULT` of kernel/trace/trace.c).
pub(super) const DEFAULT_BUFFER_KB: u32 = 1408;
/// The next start has half of a buffer that was never this full, in percent: as full as it
/// has to be to wake the reader.
const SHRINK_PERCENT: u64 = 25;
/// Raw pages kept at most. 10 s of a start are far below; a start beyond it
/// counts as lossy rather than filling the memory.
pub(super) const MAX_BYTES: usize = 512 << 20;
/// One of so many bytes that may be filled may be buffers of the kernel, and one raw pages.
const SHARE: u64 = 4;

/// Raw pages are at most one of so many bytes that a control group leaves to cached pages: beyond
/// that the program would read again what they pushed out.
const SHARE_OF_ROOM: u64 = 64;

/// Whether so many bytes of raw pages are too much where a control group leaves so many bytes to
/// cached pages, if one has a limit.
pub(super) fn crowds_out(kept: usize, room: Option<u64>) -> bool {
    room.is_some_and(|room| kept as u64 > room / SHARE_OF_ROOM)
}

/// Whether a control group leaves so little to cached pages that what a buffer of the kernel's own
/// size holds when it is emptied first would be too much.
pub(super) fn is_pointless(room: Option<u64>) -> bool {
    crowds_out(DEFAULT_BUFFER_KB as usize * 1024 / 4, room)
}

/// How large the buffer of each CPU is, in KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferSize {
    /// The kernel's default, doubled when it fills up.
    Default,
    /// What an earlier start needed, doubled when it fills up.
    From(u32),
    /// This and no more, whatever is lost: how losses are provoked.
    Fixed(u32),
}

/// What bounds a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingLimits {
    /// How large the buffer of each CPU may get, in KiB.
    pub largest_kb: u32,
    /// Raw pages that are kept, in bytes. What comes later counts as lost.
    pub most: usize,
}

impl RecordingLimits {
    /// Here and now, for one of the recordings that share the memory. Only CPUs that are
    /// online have a buffer.
    pub fn here() -> Self {
        let recordings =
            Tracefs::mounted().ok().flatten().map_or(1, |tracefs| tracefs.recordings());
        Self::within(memory::budget() / recordings.max(1), cpus::online())
    }

    /// With buffers for so many CPUs, where `memory` bytes may be filled.
    pub fn within(memory: u64, cpus: usize) -> Self {
        let each_kb = memory / SHARE / 1024 / (cpus as u64).max(1);
        let largest_kb = u32::try_from(each_kb).unwrap_or(u32::MAX);
        let largest_kb = largest_kb.clamp(DEFAULT_BUFFER_KB, MAX_BUFFER_KB);
        let most = usize::try_from(memory / SHARE).unwrap_or(usize::MAX).min(MAX_BYTES);
        Self { largest_kb, most }
    }
}

/// The limits of the buffers of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Whether they may be resized during the recording.
    pub may_change: bool,
    /// What bounds them; looked up when the recording is under way where it is not known yet.
    pub bounds: Option<RecordingLimits>,
}

/// The buffer that the next start begins with, in KiB, 0 for the kernel's own, after one
/// whose last buffer was never fuller than so many bytes.
pub(super) fn needed_kb(buffer_kb: u32, fullest: u64) -> u32 {
    let is_too_large = fullest * 100 < u64::from(buffer_kb) * 1024 * SHRINK_PERCENT;
    let kb = if is_too_large { buffer_kb / 2 } else { buffer_kb };
    if kb > DEFAULT_BUFFER_KB { kb } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_recording_takes_no_more_than_its_share_of_the_memory() {
        for (name, memory, cpus, largest_kb, most) in [
            ("plenty", 64 << 30, 2, 32 * 1024, MAX_BYTES),
            ("many CPUs", 1024 * MIB, 128, 2048, 256 << 20),
            ("little memory", 8 * MIB, 2, 1408, 2 << 20),
            ("nothing is known of it", 0, 0, 1408, 0),
        ] {
            assert_eq!(
                RecordingLimits::within(memory, cpus),
                RecordingLimits { largest_kb, most },
                "{name}"
            );
        }
    }

    #[test]
    fn a_recording_leaves_a_control_group_nearly_all_of_its_cache() {
        for (kept, room, expected) in [
            (usize::MAX, None, false),
            (1 << 20, Some(64 << 20), false),
            ((1 << 20) + 1, Some(64 << 20), true),
            (1, Some(0), true),
            (0, Some(0), false),
        ] {
            assert_eq!(crowds_out(kept, room), expected, "{kept} {room:?}");
        }
        for (room, expected) in [(None, false), (Some(22 << 20), false), (Some(21 << 20), true)] {
            assert_eq!(is_pointless(room), expected, "{room:?}");
        }
    }

    #[test]
    fn a_buffer_that_was_never_a_quarter_full_is_halved_for_the_next_start() {
        for (name, buffer_kb, fullest, expected) in [
            ("the kernel's own", 1408, 100, 0),
            ("the kernel's own, full", 1408, 1408 << 10, 0),
            ("doubled and used", 2816, 1408 << 10, 2816),
            ("a quarter full", 4096, MIB, 4096),
            ("less", 32_768, MIB, 16_384),
            ("as small as the kernel's own", 2816, 100, 0),
        ] {
            assert_eq!(needed_kb(buffer_kb, fullest), expected, "{name}");
        }
    }
}
