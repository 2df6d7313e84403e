//! What the bits of a history mean. Pure.
//!
//! A history has a bit for each of the last eight starts: whether it touched something, or changed
//! it. Bit 0 is the last start, bit 7 the oldest. Starts before the first touch have no bit, so a
//! history also tells since when something is known.

use crate::host::usage::How;

/// The number of starts in a history.
pub const HISTORY_STARTS: u32 = u8::BITS;

/// The number of starts that predict the next one.
const RECENT_STARTS: u32 = 4;

/// The bits of this many of the last starts, 1 to 8.
fn last_starts(starts: u32) -> u8 {
    u8::MAX >> (HISTORY_STARTS - starts.clamp(1, HISTORY_STARTS))
}

/// In which of the last starts something was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct History(pub u8);

impl History {
    /// Whether one of the last four starts is in it.
    pub fn is_recent(self) -> bool {
        self.count_in_last(RECENT_STARTS) > 0
    }

    /// How many of this many last starts, 1 to 8, are in it.
    pub fn count_in_last(self, starts: u32) -> u32 {
        (self.0 & last_starts(starts)).count_ones()
    }

    /// Whether two of the last four starts are in it.
    pub fn recurs(self) -> bool {
        self.count_in_last(RECENT_STARTS) >= 2
    }

    /// Whether the last start is in it.
    pub fn is_in_last(self) -> bool {
        self.0 & 1 == 1
    }

    /// How many of the last starts it knows of: back to its first touch.
    pub fn first_seen(self) -> u32 {
        HISTORY_STARTS - self.0.leading_zeros()
    }

    /// The starts that are in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The history after one more start.
    ///
    /// ```
    /// use headstart::pack::History;
    /// let history = History(0b1).after_start(false);
    /// assert!(!history.is_in_last() && history.after_start(true).is_in_last());
    /// ```
    #[must_use]
    pub fn after_start(self, is_in_it: bool) -> Self {
        Self((self.0 << 1) + u8::from(is_in_it))
    }

    /// This history of `known` starts, repeated to fill all bits.
    #[must_use]
    pub fn repeated(self, known: u32, starts: u32) -> Self {
        if known == 0 {
            return self;
        }
        let earlier = (known..HISTORY_STARTS).step_by(known as usize);
        Self(earlier.fold(self.0, |all, by| all | self.0 << by) & last_starts(starts))
    }

    /// Whether the next start is expected to touch a range with this history and kind of touch.
    ///
    /// A range that was only mapped, in one of the last four starts and not in the last, usually
    /// was a fault-around page: which ones are mapped depends on the file's address in memory.
    pub fn expects(self, starts: u32, how: How) -> bool {
        let only_mapped = !how.has(How::READ) && how.has(How::MAPPED);
        !only_mapped || starts < 3 || self.is_in_last() || self.recurs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bit_0_is_the_last_start() {
        for (starts, expected) in [(0, 0b1), (1, 0b1), (3, 0b111), (8, 0xff), (9, 0xff)] {
            assert_eq!(last_starts(starts), expected, "{starts}");
        }
        for (history, is_last, is_recurring, first) in [
            (0, false, false, 0),
            (0b1, true, false, 1),
            (0b10, false, false, 2),
            (0b1001, true, true, 4),
            (0b1_0001, true, false, 5),
            (0b1100_0000, false, false, 8),
        ] {
            let history = History(history);
            assert_eq!(history.is_in_last(), is_last, "{history:?}");
            assert_eq!(history.recurs(), is_recurring, "{history:?}");
            assert_eq!(history.first_seen(), first, "{history:?}");
        }
        assert!(History(0b1011_1000).is_recent() && !History(0b1011_0000).is_recent());
        let history = History(0b1011_0110);
        assert_eq!([1, 3, 8, 9].map(|starts| history.count_in_last(starts)), [0, 2, 5, 5]);
        assert_eq!(History(0b1000_0001).after_start(true), History(0b11));
        assert_eq!(History(0b1).after_start(false), History(0b10));
        assert_eq!(History(0b1).union(History(0b101)), History(0b101));
    }

    #[test]
    fn what_is_known_of_few_starts_is_repeated() {
        for (history, known, starts, expected) in [
            (0b10, 2, 6, 0b10_1010),
            (0b1, 1, 8, 0xff),
            (0b101, 3, 5, 0b01_101),
            (0b101, 3, 3, 0b101),
            (0b101, 4, 8, 0b101_0101),
            (0, 0, 8, 0),
            (0, 2, 8, 0),
        ] {
            let found = History(history).repeated(known, starts);
            assert_eq!(found, History(expected), "{history:b} {known} {starts}");
        }
    }

    #[test]
    fn what_was_mapped_beside_a_fault_once_is_not_expected_again() {
        let code = How::MAPPED | How::EXECUTED;
        for (starts, how, history, expected) in [
            (4, code, 0b0001, true),
            (4, code, 0b0100, false),
            (4, code, 0b1100, true),
            (9, code, 0b1001_0000, false),
            (9, code, 0b0001_0010, false),
            (2, code, 0b0010, true),
            (3, code, 0b0010, false),
            (4, How::READ, 0b0100, true),
            (4, How::READ | code, 0b0100, true),
            (4, How::INSERTED, 0b0100, true),
        ] {
            let found = History(history).expects(starts, how);
            assert_eq!(found, expected, "{starts} {how:?} {history:b}");
        }
    }

    proptest! {
        #[test]
        fn a_start_more_is_known_after_each(history in 1u8..0x80, is_in_it: bool) {
            let history = History(history);
            let after = history.after_start(is_in_it);
            prop_assert_eq!(after.first_seen(), history.first_seen() + 1);
            prop_assert_eq!(after.is_in_last(), is_in_it);
        }
    }
}
