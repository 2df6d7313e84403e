//! Waits as slices of a track below that of their thread, and requests of devices as counters.

use super::packets::{Packets, Slice};
use super::thread_track;
use crate::export::waits::{file_of, in_flight};
use crate::recording::Recording;
use crate::waits::{Wait, Waits};
use headstart::host::id::Dev;
use std::collections::BTreeSet;
use std::io;

/// The track of the waits of a thread.
pub fn waits_track(thread: u32) -> u64 {
    3 << 32 | u64::from(thread)
}

/// The counter of the requests of a device.
pub fn device_track(device: Dev) -> u64 {
    4 << 32 | u64::from(device.0)
}

/// Writes all waits and requests.
pub fn write(packets: &mut Packets, recording: &Recording, waits: &Waits) -> io::Result<()> {
    let threads: BTreeSet<u32> = waits.waits.iter().map(|wait| wait.thread).collect();
    for thread in threads {
        packets.track(waits_track(thread), Some(thread_track(thread)), |track| {
            track.bytes(2, "waits");
        })?;
    }
    for wait in &waits.waits {
        slice(packets, wait, &file_of(recording, waits, wait))?;
    }
    for (device, counts) in in_flight(&waits.requests) {
        let track = device_track(device);
        packets.counter_track(track, &format!("requests in flight on {device}"))?;
        for (time, count) in counts {
            packets.counter(track, time, count)?;
        }
    }
    Ok(())
}

fn slice(packets: &mut Packets, wait: &Wait, file: &str) -> io::Result<()> {
    let short = file.rsplit('/').next().unwrap_or_default();
    packets.slice(&Slice {
        time: wait.start,
        end: Some(wait.end),
        track: waits_track(wait.thread),
        category: "wait",
        name: [wait.kind.name(), short].join(" ").trim_end(),
        texts: &[("kind", wait.kind.name()), ("file", file)],
        numbers: &[("offset", wait.offset), ("system call", wait.call.map(u64::from))],
    })
}
