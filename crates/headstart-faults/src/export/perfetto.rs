//! A trace of TrackEvent packets for Perfetto (<https://perfetto.dev/docs/reference/trace-packet-proto>):
//! a track for each thread, with a slice for each fault, and the number of major faults as a counter.

use super::Began;
use super::places::{Places, Spelled};
use super::protobuf::Message;
use crate::csv::{cause, kind};
use crate::recording::{End, Fault, Recording};
use crate::tables::SectionsOf;
use headstart::host::names;
use std::collections::HashMap;
use std::io::{self, Write};

/// Fields of a packet.
mod packet {
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
mod event {
    pub const CATEGORY: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
}

/// Types of track events.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// `BUILTIN_CLOCK_*`
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

/// That a packet needs what others of the sequence say.
const NEEDED: u64 = 2;

/// Tables of strings in the interned data, and their fields.
const CATEGORIES: u32 = 1;
const NAMES: u32 = 2;
const ANNOTATIONS: u32 = 3;
const TEXTS: u32 = 29;

/// The track that the counters are below.
const ROOT: u64 = 1;
/// The counter of major faults.
const MAJOR: u64 = 2;

/// Numbers of the tracks of processes and threads.
fn process_track(number: u32) -> u64 {
    1 << 32 | u64::from(number)
}

fn thread_track(number: u32) -> u64 {
    2 << 32 | u64::from(number)
}

/// How each of these files begins: the first packet is the same in all.
pub const BEGIN: &[u8] = b"\x0a\x1b\x50\x01\x68\x01\xe2\x03\x14\x08\x01\x12\x10headstart faults";

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
    let mut trace =
        Trace { out, places: Places::new(recording, sections), interned: Interned::default() };
    trace.out.write_all(BEGIN)?;
    trace.clocks(began)?;
    trace.tracks(recording)?;
    let mut major = 0;
    trace.counter(MAJOR, began.monotonic_ns, major)?;
    for fault in &recording.faults {
        trace.fault(fault)?;
        if fault.end == End::Major {
            major += 1;
            trace.counter(MAJOR, fault.time.saturating_add(fault.latency), major)?;
        }
    }
    Ok(())
}

struct Trace<'a> {
    out: &'a mut dyn Write,
    places: Places<'a>,
    interned: Interned,
}

