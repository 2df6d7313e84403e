//! I/O of disks between two moments, from /proc/diskstats
//! (`Documentation/admin-guide/iostats.rst`).

use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of a sector in /proc/diskstats, whatever the device's own are.
const SECTOR: u64 = 512;

/// Reads of one device since it appeared, or between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DiskReads {
    /// Requests completed.
    pub requests: u64,
    /// Requests that were joined with another before they were sent.
    pub merged: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Time in which at least one request was under way, in ms.
    pub busy_ms: u64,
}

/// Devices by name.
pub type DiskStats = BTreeMap<String, DiskReads>;

/// Parses /proc/diskstats; lines of another form are passed over.
///
/// ```
/// let stats = headstart::host::diskstats::parse(" 8 0 sda 10 0 80 5 0 0 0 0 0 5 5\n");
/// assert_eq!(stats["sda"].requests, 10);
/// assert_eq!(stats["sda"].bytes, 80 * 512);
/// ```
pub fn parse(text: &str) -> DiskStats {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let name = words.nth(2)?.to_owned();
            let n: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let &[requests, merged, sectors, ..] = &n[..] else { return None };
            let busy_ms = *n.get(9)?;
            Some((
                name,
                DiskReads { requests, merged, bytes: sectors.saturating_mul(SECTOR), busy_ms },
            ))
        })
        .collect()
}

/// Requests that have been sent and not answered yet, by device.
pub fn in_flight(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        Some((words.nth(2)?.to_owned(), words.nth(8)?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Requests that have been served since a device appeared, reads and writes, by device.
pub fn completed(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        Some((words.nth(2)?.to_owned(), completed_of(words)?))
    };
    text.lines().filter_map(line).collect()
}

/// The same of one device, by the words behind its name, which are also those of its `stat` in sysfs
/// (`Documentation/block/stat.rst`).
pub fn completed_of<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<u64> {
    let (reads, writes): (u64, u64) = (words.next()?.parse().ok()?, words.nth(3)?.parse().ok()?);
    Some(reads.wrapping_add(writes))
}

/// What happened between two moments, for the devices that read anything.
pub fn between(before: &DiskStats, after: &DiskStats) -> DiskStats {
    after
        .iter()
        .filter_map(|(name, now)| {
            let was = before.get(name).copied().unwrap_or_default();
            let change = DiskReads {
                // Counters of 32 bits wrap on some kernels.
                requests: now.requests.saturating_sub(was.requests),
                merged: now.merged.saturating_sub(was.merged),
                bytes: now.bytes.saturating_sub(was.bytes),
                busy_ms: now.busy_ms.saturating_sub(was.busy_ms),
            };
            (change.requests > 0).then(|| (name.clone(), change))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_that_read_are_reported() {
        let before =
            parse("   7 0 loop0 10 1 80 5 0 0 0 0 0 7 5\n 254 0 vda 1 0 8 1 0 0 0 0 0 1 1\n");
        let after =
            parse("   7 0 loop0 30 2 400 9 0 0 0 0 0 9 9\n 254 0 vda 1 0 8 1 0 0 0 0 0 1 1\n");
        let change = between(&before, &after);
        let expected = DiskReads { requests: 20, merged: 1, bytes: 320 * 512, busy_ms: 2 };
        assert_eq!(change, [("loop0".to_owned(), expected)].into());
        assert!(parse("nonsense\n7 0 x 1\n").is_empty());
        let most = u64::MAX;
        let text = format!("7 0 loop0 1 0 {most} 5 0 0 0 0 0 7 5\n");
        assert_eq!(parse(&text)["loop0"].bytes, most);
    }

    #[test]
    fn what_was_served_and_is_in_flight_is_reported_by_device() {
        let text = "   7 0 loop0 10 1 80 5 0 0 0 0 3 7 5\n 254 0 vda 1 0 8 1 0 0 0 0 0 1 1\n x\n";
        assert_eq!(in_flight(text), [("loop0".to_owned(), 3), ("vda".to_owned(), 0)].into());
        let text = "   7 0 loop0 10 1 80 5 4 0 0 0 3 7 5\n 8 0 sda 1 0 8\n x\n";
        assert_eq!(completed(text), [("loop0".to_owned(), 14)].into());
    }

    #[test]
    fn the_statistics_of_a_disk_in_sysfs_tell_what_was_served() {
        let completed = |stat: &str| completed_of(stat.split_ascii_whitespace());
        assert_eq!(completed(" 2000 3 80 5 400 7 90 6 0 50 60 8 9 10 11 12 13"), Some(2400));
        for damaged in ["", "1 2 3 4", "x 2 3 4 5"] {
            assert_eq!(completed(damaged), None, "{damaged}");
        }
    }
}
