//! What is in a trace, decoded by the specification of its format.

use super::packets::*;
use super::waits::{device_track, waits_track};
use super::*;
use crate::export::protobuf::decoded::{Value, fields};
use crate::export::test_recordings::{any_recording, recording, with_waits};
use proptest::prelude::*;
use std::collections::HashMap;

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
    assert_eq!((last.0, last.1, last.2, &*last.3), (4_000, INSTANT, second, "unended [unknown]"));
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

#[test]
fn waits_are_slices_of_a_track_of_their_own_and_requests_a_counter() {
    let packets = packets(&with_waits());
    let tracks: Vec<_> = packets.iter().flat_map(|p| p.messages(packet::TRACK)).collect();
    let (waits, disk) = (waits_track(1), device_track(headstart::host::id::Dev::new(8, 0)));
    let track = |uuid| tracks.iter().find(|track| track.number(1) == Some(uuid)).unwrap();
    assert_eq!(track(waits).number(5), Some(thread_track(1)), "below that of the thread");
    assert_eq!(track(disk).text(2), "requests in flight on 8:0");
    let events = events(&packets);
    let [begin, end] = [SLICE_BEGIN, SLICE_END]
        .map(|kind| events.iter().find(|event| event.1 == kind && event.2 == waits).unwrap());
    assert_eq!((begin.0, end.0, &*begin.3), (5_000, 10_000, "read li;b\\012x"));
    let number = |key: &str| begin.4.iter().find(|(name, _)| name == key).unwrap().1.clone();
    assert_eq!((number("offset"), number("system call")), ("0x1000".into(), "0x11".into()));
    let counts: Vec<_> = packets
        .iter()
        .filter_map(|packet| {
            let event = packet.messages(packet::TRACK_EVENT).pop()?;
            let count = event.number(event::COUNTER_VALUE)?;
            (event.number(event::TRACK) == Some(disk)).then(|| (packet.number(8), count))
        })
        .collect();
    assert_eq!(counts, [(Some(5_000), 1), (Some(6_000), 2), (Some(9_000), 1)]);
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