impl Trace<'_> {
    /// Writes a packet of the sequence.
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut trace = Message::default();
        trace.message(1, |packet| {
            packet.number(packet::SEQUENCE, 1);
            packet.number(packet::FLAGS, NEEDED);
            fill(packet);
        });
        self.out.write_all(&trace.0)
    }

    /// Times are those of the monotonic clock, of which one is known as time of day.
    fn clocks(&mut self, began: Began) -> io::Result<()> {
        self.packet(|packet| {
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
    fn tracks(&mut self, recording: &Recording) -> io::Result<()> {
        let number = |number: i32| i64::from(number).cast_unsigned();
        for (at, process) in (0..).zip(&recording.processes) {
            self.track(process_track(at), None, |track| {
                track.message(3, |message| {
                    message.number(1, number(process.pid));
                    message.bytes(6, names::name(recording.name(process.name)));
                });
            })?;
        }
        for (at, thread) in (0..).zip(&recording.threads) {
            let Some(process) = recording.processes.get(thread.process as usize) else { continue };
            self.track(thread_track(at), Some(process_track(thread.process)), |track| {
                track.message(4, |message| {
                    message.number(1, number(process.pid));
                    message.number(2, number(thread.tid));
                    message.bytes(5, names::name(recording.name(thread.name)));
                });
            })?;
        }
        self.counter_track(MAJOR, "major faults")
    }

    fn counter_track(&mut self, track: u64, name: &str) -> io::Result<()> {
        self.track(track, Some(ROOT), |track| {
            track.bytes(2, name);
            // Its unit is a number.
            track.message(8, |counter| counter.number(3, 2));
        })
    }

    fn track(
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

    fn counter(&mut self, track: u64, time: u64, value: u64) -> io::Result<()> {
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

    /// A slice; a fault without an end that is known is a point in time.
    fn fault(&mut self, fault: &Fault) -> io::Result<()> {
        let Self { places, interned, .. } = self;
        let (place, offset) = places.of(fault);
        let Spelled { file, segment, section } = &places.spelled()[place];
        let short = file.rsplit('/').next().unwrap_or_default();
        let name = [kind(fault.end), short, section].join(" ");
        let texts = [
            ("kind", kind(fault.end)),
            ("cause", cause(fault.cause)),
            ("file", file),
            ("segment", segment),
            ("section", section),
        ];
        let numbers =
            [("offset", offset), ("address", Some(fault.address)), ("ip", Some(fault.ip))];
        let (mut event, mut new) = (Message::default(), Message::default());
        let category = interned.number(&mut new, CATEGORIES, "fault");
        event.number(event::CATEGORY, category);
        let name = interned.number(&mut new, NAMES, name.trim_end());
        event.number(event::NAME, name);
        for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let key = interned.number(&mut new, ANNOTATIONS, key);
            let text = interned.number(&mut new, TEXTS, text);
            event.message(event::ANNOTATION, |annotation| {
                annotation.number(1, key);
                annotation.number(17, text);
            });
        }
        for (key, number) in numbers {
            let Some(number) = number else { continue };
            let key = interned.number(&mut new, ANNOTATIONS, key);
            event.message(event::ANNOTATION, |annotation| {
                annotation.number(1, key);
                // A pointer, which is shown in hexadecimal.
                annotation.number(7, number);
            });
        }
        let track = thread_track(fault.thread);
        let is_known = fault.end.is_known();
        self.packet(|packet| {
            packet.number(packet::TIMESTAMP, fault.time);
            if !new.0.is_empty() {
                packet.bytes(packet::INTERNED, &new.0);
            }
            event.number(event::TYPE, if is_known { SLICE_BEGIN } else { INSTANT });
            event.number(event::TRACK, track);
            packet.bytes(packet::TRACK_EVENT, &event.0);
        })?;
        if !is_known {
            return Ok(());
        }
        self.event(fault.time.saturating_add(fault.latency), SLICE_END, track, |_| ())
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

#[cfg(test)]
mod tests {
    use super::super::protobuf::decoded::{Value, fields};
    use super::super::test_recordings::{any_recording, recording};
    use super::*;
    use proptest::prelude::*;

    const BEGAN: Began = Began { monotonic_ns: 500, unix_ns: 1_700_000_000_000_000_000 };

    /// A message with its fields by number.
    #[derive(Clone, Debug)]
    struct Found(Vec<(u64, Value)>);

    impl Found {
        fn of(bytes: &[u8]) -> Self {
            Self(fields(bytes).unwrap())
        }

        fn all(&self, field: u32) -> Vec<&Value> {
            self.0.iter().filter(|(at, _)| *at == u64::from(field)).map(|(_, v)| v).collect()
        }

        fn number(&self, field: u32) -> Option<u64> {
            match self.all(field)[..] {
                [] => None,
                [Value::Number(number)] => Some(*number),
                ref other => panic!("{field}: {other:?}"),
            }
        }

        fn messages(&self, field: u32) -> Vec<Self> {
            let message = |value: &&Value| match value {
                Value::Bytes(bytes) => Self::of(bytes),
                Value::Number(_) => panic!("{field} is a number"),
            };
            self.all(field).iter().map(message).collect()
        }

        fn text(&self, field: u32) -> String {
            match self.all(field)[..] {
                [Value::Bytes(bytes)] => String::from_utf8(bytes.clone()).unwrap(),
                ref other => panic!("{field}: {other:?}"),
            }
        }
    }

    fn packets(recording: &Recording) -> Vec<Found> {
        let mut out = Vec::new();
        write(&mut out, recording, &SectionsOf::new(), BEGAN).unwrap();
        assert!(out.starts_with(BEGIN));
        Found::of(&out).messages(1)
    }

    /// An event: time, type, track, name, arguments.
    type Event = (u64, u64, u64, String, Vec<(String, String)>);

    /// The events of threads, with interned texts in their place.
    fn events(packets: &[Found]) -> Vec<Event> {
        let mut texts: HashMap<(u32, u64), String> = HashMap::new();
        let mut events = Vec::new();
        for packet in packets {
            assert_eq!(packet.number(packet::SEQUENCE), Some(1));
            for interned in packet.messages(packet::INTERNED) {
                for table in [CATEGORIES, NAMES, ANNOTATIONS, TEXTS] {
                    for entry in interned.messages(table) {
                        let key = (table, entry.number(1).unwrap());
                        assert_eq!(texts.insert(key, entry.text(2)), None, "a number is used once");
                    }
                }
            }
            for event in packet.messages(packet::TRACK_EVENT) {
                let [kind, track] = [event::TYPE, event::TRACK].map(|at| event.number(at).unwrap());
                let name = event.number(event::NAME).map(|at| texts[&(NAMES, at)].clone());
                let argument = |argument: &Found| {
                    let key = texts[&(ANNOTATIONS, argument.number(1).unwrap())].clone();
                    let text = argument.number(17).map(|text| texts[&(TEXTS, text)].clone());
                    (key, text.unwrap_or_else(|| format!("{:#x}", argument.number(7).unwrap())))
                };
                let arguments = event.messages(event::ANNOTATION).iter().map(argument).collect();
                let time = packet.number(packet::TIMESTAMP).unwrap();
                if kind != COUNTER {
                    events.push((time, kind, track, name.unwrap_or_default(), arguments));
                }
            }
        }
        events
    }

    #[test]
    fn faults_are_slices_of_their_threads_with_arguments() {
        let packets = packets(&recording());
        assert_eq!(packets[0].number(packet::FLAGS), Some(1), "the state of the sequence begins");
        assert!(packets[1..].iter().all(|packet| packet.number(packet::FLAGS) == Some(NEEDED)));
        let tracks: Vec<_> = packets.iter().flat_map(|p| p.messages(packet::TRACK)).collect();
        let uuids: Vec<_> = tracks.iter().map(|track| track.number(1).unwrap()).collect();
        let (process, first, second) = (process_track(0), thread_track(0), thread_track(1));
        assert_eq!(uuids, [ROOT, process, first, second, MAJOR]);
        let thread = &tracks[3].messages(4)[0];
        assert_eq!((thread.number(1), thread.number(2)), (Some(7), Some(8)));
        assert_eq!(thread.text(5), "worker");
        let events = events(&packets);
        let (time, kind, track, name, arguments) = &events[0];
        assert_eq!((*time, *kind, *track), (1_000, SLICE_BEGIN, first));
        assert_eq!(name, "major li;b\\012x");
        let expected = [
            ("kind", "major"),
            ("cause", "not-mapped"),
            ("file", "/li;b\\012x"),
            ("segment", "text"),
            ("offset", "0x1010"),
            ("address", "0x7010"),
            ("ip", "0x40"),
        ];
        assert_eq!(*arguments, expected.map(|(key, text)| (key.to_owned(), text.to_owned())));
        assert_eq!((events[1].0, events[1].1, events[1].2), (2_000, SLICE_END, first));
        let last = events.last().unwrap();
        assert_eq!(
            (last.0, last.1, last.2, &*last.3),
            (4_000, INSTANT, second, "unended [unknown]")
        );
    }

    #[test]
    fn the_counter_says_how_many_major_faults_have_ended() {
        let counted: Vec<_> = packets(&recording())
            .iter()
            .filter_map(|packet| {
                let event = packet.messages(packet::TRACK_EVENT).pop()?;
                Some((packet.number(packet::TIMESTAMP)?, event.number(event::COUNTER_VALUE)?))
            })
            .collect();
        assert_eq!(counted, [(500, 0), (2_000, 1)]);
    }

    proptest! {
        #[test]
        fn each_fault_is_a_slice_as_long_as_it_took(recording in any_recording()) {
            let mut begun: HashMap<u64, u64> = HashMap::new();
            let mut found = Vec::new();
            for (time, kind, track, ..) in events(&packets(&recording)) {
                match kind {
                    SLICE_BEGIN => prop_assert_eq!(begun.insert(track, time), None),
                    SLICE_END => {
                        let start = begun.remove(&track).unwrap();
                        found.push((track, start, time - start));
                    }
                    _ => found.push((track, time, 0)),
                }
            }
            let fault = |fault: &Fault| (thread_track(fault.thread), fault.time, fault.latency);
            let expected: Vec<_> = recording.faults.iter().map(fault).collect();
            prop_assert_eq!(found, expected);
            let majors = recording.faults.iter().filter(|fault| fault.end == End::Major).count();
            let counts = packets(&recording).iter().flat_map(|p| p.messages(packet::TRACK_EVENT))
                .filter_map(|event| event.number(event::COUNTER_VALUE)).max();
            prop_assert_eq!(counts, Some(majors as u64));
        }
    }
}
