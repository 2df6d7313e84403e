//! The pack of a launch as it was before: in memory, or set aside while nobody reads it. Pure.

use crate::pack::Pack;
use crate::pack::codec::{decode, encode};
use std::borrow::Cow;

/// The pack that a launch found.
#[derive(Default, Debug)]
pub enum FoundPack {
    /// There was none.
    #[default]
    None,
    /// In memory.
    Pack(Box<Pack>),
    /// Encoded, which takes a third of the memory.
    Encoded {
        /// Starts that it has learned.
        starts: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Left in its file: what was prefetched is not learned from.
    Left {
        /// Starts that it has learned.
        starts: u32,
    },
}

impl FoundPack {
    /// A pack in memory, if there is one.
    pub fn of(pack: Option<Pack>) -> Self {
        pack.map_or(Self::None, |pack| Self::Pack(Box::new(pack)))
    }

    /// Encodes it, or, unless it `is_needed` as it is, leaves it in its file.
    pub fn set_aside(&mut self, is_needed: bool) {
        let Self::Pack(pack) = self else { return };
        let starts = pack.origin.starts;
        *self = match is_needed {
            true => {
                let mut bytes = encode(pack);
                bytes.shrink_to_fit();
                Self::Encoded { starts, bytes }
            }
            false => Self::Left { starts },
        };
    }

    /// Starts that it has learned, if there is one.
    pub fn starts(&self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Pack(pack) => Some(pack.origin.starts),
            Self::Encoded { starts, .. } | Self::Left { starts } => Some(*starts),
        }
    }

    /// The pack, if it is in memory and not encoded.
    pub fn at_hand(&self) -> Option<&Pack> {
        match self {
            Self::Pack(pack) => Some(pack),
            Self::None | Self::Encoded { .. } | Self::Left { .. } => None,
        }
    }

    /// The pack, which is decoded each time if it was set aside; `None` if it was left in its file, too.
    pub fn pack(&self) -> Option<Cow<'_, Pack>> {
        match self {
            Self::None | Self::Left { .. } => None,
            Self::Pack(pack) => Some(Cow::Borrowed(pack)),
            // It was a pack, so it is one.
            Self::Encoded { bytes, .. } => decode(bytes).ok().map(Cow::Owned),
        }
    }

    /// The same, and nothing is kept.
    pub fn into_pack(self) -> Option<Pack> {
        match self {
            Self::Pack(pack) => Some(*pack),
            other => other.pack().map(Cow::into_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Origin;

    #[test]
    fn a_pack_that_is_set_aside_is_the_same_afterwards() {
        let origin = Origin { page_shift: 12, starts: 3, ..Origin::default() };
        for pack in [None, Some(Pack { origin, ..Pack::default() })] {
            let mut found = FoundPack::of(pack.clone());
            assert_eq!(found.at_hand(), pack.as_ref());
            for _ in 0..2 {
                assert_eq!(found.pack().as_deref(), pack.as_ref());
                assert_eq!(found.starts(), pack.as_ref().map(|pack| pack.origin.starts));
                found.set_aside(true);
                assert_eq!(found.at_hand(), None);
            }
            assert_eq!(found.into_pack(), pack);
            let mut found = FoundPack::of(pack.clone());
            found.set_aside(false);
            assert!(found.pack().is_none() && found.at_hand().is_none());
            assert_eq!(found.starts(), pack.as_ref().map(|pack| pack.origin.starts));
            assert_eq!(FoundPack::of(pack.clone()).into_pack(), pack);
        }
    }
}
