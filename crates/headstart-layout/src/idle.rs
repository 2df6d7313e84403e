//! Waits while others use the disk. What it decides is pure; the driver reads /proc/diskstats.

use super::error::LayoutError;
use headstart::host::contents;
use headstart::host::diskstats::{completed, in_flight};
use headstart::host::id::Dev;
use std::path::Path;
use std::time::Duration;

const STATS: &str = "/proc/diskstats";

/// A disk that others may use.
#[derive(Clone, Debug)]
pub struct Idle {
    /// Its name in /proc/diskstats.
    name: String,
    /// It is idle if no request came for so long.
    window: Duration,
}

impl Idle {
    /// The disk with this number; `None` if the kernel has no statistics of it.
    pub fn of(dev: Dev, window: Duration) -> Option<Self> {
        let link = std::fs::read_link(format!("/sys/dev/block/{dev}")).ok()?;
        Some(Self { name: link.file_name()?.to_str()?.to_owned(), window })
    }

    /// Waits until there was no request for the window. Requests of this process count too, so what
    /// it wrote must be on the disk. `pause` waits for a time, or returns `true` to give up; then
    /// this returns `false`.
    ///
    /// # Errors
    /// The statistics can't be read.
    pub fn wait(&self, mut pause: impl FnMut(Duration) -> bool) -> Result<bool, LayoutError> {
        let path = Path::new(STATS);
        let read = || contents::text(path).map_err(LayoutError::io("Can't read", path));
        let mut before = read()?;
        loop {
            if pause(self.window) {
                return Ok(false);
            }
            let after = read()?;
            if is_idle(&before, &after, &self.name) {
                return Ok(true);
            }
            before = after;
        }
    }
}

/// Whether a disk served no request between two readings, and has none now. One that is gone is.
fn is_idle(before: &str, after: &str, name: &str) -> bool {
    let served = |text: &str| completed(text).get(name).copied();
    served(before) == served(after) && in_flight(after).get(name).is_none_or(|n| *n == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_idle_if_no_request_came_and_none_is_in_flight() {
        let text = |reads, writes, flying| {
            format!("7 0 loop0 {reads} 0 8 1 {writes} 0 8 1 {flying} 1 1\n 7 1 loop1 9 0 1 1 1\n")
        };
        for (before, after, expected) in [
            ((1, 1, 0), (1, 1, 0), true),
            ((1, 1, 3), (1, 1, 0), true),
            ((1, 1, 0), (2, 1, 0), false),
            ((1, 1, 0), (1, 2, 0), false),
            ((1, 1, 0), (1, 1, 1), false),
        ] {
            let [before, after] = [before, after].map(|(a, b, c)| text(a, b, c));
            assert_eq!(is_idle(&before, &after, "loop0"), expected, "{after}");
        }
    }

    #[test]
    fn who_gives_up_is_not_kept_waiting() {
        let idle = Idle { name: "no such disk".into(), window: Duration::from_secs(9) };
        assert!(!idle.wait(|_| true).unwrap());
        assert!(idle.wait(|_| false).unwrap());
    }
}
