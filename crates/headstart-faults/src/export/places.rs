//! The places of faults as text, each spelled once however many faults it has.

use crate::document::memory_name;
use crate::recording::{Fault, Recording};
use crate::tables::{Place, SectionsOf, place};
use headstart::host::names;
use std::collections::HashMap;

/// A place as people read it; what it has none of is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spelled {
    /// The file, or what memory it is.
    pub file: String,
    /// The segment of the file.
    pub segment: &'static str,
    /// The section of the segment.
    pub section: String,
}

/// The places of a recording, numbered in the order in which they are met.
#[derive(Debug)]
pub struct Places<'a> {
    recording: &'a Recording,
    sections: &'a SectionsOf,
    numbers: HashMap<Place, usize>,
    spelled: Vec<Spelled>,
}

impl<'a> Places<'a> {
    /// None so far.
    pub fn new(recording: &'a Recording, sections: &'a SectionsOf) -> Self {
        Self { recording, sections, numbers: HashMap::new(), spelled: Vec::new() }
    }

    /// The number of a fault's place, and the offset in the file.
    pub fn of(&mut self, fault: &Fault) -> (usize, Option<u64>) {
        let (place, offset) = place(self.recording, self.sections, fault);
        if let Some(known) = self.numbers.get(&place) {
            return (*known, offset);
        }
        let number = self.spelled.len();
        self.spelled.push(spell(self.recording, &place));
        self.numbers.insert(place, number);
        (number, offset)
    }

    /// All that were met, by number.
    pub fn spelled(&self) -> &[Spelled] {
        &self.spelled
    }
}

fn spell(recording: &Recording, place: &Place) -> Spelled {
    match place {
        Place::File { name, segment, section } => Spelled {
            file: names::name(recording.name(*name)),
            segment: segment.name(),
            section: names::name(section.as_bytes()),
        },
        other => Spelled {
            file: memory_name(recording, other).unwrap_or_default(),
            ..Spelled::default()
        },
    }
}

/// A thread or process: its name and number.
pub fn owner(name: &[u8], number: i32) -> String {
    let name = if name.is_empty() { "[unknown]".to_owned() } else { names::name(name) };
    format!("{name} ({number})")
}
