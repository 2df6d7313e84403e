//! What the bits of a history mean. Pure.
//!
//! A history says of each of the last eight starts whether it touched something, or changed it:
//! bit 0 is the last start, bit 7 the last but seven. The start before the first touch leaves no
//! bit, so a history also tells how long something is known.

use crate::host::usage::How;

/// Starts that a history reaches back.
pub const HISTORY_STARTS: u32 = u8::BITS;

/// Starts that say what the next one does.
const RECENT_STARTS: u32 = 4;

/// The bits of so many of the last starts, of 1 to 8.
fn last_starts(starts: u32) -> u8 {
    u8::MAX >> (HISTORY_STARTS - starts.clamp(1, HISTORY_STARTS))
}

/// The bits of the last four starts.
pub fn recent(history: u8) -> u8 {
    history & last_starts(RECENT_STARTS)
}

/// How many of so many last starts, 1 to 8, are in it.
pub fn count_in_last(history: u8, starts: u32) -> u32 {
    (history & last_starts(starts)).count_ones()
}

/// Whether two of the last four starts are in it.
pub fn recurs(history: u8) -> bool {
    count_in_last(history, RECENT_STARTS) >= 2
}

/// Whether the last start is in it.
pub fn is_in_last(history: u8) -> bool {
    history & 1 == 1
}

/// How many of the last starts a history knows of: back to its first touch.
pub fn first_seen(history: u8) -> u32 {
    HISTORY_STARTS - history.leading_zeros()
}

/// The history after one more start.
///
/// ```
/// use headstart::pack::history::{after_start, is_in_last};
/// let history = after_start(0b1, false);
/// assert!(!is_in_last(history) && is_in_last(after_start(history, true)));
/// ```
pub fn after_start(history: u8, is_in_it: bool) -> u8 {
    (history << 1) + u8::from(is_in_it)
}

/// A history of `known` starts, repeated until it has so many.
pub fn repeated(history: u8, known: u32, starts: u32) -> u8 {
    if known == 0 {
        return history;
    }
    let earlier = (known..HISTORY_STARTS).step_by(known as usize);
    earlier.fold(history, |all, by| all | history << by) & last_starts(starts)
}

/// Whether the next start is expected to touch what past ones, so many, touched like
/// this.
///
/// A fault maps up to 15 fault-around pages beside its own, which ones depends on where the
/// file lies in memory this time. What was only mapped, in one of the last four starts, and
/// not in the last, was such a page as a rule.
pub fn expects(starts: u32, how: How, history: u8) -> bool {
    let only_mapped = !how.has(How::READ) && how.has(How::MAPPED);
    !only_mapped || starts < 3 || is_in_last(history) || recurs(history)
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
            assert_eq!(is_in_last(history), is_last, "{history:b}");
            assert_eq!(recurs(history), is_recurring, "{history:b}");
            assert_eq!(first_seen(history), first, "{history:b}");
        }
        assert_eq!(recent(0b1011_0110), 0b0110);
        assert_eq!([1, 3, 8, 9].map(|starts| count_in_last(0b1011_0110, starts)), [0, 2, 5, 5]);
        assert_eq!((after_start(0b1000_0001, true), after_start(0b1, false)), (0b11, 0b10));
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
            assert_eq!(repeated(history, known, starts), expected, "{history:b} {known} {starts}");
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
            assert_eq!(expects(starts, how, history), expected, "{starts} {how:?} {history:b}");
        }
    }

    proptest! {
        #[test]
        fn a_start_more_is_known_after_each(history in 1u8..0x80, is_in_it: bool) {
            let after = after_start(history, is_in_it);
            prop_assert_eq!(first_seen(after), first_seen(history) + 1);
            prop_assert_eq!(is_in_last(after), is_in_it);
        }
    }
}
