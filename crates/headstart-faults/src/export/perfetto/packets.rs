//! Packets of a trace, one after another: tracks, counters and slices, with texts that are written once.

use crate::export::protobuf::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// Fields of a packet.
pub mod packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const CLOCK: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK: u32 = 60;
}

/// Fields of a track event.
pub mod event {
    pub const CATEGORY: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
}

/// Types of track events.
pub const SLICE_BEGIN: u64 = 1;
pub const SLICE_END: u64 = 2;
pub const INSTANT: u64 = 3;
pub const COUNTER: u64 = 4;

/// That a packet needs what others of the sequence say.
pub const NEEDED: u64 = 2;

/// Tables of strings in the interned data, and their fields.
pub const CATEGORIES: u32 = 1;
pub const NAMES: u32 = 2;
pub const ANNOTATIONS: u32 = 3;
pub const TEXTS: u32 = 29;

/// The track that counters are below.
pub const ROOT: u64 = 1;

/// How each of these files begins: the first packet is the same in all.
pub const BEGIN: &[u8] = b"\x0a\x1b\x50\x01\x68\x01\xe2\x03\x14\x08\x01\x12\x10headstart faults";

/// A slice, or a point in time, of a track.
pub struct Slice<'a> {
    /// When it begins, in ns.
    pub time: u64,
    /// When it ends; a point in time has no end.
    pub end: Option<u64>,
    /// The track.
    pub track: u64,
    /// Its category.
    pub category: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Arguments that are texts; empty ones are dropped.
    pub texts: &'a [(&'a str, &'a str)],
    /// Arguments that are numbers, which are shown in hexadecimal.
    pub numbers: &'a [(&'a str, Option<u64>)],
}

/// A trace that is written packet by packet.
pub struct Packets<'a> {
    out: &'a mut dyn Write,
    interned: Interned,
}

impl<'a> Packets<'a> {
    /// Begins a trace.
    pub fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(BEGIN)?;
        Ok(Self { out, interned: Interned::default() })
    }

    /// Writes a packet of the sequence.
    pub fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.message(1, |packet| {
            packet.number(packet::SEQUENCE, 1);
            packet.number(packet::FLAGS, NEEDED);
            fill(packet);
        });
        self.out.write_all(&trace.0)
    }

    /// Adds a counter.
    pub fn counter_track(&mut self, track: u64, name: &str) -> io::Result<()> {
        self.track(track, Some(ROOT), |track| {
            track.bytes(2, name);
            // Its unit is a number.
            track.message(8, |counter| counter.number(3, 2));
        })
    }

    /// Adds a track.
    pub fn track(
        &mut self,
        uuid: u64,
        parent: Option<u64>,
        fill: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.packet(|packet| {
            packet.message(packet::TRACK, |track| {
                track.number(1, uuid);
                parent.into_iter().for_each(|parent| track.number(5, parent));
                fill(track);
            });
        })
    }

    /// Adds a value of a counter.
    pub fn counter(&mut self, track: u64, time: u64, value: u64) -> io::Result<()> {
        self.event(time, COUNTER, track, |event| event.number(event::COUNTER_VALUE, value))
    }

    fn event(
        &mut self,
        time: u64,
        kind: u64,
        track: u64,
        fill: impl FnOnce(&mut Message),
    ) -> io::Result<()> {
        self.packet(|packet| {
            packet.number(packet::TIMESTAMP, time);
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, kind);
                event.number(event::TRACK, track);
                fill(event);
            });
        })
    }

    /// Adds a slice.
    pub fn slice(&mut self, slice: &Slice) -> io::Result<()> {
        let (mut event, mut new) = (Message::default(), Message::default());
        let interned = &mut self.interned;
        event.number(event::TYPE, if slice.end.is_some() { SLICE_BEGIN } else { INSTANT });
        event.number(event::TRACK, slice.track);
        event.number(event::CATEGORY, interned.number(&mut new, CATEGORIES, slice.category));
        event.number(event::NAME, interned.number(&mut new, NAMES, slice.name));
        for (key, text) in slice.texts.iter().filter(|(_, text)| !text.is_empty()) {
            let key = interned.number(&mut new, ANNOTATIONS, key);
            let text = interned.number(&mut new, TEXTS, text);
            event.message(event::ANNOTATION, |annotation| {
                annotation.number(1, key);
                annotation.number(17, text);
            });
        }
        for (key, number) in slice.numbers {
            let Some(number) = number else { continue };
            let key = interned.number(&mut new, ANNOTATIONS, key);
            event.message(event::ANNOTATION, |annotation| {
                annotation.number(1, key);
                // A pointer.
                annotation.number(7, *number);
            });
        }
        self.packet(|packet| {
            packet.number(packet::TIMESTAMP, slice.time);
            if !new.0.is_empty() {
                packet.bytes(packet::INTERNED, &new.0);
            }
            packet.bytes(packet::TRACK_EVENT, &event.0);
        })?;
        match slice.end {
            Some(end) => self.event(end.max(slice.time), SLICE_END, slice.track, |_| ()),
            None => Ok(()),
        }
    }
}

/// Numbers of texts, by the table that they are in.
#[derive(Default)]
struct Interned(HashMap<u32, HashMap<String, u64>>);

impl Interned {
    /// The number of a text in a table; a new one is added to `new`.
    fn number(&mut self, new: &mut Message, table: u32, text: &str) -> u64 {
        let known = self.0.entry(table).or_default();
        if let Some(number) = known.get(text) {
            return *number;
        }
        // 0 is no number.
        let number = known.len() as u64 + 1;
        known.insert(text.to_owned(), number);
        new.message(table, |entry| {
            entry.number(1, number);
            entry.bytes(2, text);
        });
        number
    }
}
