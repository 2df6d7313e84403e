//! How long a request to a device takes: by its model, if it was measured; else the mean of the
//! requests since it appeared, as the kernel counts them (`Documentation/block/stat.rst`). Without
//! that, programs on a slow device that was never measured would not be found slow, and a device is
//! measured only when one of its programs is learned.

use headstart::host::contents;
use headstart::host::id::Dev;
use headstart::replay::model::Model;
use headstart::replay::models::Models;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Fewer requests than this say little.
const FEW_REQUESTS: u64 = 16;
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);
/// Devices whose answers are kept, at most.
const MOST_DEVICES: usize = 256;

/// What is known of devices.
#[derive(Debug, Default)]
pub(super) struct Latencies(HashMap<u64, (Instant, Duration)>);

impl Latencies {
    /// How long a request takes to a device, by its number of stat(2).
    pub(super) fn of(&mut self, dev: u64) -> Duration {
        if let Some((read, latency)) = self.0.get(&dev)
            && read.elapsed() < KEPT
        {
            return *latency;
        }
        let latency = now(Dev::from_stat(dev));
        if self.0.len() >= MOST_DEVICES {
            self.0.clear();
        }
        self.0.insert(dev, (Instant::now(), latency));
        latency
    }
}

fn now(dev: Dev) -> Duration {
    if let Some(model) = Models::here().of_device(dev) {
        return Duration::from_micros(model.latency_us.into());
    }
    let stat = contents::text(format!("/sys/dev/block/{dev}/stat")).unwrap_or_default();
    let assumed = Duration::from_micros(Model::ASSUMED.latency_us.into());
    mean(&stat).unwrap_or(assumed)
}

/// The mean time of read requests.
fn mean(stat: &str) -> Option<Duration> {
    let mut fields = stat.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    let requests = fields.next()?;
    // Behind the requests that were merged, and the sectors.
    let spent = Duration::from_millis(fields.nth(2)?);
    (requests >= FEW_REQUESTS).then(|| spent / u32::try_from(requests).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_never_measured_takes_as_long_as_its_requests_took() {
        for (stat, expected) in [
            ("200 3 4096 1000 0 0 0 0 0 900 1000", Some(5)),
            ("15 0 120 75 0 0 0 0 0 75 75", None),
            ("200 3 4096", None),
            ("-1 3 4096 1000", None),
            ("", None),
        ] {
            assert_eq!(mean(stat), expected.map(Duration::from_millis), "{stat}");
        }
    }

    #[test]
    fn what_is_no_disk_is_taken_for_a_network_volume() {
        let latency = Latencies::default().of(rustix::fs::makedev(0, 1));
        assert_eq!(latency, Duration::from_millis(1));
    }
}
