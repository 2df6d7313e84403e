//! Waits until a disk has no write in flight.

use crate::host::contents;
use crate::host::id::Dev;
use std::thread;
use std::time::{Duration, Instant};

/// How long there must be none: between the data of a synced write and the commit of the journal the
/// file system has nothing in flight for a moment.
const QUIET: Duration = Duration::from_micros(1500);
/// How often it is looked, and for how long at most: a program that writes all the time must not
/// end the prefetch.
const LOOK: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_millis(60);

/// Waits while a device has a write in flight, and until it had none for [`QUIET`], or it `is_over`, for
/// [`PATIENCE`] or `patience` at most. A device without such a figure, as that of a btrfs, is not waited for.
pub(super) fn wait_for_writes(dev: Dev, patience: Duration, is_over: impl Fn() -> bool) {
    // Linux, Documentation/block/stat.rst: reads and writes that were issued and are not complete.
    let path = format!("/sys/dev/block/{}:{}/inflight", dev.major(), dev.minor());
    let is_written = || contents::text(&path).is_ok_and(|text| has_writes(&text));
    wait_while(is_written, PATIENCE.min(patience), is_over);
}

fn wait_while(is_written: impl Fn() -> bool, patience: Duration, is_over: impl Fn() -> bool) {
    let began = Instant::now();
    let mut last = is_written().then(Instant::now);
    // Whoever looks late looks once more before it is quiet.
    while let Some(written) = last
        && began.elapsed() < patience
        && !is_over()
    {
        thread::sleep(LOOK);
        last = if is_written() {
            Some(Instant::now())
        } else {
            last.filter(|_| written.elapsed() < QUIET)
        };
    }
}

/// Whether the second figure says that writes are in flight.
fn has_writes(text: &str) -> bool {
    let writes = text.split_ascii_whitespace().nth(1).and_then(|writes| writes.parse::<u64>().ok());
    writes.is_some_and(|writes| writes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_second_figure_counts_writes() {
        for (text, expected) in [
            ("       3        0\n", false),
            ("       0        2\n", true),
            ("12 1", true),
            ("7", false),
            ("", false),
            ("1 many", false),
        ] {
            assert_eq!(has_writes(text), expected, "{text:?}");
        }
    }

    #[test]
    fn waiting_ends_when_writes_have_ended_or_do_not_end() {
        const LONG: Duration = Duration::from_secs(60);
        const SHORT: Duration = Duration::from_millis(3);
        for (name, writes, patience, ends_after, at_least, looks) in [
            ("none", 0, LONG, usize::MAX, Duration::ZERO, 1..=1),
            ("some", 3, LONG, usize::MAX, QUIET, 4..=usize::MAX),
            ("without an end", usize::MAX, SHORT, usize::MAX, SHORT, 1..=usize::MAX),
            ("no patience left", usize::MAX, Duration::ZERO, usize::MAX, Duration::ZERO, 1..=1),
            ("it is over", usize::MAX, LONG, 2, Duration::ZERO, 3..=3),
        ] {
            let (seen, began) = (Cell::new(0), Instant::now());
            let is_written = || seen.replace(seen.get() + 1) < writes;
            wait_while(is_written, patience, || seen.get() > ends_after);
            assert!(began.elapsed() >= at_least, "{name}");
            assert!(looks.contains(&seen.get()), "{name}: {}", seen.get());
        }
    }

    #[test]
    fn a_device_without_figures_is_not_waited_for() {
        wait_for_writes(Dev::new(0, 999_999), PATIENCE, || panic!("it was waited for"));
    }
}
