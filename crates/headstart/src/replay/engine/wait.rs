//! Waiting for what was asked for: for its last page, or for every page, or until so much
//! has arrived that more may be asked for.

use super::Shared;
use super::opened::Opened;
use crate::cache::residency::resident_count;
use crate::host::open::Kind;
use crate::replay::step::Step;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a page has arrived, and for how long: one that the disk
/// can't read stays in memory as if it were on its way.
const LOOK: Duration = Duration::from_micros(250);
const PATIENCE: Duration = Duration::from_secs(1);

impl Shared {
    /// Waits until so many bytes of a step may be asked for.
    pub(super) fn wait_for_room(&self, bytes: u64) {
        let Some(limit) = self.plan.way.in_flight else { return };
        if !self.flight.on_way().has_room(bytes, limit) {
            // What was gathered need not wait for this; before our turn, since what can't be
            // asked for together waits for room itself.
            self.ask_for_gathered(true);
        }
        let _turn = self.flight.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let oldest = self.flight.on_way().make_room(bytes, limit);
            let Some(((target, step), bytes)) = oldest else { return };
            self.see_arrive(&target, &step);
            self.flight.on_way().arrived(bytes);
            if self.is_over() {
                return;
            }
        }
    }

    /// Counts a step of which so many bytes were asked for.
    pub(super) fn note_on_way(&self, target: &Arc<Opened>, step: &Step, bytes: u64) {
        let is_watched = matches!(target.kind, Kind::Device | Kind::Unnoticed);
        if is_watched && self.plan.way.in_flight.is_some() {
            self.flight.on_way().add((target.clone(), *step), bytes);
        }
    }

    /// Waits until the last page of a step is in memory, for [`PATIENCE`] at most, and reads a
    /// byte of it: by that event in a trace it is known until when the program may have waited
    /// for a sweep ([`crate::profile::pace`]).
    pub(super) fn see_arrive(&self, target: &Opened, step: &Step) {
        let page = rustix::param::page_size() as u64;
        let number = (step.offset + step.length.max(1) - 1) / page;
        // Blocks of metadata that the file system reads by itself never count as read for one
        // who does not wait (block_is_partially_uptodate of fs/buffer.c), and a device answers.
        let flags = match target.kind {
            Kind::Device => ReadWriteFlags::empty(),
            Kind::File | Kind::Unnoticed => ReadWriteFlags::NOWAIT,
        };
        // What is gone again has come, too.
        let is_coming = || resident_count(&target.file, number, 1).is_ok_and(|n| n > 0);
        let until = Instant::now() + PATIENCE;
        while is_coming() && !self.is_over() && Instant::now() < until {
            let mut byte = [0u8];
            let into = &mut [IoSliceMut::new(&mut byte)];
            if rustix::io::preadv2(&target.file, into, number * page, flags) != Err(Errno::AGAIN) {
                break;
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits for every page of a step: what was asked for together lies in
    /// several places, and may come in any order. A page that is gone again is
    /// not read a second time.
    pub(super) fn wait_for(&self, step: &Step) {
        if let Some(target) = self.opened(step.target as usize) {
            let page = rustix::param::page_size() as u64;
            let (first, end) = (step.offset / page, (step.offset + step.length).div_ceil(page));
            let there = |first, pages| {
                resident_count(&target.file, first, pages).map_or(true, |count| count == pages)
            };
            let all = there(first, end - first);
            for at in (first..end).filter(|at| all || there(*at, 1)) {
                // A read error is the program's to meet.
                let _ = rustix::io::pread(&target.file, &mut [0u8][..], at * page);
            }
        }
        self.note_use(step);
    }
}
