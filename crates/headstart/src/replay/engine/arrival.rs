//! Waits until requested pages are resident: the last page of a step, or every page; and until a disk
//! reads batches in their order.

use super::targets::Opened;
use crate::cache::residency::{are_resident, page_size, resident_count};
use crate::host::open::Kind;
use crate::host::range::PageRange;
use crate::replay::step::Step;
use headstart_sys::mincore::mincore;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::sync::Arc;
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

/// Waits until all pages of these steps have arrived, in any order, or it `is_over`; `until` then at most.
pub(super) fn wait_for_pages(steps: &[Requested], until: Instant, is_over: impl Fn() -> bool) {
    let mut pages = Arriving::of(steps);
    while !pages.have_arrived() && !is_over() && Instant::now() < until {
        thread::sleep(LOOK);
    }
}

/// Waits until the disk reads two batches of a pass in their order ([`InOrder`]), or it `is_over`; `until`
/// then at most.
pub(super) fn wait_for_order(
    first: &[Requested],
    second: &[Requested],
    until: Instant,
    is_over: impl Fn() -> bool,
) {
    let (mut first, mut second) = (Arriving::of(first), Arriving::of(second));
    let mut order = InOrder::default();
    while !order.holds(first.next(), second.have_arrived()) && !is_over() && Instant::now() < until
    {
        thread::sleep(LOOK);
    }
}

/// A step whose file is open.
pub(super) type Requested = (Arc<Opened>, Step);

/// Which pages of some steps have arrived, from the first one on.
struct Arriving<'a> {
    steps: &'a [Requested],
    /// The first page that has not arrived, by its step and its number there.
    next: (usize, u64),
}

impl<'a> Arriving<'a> {
    fn of(steps: &'a [Requested]) -> Self {
        Self { steps, next: (0, 0) }
    }

    /// The first page that has not arrived, if any.
    fn next(&mut self) -> Option<(usize, u64)> {
        while let Some((target, step)) = self.steps.get(self.next.0) {
            let pages = step.pages();
            let mut left = pages.first + self.next.1..pages.end;
            if let Some(awaited) = left.find(|page| is_awaited(target, *page)) {
                self.next.1 = awaited - pages.first;
                return Some(self.next);
            }
            self.next = (self.next.0 + 1, 0);
        }
        None
    }

    fn have_arrived(&mut self) -> bool {
        self.next().is_none()
    }
}

/// Whether the disk reads two batches in their order, by what has arrived of them.
///
/// It does when all of the first is there. A read of the program may have moved the head past the first batch, or a
/// part of it: then the second comes before. The disk has gone back when more of the first is there after that,
/// and has the rest of it to read.
#[derive(Default)]
struct InOrder {
    /// Whether the second batch was not there at first.
    awaits_second: Option<bool>,
    /// The first page that was lacking when the second batch was there.
    lacked: Option<(usize, u64)>,
}

impl InOrder {
    /// Looks at the first page of the first batch that lacks, and whether all of the second is there.
    fn holds(&mut self, lacks: Option<(usize, u64)>, has_second: bool) -> bool {
        let awaits_second = *self.awaits_second.get_or_insert(!has_second);
        if awaits_second && has_second && self.lacked.is_none() {
            self.lacked = lacks;
        }
        lacks.is_none() || self.lacked.is_some_and(|lacked| lacks > Some(lacked))
    }
}

/// Waits until a page, by its number, has arrived, or it `is_over`; `until` then at most.
fn wait_for_page(target: &Opened, number: u64, until: Instant, is_over: impl Fn() -> bool) {
    while is_awaited(target, number) && !is_over() && Instant::now() < until {
        thread::sleep(LOOK);
    }
}

/// Whether a page, by its number, is in the page cache and has not been read yet. Of one that has, a byte is read.
fn is_awaited(target: &Opened, number: u64) -> bool {
    // Blocks of metadata that the file system reads by itself never count as read for one
    // who does not wait (block_is_partially_uptodate of fs/buffer.c), and a device answers.
    let flags = match target.kind {
        Kind::Device => ReadWriteFlags::empty(),
        Kind::File | Kind::Unnoticed => ReadWriteFlags::NOWAIT,
    };
    // What is gone again has come, too.
    are_resident(&target.file, PageRange::of(number, 1)) && {
        let mut byte = [0u8];
        let into = &mut [IoSliceMut::new(&mut byte)];
        let at = number * page_size();
        rustix::io::preadv2(&target.file, into, at, flags) == Err(Errno::AGAIN)
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
                let steps = [(target.clone(), step), (target.clone(), step)];
                wait_for_pages(&steps, began + PATIENCE, || false);
                wait_for_order(&steps[..1], &steps[1..], began + PATIENCE, || false);
                assert!(began.elapsed() < PATIENCE, "{kind:?} {offset} {length}");
                let pages = Cell::new(0);
                wait_for_all_pages(&target, &step, || pages.set(pages.get() + 1));
                assert!(pages.get() <= length.div_ceil(4096), "{kind:?} {offset} {length}");
            }
        }
    }

    #[test]
    fn a_disk_reads_in_order_when_the_first_batch_is_there_or_comes_after_the_second() {
        // The page of the first batch that lacks, in steps of ten, and whether the second is there, at each look.
        type Looks = &'static [(Option<u64>, bool)];
        let cases: [(&str, Looks, Option<usize>); 8] = [
            ("in order", &[(Some(0), false), (Some(5), false), (None, false)], Some(2)),
            ("nothing to wait for", &[(None, false)], Some(0)),
            ("the second first", &[(Some(0), false), (Some(0), true), (Some(1), true)], Some(2)),
            (
                "the second in the middle of the first",
                &[
                    (Some(0), false),
                    (Some(4), false),
                    (Some(4), true),
                    (Some(4), true),
                    (Some(5), true),
                ],
                Some(4),
            ),
            ("in the next step", &[(Some(5), false), (Some(5), true), (Some(10), true)], Some(2)),
            (
                "the disk has not gone back",
                &[(Some(3), false), (Some(3), true), (Some(3), true)],
                None,
            ),
            (
                "the second was there before",
                &[(Some(0), true), (Some(1), true), (Some(2), true)],
                None,
            ),
            ("both at once", &[(Some(0), false), (None, true)], Some(1)),
        ];
        let at = |page| (page as usize / 10, page % 10);
        for (name, looks, expected) in cases {
            let mut order = InOrder::default();
            let holds = |(lacks, has): &(Option<u64>, bool)| order.holds(lacks.map(at), *has);
            assert_eq!(looks.iter().position(holds), expected, "{name}");
        }
    }
}
