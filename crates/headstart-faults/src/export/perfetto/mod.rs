//! A trace of TrackEvent packets for Perfetto (<https://perfetto.dev/docs/reference/trace-packet-proto>):
//! a track for each thread, with a slice for each fault, and the number of major faults as a counter;
//! waits and devices where they were recorded.

mod packets;
#[cfg(test)]
mod tests;
mod waits;

use super::Began;
use super::places::{Places, Spelled};
use crate::csv::{cause, kind};
use crate::recording::{End, Fault, Recording};
use crate::tables::SectionsOf;
use headstart::host::names;
pub use packets::BEGIN;
use packets::{Packets, Slice, packet};
use std::io::{self, Write};

/// `BUILTIN_CLOCK_*`
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

/// The counter of major faults.
const MAJOR: u64 = 2;

/// Numbers of the tracks of processes and threads.
fn process_track(number: u32) -> u64 {
    1 << 32 | u64::from(number)
}

fn thread_track(number: u32) -> u64 {
    2 << 32 | u64::from(number)
}

/// Writes a recording, piece by piece.
///
/// # Errors
/// Those of the writer.
pub fn write(
    out: &mut dyn Write,
    recording: &Recording,
    sections: &SectionsOf,
    began: Began,
) -> io::Result<()> {
    let mut packets = Packets::begin(out)?;
    clocks(&mut packets, began)?;
    tracks(&mut packets, recording)?;
    let mut places = Places::new(recording, sections);
    let mut major = 0;
    packets.counter(MAJOR, began.monotonic_ns, major)?;
    for fault in &recording.faults {
        let end = fault.time.saturating_add(fault.latency);
        slice(&mut packets, &mut places, fault, end)?;
        if fault.end == End::Major {
            major += 1;
            packets.counter(MAJOR, end, major)?;
        }
    }
    match &recording.waits {
        Some(waits) => waits::write(&mut packets, recording, waits),
        None => Ok(()),
    }
}

/// Times are those of the monotonic clock, of which one is known as time of day.
fn clocks(packets: &mut Packets, began: Began) -> io::Result<()> {
    packets.packet(|packet| {
        packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (clock, ns) in [(MONOTONIC, began.monotonic_ns), (REALTIME, began.unix_ns)] {
                snapshot.message(1, |message| {
                    message.number(1, clock);
                    message.number(2, ns);
                });
            }
            snapshot.number(2, MONOTONIC);
        });
        packet.message(packet::DEFAULTS, |defaults| defaults.number(packet::CLOCK, MONOTONIC));
    })
}

/// Describes the tracks.
fn tracks(packets: &mut Packets, recording: &Recording) -> io::Result<()> {
    let number = |number: i32| i64::from(number).cast_unsigned();
    for (at, process) in (0..).zip(&recording.processes) {
        packets.track(process_track(at), None, |track| {
            track.message(3, |message| {
                message.number(1, number(process.pid));
                message.bytes(6, names::name(recording.name(process.name)));
            });
        })?;
    }
    for (at, thread) in (0..).zip(&recording.threads) {
        let Some(process) = recording.processes.get(thread.process as usize) else { continue };
        packets.track(thread_track(at), Some(process_track(thread.process)), |track| {
            track.message(4, |message| {
                message.number(1, number(process.pid));
                message.number(2, number(thread.tid));
                message.bytes(5, names::name(recording.name(thread.name)));
            });
        })?;
    }
    packets.counter_track(MAJOR, "major faults")
}

/// Adds a fault; one without an end that is known is a point in time.
fn slice(packets: &mut Packets, places: &mut Places, fault: &Fault, end: u64) -> io::Result<()> {
    let (place, offset) = places.of(fault);
    let Spelled { file, segment, section } = &places.spelled()[place];
    let short = file.rsplit('/').next().unwrap_or_default();
    let name = [kind(fault.end), short, section].join(" ");
    packets.slice(&Slice {
        time: fault.time,
        end: fault.end.is_known().then_some(end),
        track: thread_track(fault.thread),
        category: "fault",
        name: name.trim_end(),
        texts: &[
            ("kind", kind(fault.end)),
            ("cause", cause(fault.cause)),
            ("file", file),
            ("segment", segment),
            ("section", section),
        ],
        numbers: &[("offset", offset), ("address", Some(fault.address)), ("ip", Some(fault.ip))],
    })
}
