//! Waits until requested pages are resident: the last page of a step, or every page.

use super::targets::Opened;
use crate::cache::residency::{are_resident, page_size, resident_count};
use crate::host::open::Kind;
use crate::host::range::PageRange;
use crate::replay::step::Step;
use headstart_sys::mincore::mincore;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is checked whether a page has arrived, and for how long: one that the disk
/// can't read stays in the page cache as if it were in flight.
const LOOK: Duration = Duration::from_micros(250);
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until the last page of a step is resident, or it `is_over`, for [`PATIENCE`] at most,
/// and reads a byte of it: by that event in a trace it is known until when the program may have
/// waited for a pass over the disk ([`crate::profile::pace`]).
pub(super) fn wait_for_last_page(target: &Opened, step: &Step, is_over: impl Fn() -> bool) {
    let number = step.bytes.end.saturating_sub(1) / page_size();
    wait_for_page(target, number, Instant::now() + PATIENCE, is_over);
}

/// The same for all pages of a step, in any order, `until` then at most.
pub(super) fn wait_for_pages(
    target: &Opened,
    step: &Step,
    until: Instant,
    is_over: impl Fn() -> bool,
) {
    step.pages().iter().for_each(|number| wait_for_page(target, number, until, &is_over));
}

/// The same for one page, by its number.
fn wait_for_page(target: &Opened, number: u64, until: Instant, is_over: impl Fn() -> bool) {
    let page = page_size();
    // Blocks of metadata that the file system reads by itself never count as read for one
    // who does not wait (block_is_partially_uptodate of fs/buffer.c), and a device answers.
    let flags = match target.kind {
        Kind::Device => ReadWriteFlags::empty(),
        Kind::File | Kind::Unnoticed => ReadWriteFlags::NOWAIT,
    };
    // What is gone again has come, too.
    let is_coming = || are_resident(&target.file, PageRange::of(number, 1));
    while is_coming() && !is_over() && Instant::now() < until {
        let mut byte = [0u8];
        let into = &mut [IoSliceMut::new(&mut byte)];
        if rustix::io::preadv2(&target.file, into, number * page, flags) != Err(Errno::AGAIN) {
            break;
        }
        thread::sleep(LOOK);
    }
}

/// Whether the last page of a step is resident, without waiting or reading; a page that is gone again has
/// arrived, too. Of a file that is not this user's own the kernel always says so.
pub(super) fn has_arrived(target: &Opened, step: &Step) -> bool {
    let page = page_size();
    let number = step.bytes.end.saturating_sub(1) / page;
    let mut is_there = [false];
    mincore(&target.file, number * page, &mut is_there).is_err()
        || is_there == [true]
        || !are_resident(&target.file, PageRange::of(number, 1))
}

/// Waits for every page of a step: what was requested together lies in several places, and may
/// come in any order. A page that is gone again is not read a second time. Calls `note` for each.
pub(super) fn wait_for_all_pages(target: &Opened, step: &Step, note: impl Fn()) {
    let page = page_size();
    let pages = step.pages();
    let there = |pages: PageRange| {
        resident_count(&target.file, pages).map_or(true, |count| count == pages.count())
    };
    let all = there(pages);
    for at in pages.iter().filter(|at| all || there(PageRange::of(*at, 1))) {
        // A read error is the program's to meet.
        let _ = rustix::io::pread(&target.file, &mut [0u8][..], at * page);
        note();
    }
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::opened;
    use super::*;
    use crate::host::range::ByteRange;
    use std::cell::Cell;

    #[test]
    fn waiting_ends_for_pages_that_came_and_for_those_that_never_do() {
        for kind in [Kind::File, Kind::Unnoticed, Kind::Device] {
            let (_dir, target) = opened(2 * 4096, kind);
            for (offset, length) in [(0, 4096), (4096, 1), (0, 0), (0, 2 * 4096), (1 << 30, 4096)] {
                let step = Step { target: 0, bytes: ByteRange::of(offset, length), touched_us: 0 };
                let began = Instant::now();
                wait_for_last_page(&target, &step, || false);
                wait_for_pages(&target, &step, began + PATIENCE, || false);
                assert!(began.elapsed() < PATIENCE, "{kind:?} {offset} {length}");
                let pages = Cell::new(0);
                wait_for_all_pages(&target, &step, || pages.set(pages.get() + 1));
                assert!(pages.get() <= length.div_ceil(4096), "{kind:?} {offset} {length}");
            }
        }
    }
}
