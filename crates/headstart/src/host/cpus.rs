//! The numbers of online and possible CPUs
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

/// Those in such a list, as first and last numbers; `None` if it is malformed.
fn listed(list: &str) -> Option<Vec<(usize, usize)>> {
    let parts = list.trim().split(',');
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // Linux has no more.
        (first <= last && last < MOST).then_some((first, last))
    };
    parts.map(range).collect()
}

/// More than CPUs that a kernel can be built for.
const MOST: usize = 1 << 16;

/// How many are online; where that is not known, how many there may be.
pub fn online() -> usize {
    let list = contents::text("/sys/devices/system/cpu/online").unwrap_or_default();
    listed(&list).map_or_else(here, |all| all.iter().map(|(first, last)| last - first + 1).sum())
}

/// The numbers of those that are online; where that is not known, of all that there may be.
pub fn online_numbers() -> Vec<i32> {
    let list = contents::text("/sys/devices/system/cpu/online").unwrap_or_default();
    let all = listed(&list).unwrap_or_else(|| vec![(0, here().saturating_sub(1).min(MOST))]);
    all.into_iter().flat_map(|(first, last)| first as i32..=last as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_list_are_told() {
        for (list, expected) in [
            ("0-7\n", Some(vec![(0, 7)])),
            ("0\n", Some(vec![(0, 0)])),
            ("0,2-3\n", Some(vec![(0, 0), (2, 3)])),
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
