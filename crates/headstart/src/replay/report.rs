//! The figures of a replay, counted during it.

use crate::pack::Pack;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The figures of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Portions that were requested from the kernel.
    pub requests: u64,
    /// Bytes requested that were not in memory.
    pub bytes: u64,
    /// Of `bytes`, those of file-system metadata.
    pub metadata_bytes: u64,
    /// Bytes of the plan that were in memory already.
    pub resident_bytes: u64,
    /// Bytes of the plan that were not checked, because a sample was resident.
    pub assumed_bytes: u64,
    /// Files that were opened.
    pub files: u64,
    /// Files that were replaced or changed since they were learned.
    pub stale_files: u64,
    /// Files that changed since they were learned and were read, since each start changes them.
    pub changing_files: u64,
    /// Files that were replaced since they were learned and were read, as similar ones.
    pub followed_files: u64,
    /// Files that are gone.
    pub missing_files: u64,
    /// Files that this user may not read.
    pub forbidden_files: u64,
    /// Files that were skipped because another process still waits for their file server.
    pub unserved_files: u64,
    /// Files and requests that failed otherwise.
    pub failed: u64,
    /// Block devices that could not be opened, so that their metadata is left
    /// to the program.
    pub closed_devices: u64,
    /// File systems whose metadata is left to the program because they are not mounted.
    pub absent_devices: u64,
    /// Bytes of the plan that belong to the files and devices above.
    pub dropped_bytes: u64,
    /// Bytes that were not requested because the budget was used up.
    pub over_budget_bytes: u64,
    /// Bytes of gaps that were not read, since they lie elsewhere on the device ([`super::gaps`]).
    pub apart_bytes: u64,
    /// Bytes of the pack that were skipped because too few starts touch them.
    pub seldom_bytes: u64,
    /// Why the replay was stopped, if it was for memory pressure.
    pub stopped: Option<Stopped>,
    /// Bytes that were not requested because of that.
    pub stopped_bytes: u64,
    /// Whether the end of the plan was reached.
    pub complete: bool,
    /// Whether it reads in touch order.
    pub in_touch_order: bool,
    /// Whether a thread was left behind that waits for a file, as when a file server does not
    /// answer.
    pub stuck: bool,
    /// From the start of the process to the first request, in µs.
    pub first_request_us: Option<u64>,
    /// From the start of the replay to its end, in µs.
    pub elapsed_us: u64,
}

/// A replay counts as whole if it skipped at most this share of the plan, in percent: lock files
/// and the like are gone in each start.
const SKIPPED_PERCENT: u64 = 1;

impl Report {
    /// Whether nearly all of the pack was prefetched or resident, so that pages that the program
    /// brings in are its own readahead.
    pub fn is_whole(&self) -> bool {
        self.complete && self.over_budget_bytes == 0 && self.is_current()
    }

    /// Whether nearly all files so far are still what was learned.
    pub fn is_current(&self) -> bool {
        let dealt_with = self.bytes + self.resident_bytes + self.assumed_bytes;
        let skipped = self.dropped_bytes.saturating_mul(100);
        skipped <= dealt_with.saturating_mul(SKIPPED_PERCENT)
    }

    /// Share of the plan that was read from the disk, 0 to 1; 0 where nothing was planned. The
    /// rest was in memory, or was not read. Gaps that were skipped don't count.
    pub fn read_share(&self) -> f64 {
        let others = [
            self.resident_bytes,
            self.assumed_bytes,
            self.dropped_bytes,
            self.over_budget_bytes,
            self.stopped_bytes,
        ];
        let all = others.iter().fold(self.bytes, |sum, bytes| sum.saturating_add(*bytes));
        self.bytes as f64 / all.max(1) as f64
    }

    /// Adds another part of the same plan, which was executed in parallel.
    pub fn add(&mut self, other: &Self) {
        for (count, of) in [
            (&mut self.requests, other.requests),
            (&mut self.bytes, other.bytes),
            (&mut self.metadata_bytes, other.metadata_bytes),
            (&mut self.resident_bytes, other.resident_bytes),
            (&mut self.assumed_bytes, other.assumed_bytes),
            (&mut self.files, other.files),
            (&mut self.stale_files, other.stale_files),
            (&mut self.changing_files, other.changing_files),
            (&mut self.followed_files, other.followed_files),
            (&mut self.missing_files, other.missing_files),
            (&mut self.forbidden_files, other.forbidden_files),
            (&mut self.unserved_files, other.unserved_files),
            (&mut self.failed, other.failed),
            (&mut self.closed_devices, other.closed_devices),
            (&mut self.absent_devices, other.absent_devices),
            (&mut self.dropped_bytes, other.dropped_bytes),
            (&mut self.over_budget_bytes, other.over_budget_bytes),
            (&mut self.apart_bytes, other.apart_bytes),
            (&mut self.seldom_bytes, other.seldom_bytes),
            (&mut self.stopped_bytes, other.stopped_bytes),
        ] {
            *count += of;
        }
        self.stopped = self.stopped.or(other.stopped);
        self.complete &= other.complete;
        self.in_touch_order |= other.in_touch_order;
        self.stuck |= other.stuck;
        let first = [self.first_request_us, other.first_request_us];
        self.first_request_us = first.into_iter().flatten().min();
        self.elapsed_us = self.elapsed_us.max(other.elapsed_us);
    }

