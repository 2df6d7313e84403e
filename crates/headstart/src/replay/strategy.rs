//! The read strategy of a plan: order, threads, sizes of steps and gaps, limits. Pure.

use super::elevator::SeekCost;
use serde::Serialize;
use std::fmt;

/// In which order steps are read.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Touch order, with metadata ahead.
    Touch,
    /// By position on the device, in passes, after all metadata.
    Elevator,
}

/// The read strategy of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct ReadStrategy {
    /// The order.
    pub order: Order,
    /// How many threads make requests; in rows at queue depth 1 one of them does, and the others open files.
    pub threads: usize,
    /// The largest step, in bytes. The engine cuts it further where the device
    /// takes less.
    pub step_bytes: u64,
    /// The largest gap that is read with what is around it, in bytes, because a
    /// request costs more.
    pub gap_bytes: u64,
    /// The longest time between the touches of what is read in one step, in µs.
    pub near_us: u32,
    /// Batched readahead: whether small steps are requested in one call, so that adjacent ones
    /// become one request.
    pub batched: bool,
    /// Rows: while at least so much is in flight, steps wait for others, and those that are adjacent
    /// are requested in one call; `None` in batches, and where the number of requests does not matter.
    pub rows: Option<InFlight>,
    /// The metadata lookahead in bytes: metadata is read this far ahead of its data; `None`: all
    /// metadata comes first, as in elevator order.
    pub metadata_lead: Option<u64>,
    /// The in-flight limit, where there is one.
    pub in_flight: Option<InFlight>,
    /// The cost of a seek on a rotational disk, which decides where a single pass begins, or how
    /// several passes are divided.
    pub seek: Option<SeekCost>,
    /// Whether there may be several passes, in batches; without seeks it is one.
    pub in_passes: bool,
}

/// An amount that is requested and not yet resident, such as the in-flight limit.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct InFlight {
    /// Bytes.
    pub bytes: u64,
    /// Steps; of the in-flight limit requests, for which a row of adjacent steps is one.
    pub steps: usize,
}

/// With several passes, ranges with touches this far apart are not read in one step.
const APART_US: u32 = 200_000;

/// Metadata lies scattered in groups: gaps up to this size are always read.
const METADATA_GAP: u64 = 32 << 10;
/// On rotational disks, where skipping a gap takes as long as reading it, they may be this large.
const ELEVATOR_METADATA_GAP: u64 = 256 << 10;

impl Default for ReadStrategy {
    /// Harmless on any device: a request costs more than 32 KiB on nearly all, and with resident
    /// metadata four threads hardly block.
    fn default() -> Self {
        Self {
            order: Order::Touch,
            threads: 4,
            step_bytes: 512 << 10,
            gap_bytes: 32 << 10,
            near_us: u32::MAX,
            batched: false,
            rows: None,
            metadata_lead: None,
            in_flight: None,
            seek: None,
            in_passes: false,
        }
    }
}

impl ReadStrategy {
    /// The same with several passes, if this is in elevator order.
    #[must_use]
    pub fn in_passes(self) -> Self {
        match self.order {
            Order::Elevator => Self { near_us: APART_US, in_passes: true, ..self },
            Order::Touch => self,
        }
    }

    /// Whether it depends on where steps lie which of them become one request. Elsewhere a request more
    /// costs less than to ask the file system.
    pub fn joins_by_place(&self) -> bool {
        self.order == Order::Elevator || self.batched || self.rows.is_some()
    }

    /// From how much in flight on steps wait for others, where rows are formed: in touch order, without
    /// batches.
    pub(super) fn rows_while_busy(&self) -> Option<InFlight> {
        self.rows.filter(|_| self.order == Order::Touch && !self.batched)
    }

    /// Whether one thread makes all requests, while the others open the files that come next: in rows at queue depth 1,
    /// where there is no in-flight limit. A device with a queue works better on what several threads wait for.
    pub(super) fn opens_ahead(&self) -> bool {
        self.rows_while_busy().is_some() && self.in_flight.is_none()
    }

    /// How many bytes of metadata go ahead of the data: in elevator order all.
    pub(super) fn metadata_lead(&self) -> u64 {
        self.metadata_lead.filter(|_| self.order == Order::Touch).unwrap_or(u64::MAX)
    }

    /// The largest gap between two ranges of metadata that is read too.
    pub fn metadata_gap_bytes(&self) -> u64 {
        match self.order {
            Order::Touch => self.gap_bytes.max(METADATA_GAP),
            Order::Elevator => self.gap_bytes.max(ELEVATOR_METADATA_GAP),
        }
    }
}

impl fmt::Display for ReadStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::Touch => "touch",
            Order::Elevator => "elevator",
        };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        write!(
            f,
            "{order} order, {} {threads}, steps of {} KiB",
            self.threads,
            self.step_bytes >> 10
        )?;
        if self.gap_bytes > 0 {
            write!(f, ", gaps up to {} KiB read too", self.gap_bytes >> 10)?;
        }
        if self.batched {
            f.write_str(", batched")?;
        }
        if self.rows.is_some() {
            f.write_str(", in rows")?;
        }
        if let Some(InFlight { bytes, steps }) = self.in_flight {
            write!(f, ", in-flight limit {} MiB and {steps} requests", bytes >> 20)?;
        }
        Ok(())
    }
}
