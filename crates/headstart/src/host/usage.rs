//! How pages of a file were used. Pure.

use serde::Serialize;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// How a range was touched, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct How(pub u8);

impl How {
    /// By read(2) and its like.
    pub const READ: Self = Self(1);
    /// Through a mapping.
    pub const MAPPED: Self = Self(2);
    /// Through a mapping, in a part of an ELF file that holds code.
    pub const EXECUTED: Self = Self(4);
    /// Brought in by the program without an access event: its own readahead, or a kernel without
    /// access events.
    pub const INSERTED: Self = Self(8);
    /// Inferred from an earlier file at the same path.
    pub const INFERRED: Self = Self(16);
    /// Only written by the start: nothing to read, but the file is known.
    pub const WRITTEN: Self = Self(32);
    /// Through a mapping, without fault-around: from an exact start, or from a later fault for this
    /// page.
    pub const EXACT: Self = Self(64);
    /// Written by the start without being made by it; of several starts, at its end.
    pub const APPENDED: Self = Self(128);
    const ALL: [(Self, &'static str); 8] = [
        (Self::READ, "read"),
        (Self::MAPPED, "mapped"),
        (Self::EXECUTED, "executed"),
        (Self::INSERTED, "inserted"),
        (Self::INFERRED, "inferred"),
        (Self::WRITTEN, "written"),
        (Self::EXACT, "exact"),
        (Self::APPENDED, "appended"),
    ];

    /// Whether all of `other` is in it.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it was written and nothing of it used, so that there is nothing to read.
    pub fn is_only_written(self) -> bool {
        self.has(Self::WRITTEN) && (Self::WRITTEN | Self::APPENDED).has(self)
    }

    /// The words for it.
    pub fn words(self) -> Vec<&'static str> {
        Self::ALL.iter().filter(|(how, _)| self.has(*how)).map(|(_, word)| *word).collect()
    }
}

impl BitOr for How {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for How {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join("+"))
    }
}

impl Serialize for How {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(s)
    }
}
