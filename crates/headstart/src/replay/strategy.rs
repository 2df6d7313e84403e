//! How a plan is read: in which order, by how many threads, in what portions.
//! Pure.

use super::elevator::SeekCost;
use serde::Serialize;
use std::fmt;

/// In which order steps are read.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As starts touch them, with metadata ahead.
    Touch,
    /// As they lie on the device, in passes, after all metadata.
    Disk,
}

/// A way of reading a plan.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct ReadStrategy {
    /// The order.
    pub order: Order,
    /// How many threads ask.
    pub threads: usize,
    /// The largest step, in bytes. The engine cuts it further where the device
    /// takes less.
    pub step_bytes: u64,
    /// The largest gap that is read with what is around it, in bytes, because a
    /// request costs more.
    pub gap_bytes: u64,
    /// The longest time between the touches of what is read in one step, in µs.
    pub near_us: u32,
    /// Whether small steps are asked for together, so that those that lie side by
    /// side become one request.
    pub together: bool,
    /// So many bytes of metadata are read before the data that is touched with them;
    /// without a number all metadata comes first, as in elevator order.
    pub metadata_lead: Option<u64>,
    /// What may be on its way at most, where that is bounded.
    pub in_flight: Option<InFlight>,
    /// What a seek costs on a rotational disk: it decides at which place one pass begins, or
    /// from when on each of several.
    pub seek: Option<SeekCost>,
    /// Whether there may be several passes, in batches; without seeks it is one.
    pub in_passes: bool,
}

/// What was asked for and may not have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct InFlight {
    /// Bytes.
    pub bytes: u64,
    /// Steps.
    pub steps: usize,
}

/// What is touched so much later is not read in one step where passes are apart.
const APART_US: u32 = 200_000;

/// Metadata lies scattered in groups: gaps up to this size are always read.
const METADATA_GAP: u64 = 32 << 10;
/// Where a rotational disk passes over them anyway, they may be this large.
const ELEVATOR_METADATA_GAP: u64 = 256 << 10;

impl Default for ReadStrategy {
    /// What does no harm on any device: a request costs more than 32 KiB on
    /// nearly all, and with the metadata in memory four threads hardly block.
    fn default() -> Self {
        Self {
            order: Order::Touch,
            threads: 4,
            step_bytes: 512 << 10,
            gap_bytes: 32 << 10,
            near_us: u32::MAX,
            together: false,
            metadata_lead: None,
            in_flight: None,
            seek: None,
            in_passes: false,
        }
    }
}

impl ReadStrategy {
    /// The same in several passes, where they pay, if this is one.
    #[must_use]
    pub fn in_passes(self) -> Self {
        match self.order {
            Order::Disk => Self { near_us: APART_US, in_passes: true, ..self },
            Order::Touch => self,
        }
    }

    /// How many bytes of metadata go ahead of the data: in elevator order all.
    pub(super) fn metadata_lead(&self) -> u64 {
        self.metadata_lead.filter(|_| self.order == Order::Touch).unwrap_or(u64::MAX)
    }

    /// The largest gap between two ranges of metadata that is read too.
    pub fn metadata_gap_bytes(&self) -> u64 {
        match self.order {
            Order::Touch => self.gap_bytes.max(METADATA_GAP),
            Order::Disk => self.gap_bytes.max(ELEVATOR_METADATA_GAP),
        }
    }
}

impl fmt::Display for ReadStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.order {
            Order::Touch => "touch",
            Order::Disk => "disk",
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
        if self.together {
            f.write_str(", small ones together")?;
        }
        if let Some(InFlight { bytes, steps }) = self.in_flight {
            write!(f, ", at most {} MiB in {steps} steps on their way", bytes >> 20)?;
        }
        Ok(())
    }
}
