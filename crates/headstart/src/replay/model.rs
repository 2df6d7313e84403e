//! How a block device behaves, and which way of reading suits it. Pure; [`super::probe`]
//! measures, [`super::models`] keeps what was measured.

use super::way::{Order, Way};
use serde::{Deserialize, Serialize};

/// What was measured of a device.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub struct Model {
    /// How long a read of 4 KiB somewhere takes alone, in µs.
    pub latency_us: u32,
    /// How long one right behind the last takes, in µs.
    pub next_us: u32,
    /// Rate of a large read, in MB/s.
    pub bandwidth_mb_s: u32,
    /// Reads in flight beyond which there are not many more a second.
    pub depth: u32,
    /// Reads of 4 KiB a second at that depth.
    pub iops: u32,
}

/// Latency that a change of place adds where there is an arm to move, in µs. The
/// fastest disks need several times as much.
const SEEK_US: u32 = 1000;
/// And how many times that of a read right behind the last it is.
const SEEK_TIMES: u32 = 3;

impl Model {
    /// What a change of place costs, in µs; 0 where places do not matter.
    pub fn seek_us(&self) -> u32 {
        let seek = self.latency_us.saturating_sub(self.next_us);
        let matters = seek >= SEEK_US && self.latency_us / SEEK_TIMES >= self.next_us;
        if matters { seek } else { 0 }
    }

    /// Bytes that take as long to transfer as one request more costs.
    fn bytes_of_a_request(&self) -> u64 {
        let rate = u64::from(self.bandwidth_mb_s);
        let ns = 1_000_000_000 / u64::from(self.iops.max(1));
        (ns * rate / 1000).saturating_sub(4096)
    }

    /// The way that suits it.
    pub fn way(&self) -> Way {
        if self.seek_us() > 0 {
            // More threads would send the arm to and fro between their steps.
            return Way { order: Order::Disk, threads: 1, step_bytes: 1 << 20, ..Way::default() };
        }
        let gap = self.bytes_of_a_request() & !4095;
        Way {
            order: Order::Touch,
            // What blocks is looking up where files lie.
            threads: if self.depth == 1 {
                2
            } else if self.latency_us >= 1000 {
                8
            } else {
                4
            },
            step_bytes: if self.depth == 1 { 1 << 20 } else { 512 << 10 },
            // Below that, the metadata of neighbours is asked for one by one.
            gap_bytes: gap.clamp(32 << 10, 64 << 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(latency_us: u32, next_us: u32, bandwidth_mb_s: u32, depth: u32, iops: u32) -> Model {
        Model { latency_us, next_us, bandwidth_mb_s, depth, iops }
    }

    #[test]
    fn a_disk_with_an_arm_is_swept_and_others_are_read_in_touch_order() {
        for (name, model, order, threads, step, gap) in [
            ("hard disk", model(8340, 140, 100, 1, 119), Order::Disk, 1, 1024, 32),
            ("eMMC", model(330, 330, 150, 1, 3000), Order::Touch, 2, 1024, 44),
            ("network volume", model(1500, 1500, 125, 16, 3000), Order::Touch, 8, 512, 36),
            ("lazy volume", model(5000, 5000, 125, 16, 3000), Order::Touch, 8, 512, 36),
            ("SSD", model(80, 80, 500, 32, 50_000), Order::Touch, 4, 512, 32),
            ("memory", model(10, 10, 5000, 16, 400_000), Order::Touch, 4, 512, 32),
            (
                "a cache that knows what comes",
                model(300, 30, 400, 16, 20_000),
                Order::Touch,
                4,
                512,
                32,
            ),
        ] {
            let way = model.way();
            assert_eq!(
                (way.order, way.threads, way.step_bytes >> 10, way.gap_bytes >> 10),
                (order, threads, step, gap),
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_figures_make_a_way_that_can_not_be_walked(
            figures in proptest::array::uniform5(any::<u32>())
        ) {
            let [latency, next, bandwidth, depth, iops] = figures;
            let way = model(latency, next, bandwidth, depth, iops).way();
            prop_assert!(way.threads > 0 && way.step_bytes >= 1 << 19);
            prop_assert!(way.gap_bytes >= 32 << 10 && way.gap_bytes <= 64 << 10);
        }
    }
}