    /// The figures of each of these packs, which were read by one plan. Bytes and requests are
    /// divided by the size of the packs; the other figures belong to the first.
    pub fn divided(&self, packs: &[Pack]) -> Vec<Self> {
        let metadata: Vec<u64> = packs.iter().map(Pack::metadata_bytes).collect();
        let data: Vec<u64> = packs.iter().map(Pack::data_bytes).collect();
        let of_metadata = shares(self.metadata_bytes, &metadata);
        let of_data = shares(self.bytes.saturating_sub(self.metadata_bytes), &data);
        let of_requests = shares(self.requests, &data);
        let both: Vec<u64> =
            metadata.iter().zip(&data).map(|(m, d)| m.saturating_add(*d)).collect();
        let others = [self.resident_bytes, self.assumed_bytes, self.dropped_bytes];
        let [resident, assumed, dropped] = others.map(|bytes| shares(bytes, &both));
        let of_pack = |number: usize| {
            let complete = self.complete && self.over_budget_bytes == 0;
            let rest = Self { complete, ..Self::default() };
            Self {
                bytes: of_data[number] + of_metadata[number],
                metadata_bytes: of_metadata[number],
                requests: of_requests[number],
                resident_bytes: resident[number],
                assumed_bytes: assumed[number],
                dropped_bytes: dropped[number],
                ..if number == 0 { *self } else { rest }
            }
        };
        (0..packs.len()).map(of_pack).collect()
    }
}

/// Divides a number by these weights; the remainder belongs to the first.
fn shares(all: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let share = |weight: &u64| (u128::from(all) * u128::from(*weight)).checked_div(sum);
    let mut out: Vec<u64> = weights.iter().map(|w| share(w).unwrap_or(0) as u64).collect();
    let given: u64 = out.iter().sum();
    if let Some(first) = out.first_mut() {
        *first += all.saturating_sub(given);
    }
    out
}

/// Why a replay was stopped: memory pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Pages that were requested were reclaimed again.
    Reclaimed,
    /// Tasks had to wait for memory.
    Pressure,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reclaimed => "memory is being reclaimed",
            Self::Pressure => "tasks wait for memory",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{History, MetadataRange, Origin};

    #[test]
    fn what_was_skipped_keeps_a_replay_from_counting_as_whole() {
        let read = Report { complete: true, bytes: 600, resident_bytes: 400, ..Report::default() };
        for (name, report, expected) in [
            ("all was read", read, true),
            ("a lock file is gone", Report { dropped_bytes: 10, ..read }, true),
            ("a library was replaced", Report { dropped_bytes: 11, ..read }, false),
            (
                "all was replaced",
                Report { bytes: 0, resident_bytes: 0, dropped_bytes: 1, ..read },
                false,
            ),
            ("it was stopped", Report { complete: false, ..read }, false),
            ("there was no room", Report { over_budget_bytes: 1, ..read }, false),
        ] {
            assert_eq!(report.is_whole(), expected, "{name}");
        }
    }

    #[test]
    fn what_several_packs_brought_is_divided_and_nothing_of_it_lost() {
        let range = |pages| MetadataRange {
            file_system: 0,
            first: 0,
            pages,
            at_us: 0,
            history: History(1),
        };
        let pack = |pages| Pack {
            origin: Origin { page_shift: 12, ..Origin::default() },
            metadata: vec![range(pages)],
            ..Pack::default()
        };
        let whole = Report {
            requests: 7,
            bytes: 1000,
            metadata_bytes: 1000,
            files: 3,
            complete: true,
            ..Report::default()
        };
        let parts = whole.divided(&[pack(1), pack(2)]);
        let metadata: Vec<u64> = parts.iter().map(|part| part.metadata_bytes).collect();
        assert_eq!(metadata, [334, 666]);
        assert_eq!(parts.iter().map(|part| part.requests).sum::<u64>(), 7);
        assert_eq!((parts[0].files, parts[1].files), (3, 0));
        assert!(parts.iter().all(|part| part.complete));
        let mut both = Report { in_touch_order: true, ..whole };
        both.add(&whole);
        assert!(both.in_touch_order && both.complete && both.requests == 14);
        let over = Report { over_budget_bytes: 1, ..whole };
        let over = over.divided(&[pack(1), pack(2)]);
        assert_eq!((over[0].over_budget_bytes, over[1].over_budget_bytes), (1, 0));
        assert!(!over[1].complete, "what was over the budget may have been of any");
        let dropped = Report { dropped_bytes: whole.bytes, ..whole };
        let dropped = dropped.divided(&[pack(1), pack(2)]);
        assert!(dropped.iter().all(|part| !part.is_whole()), "so may what was skipped");
        assert_eq!(whole.divided(&[Pack::default()]), [whole]);
    }
}
