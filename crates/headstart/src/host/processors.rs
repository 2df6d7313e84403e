//! How many processors this machine has, and may have
//! (`Documentation/admin-guide/cputopology.rst` of the kernel).

use crate::host::contents;

/// The file with the numbers of those that may come online.
pub const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// One more than the highest number in such a list, as `0-7`, `0` or `0,2-3`; 1 where there
/// is none.
pub fn count(list: &str) -> usize {
    let last = list.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map_or(1, |last| last.saturating_add(1))
}

/// That of this machine.
pub fn here() -> usize {
    count(&contents::text(POSSIBLE).unwrap_or_default())
}

/// How many are in such a list; `None` where it is none.
fn listed(list: &str) -> Option<usize> {
    list.trim().split(',').try_fold(0usize, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// How many are online; where that is not known, how many there may be.
pub fn online() -> usize {
    let list = contents::text("/sys/devices/system/cpu/online").unwrap_or_default();
    listed(&list).unwrap_or_else(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_a_list_are_counted() {
        for (list, expected) in [
            ("0-7\n", Some(8)),
            ("0\n", Some(1)),
            ("0,2-3\n", Some(3)),
            ("", None),
            ("3-2", None),
            ("0-18446744073709551615", None),
        ] {
            assert_eq!(listed(list), expected, "{list:?}");
        }
    }

    #[test]
    fn the_highest_number_tells_how_many_there_may_be() {
        for (list, expected) in
            [("0-7\n", 8), ("0\n", 1), ("0,2-3\n", 4), ("0-3,8", 9), ("", 1), ("all", 1)]
        {
            assert_eq!(count(list), expected, "{list:?}");
        }
    }
}
