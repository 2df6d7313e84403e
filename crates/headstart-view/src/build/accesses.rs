//! Accesses of a program, such as page faults: which place, when, for how long. What they look like;
//! draws nothing.

use crate::picture::{Colour, Kind, Mark};

/// How an access ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum How {
    /// Without I/O of its own.
    Minor,
    /// That is not known.
    Unended,
    /// A system call, such as read(2) or open(2), waited.
    Called,
    /// After I/O.
    Waited,
}

impl How {
    /// Whether the thread waited.
    pub fn is_wait(self) -> bool {
        matches!(self, Self::Called | Self::Waited)
    }
}

/// An access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// When it began, in ns from the start.
    pub time_ns: u64,
    /// How long it took, in ns.
    pub latency_ns: u64,
    /// How it ended.
    pub how: How,
    /// Where it was, in [`Accesses::places`].
    pub place: u32,
    /// The mapping, in [`Accesses::parts`].
    pub part: u32,
    /// In the place, in bytes.
    pub offset: u64,
    /// Its thread, in [`Accesses::owners`].
    pub owner: u32,
}

/// A file, or memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Parts with names: begin and end in bytes.
    pub bands: Vec<(u64, u64, String)>,
}

/// All accesses of a start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accesses {
    /// What was started.
    pub title: String,
    /// What is said of it in words.
    pub summary: Vec<String>,
    /// What an access is called, in the plural: "faults".
    pub called: String,
    /// How long it took, in ns.
    pub length_ns: u64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Files and memory.
    pub places: Vec<Place>,
    /// Names of mappings.
    pub parts: Vec<String>,
    /// Names of threads, with those of their processes.
    pub owners: Vec<String>,
    /// The accesses, by the time of their start. Those with numbers of nothing are counted, not
    /// drawn.
    pub events: Vec<Access>,
}

/// Numbers of [`kinds`].
pub(super) mod kind {
    use super::How;

    pub fn of(how: How) -> u64 {
        match how {
            How::Minor => 0,
            How::Unended => 1,
            How::Called => 2,
            How::Waited => 3,
        }
    }

    /// Of the direction from one access to the next.
    pub fn direction(backwards: bool, how: How) -> u64 {
        4 + u64::from(backwards) + 2 * u64::from(how.is_wait())
    }

    /// The first one of devices.
    pub const DEVICE: usize = 8;
}

/// What the marks are.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        Kind::new("without I/O of its own", Colour::Sky, Mark::Plain),
        Kind::new("no end is known", Colour::Grey, Mark::Outline),
        Kind::new("a system call waited", Colour::Pink, Mark::Hatched),
        Kind::new("waited for the disk", Colour::Red, Mark::Hatched),
        Kind::new("forwards", Colour::Blue, Mark::Up),
        Kind::new("backwards", Colour::Amber, Mark::Down),
        Kind::new("forwards, waited", Colour::Red, Mark::Up),
        Kind::new("backwards, waited", Colour::Red, Mark::Down),
    ]
}
