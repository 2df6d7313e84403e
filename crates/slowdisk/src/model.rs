//! Disk models: what they say, as TOML, and whether it makes sense.
//!
//! How a model turns requests into completion times is in [`crate::sched`].

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The models that come with the program: name and TOML text.
pub const BUILT_IN: [(&str, &str); 7] = [
    ("hdd", include_str!("../models/hdd.toml")),
    ("emmc", include_str!("../models/emmc.toml")),
    ("sd-card", include_str!("../models/sd-card.toml")),
    ("sata-ssd", include_str!("../models/sata-ssd.toml")),
    ("nvme", include_str!("../models/nvme.toml")),
    ("cloud", include_str!("../models/cloud.toml")),
    ("cloud-lazy", include_str!("../models/cloud-lazy.toml")),
];

/// Requests a second at which FUSE, the loop device and 32 clients use up two
/// cores; a model that allows more is slower than it says.
pub const FUSE_REQUESTS_PER_S: f64 = 100_000.0;

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// One line saying what it stands for.
    pub description: String,
    /// Whether the kernel is told that the device rotates.
    #[serde(default)]
    pub rotational: bool,
    /// The times to keep; without them the image is a plain loop device on
    /// memory, as fast as the machine.
    #[serde(default)]
    pub device: Option<Device>,
}

/// The times of a modelled device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// From the start of a read to its first byte, in microseconds.
    pub read_latency_us: f64,
    /// The same for a write, a flush or a discard, in microseconds.
    pub write_latency_us: f64,
    /// How many requests are in service at once; their latencies overlap.
    pub queue_depth: u32,
    /// Transfer rate in 10^6 bytes a second; transfers never overlap.
    pub bandwidth_mb_s: f64,
    /// At most so many reads and writes a second, evenly spaced.
    #[serde(default)]
    pub iops: Option<f64>,
    /// Moving parts.
    #[serde(default)]
    pub seek: Option<Seek>,
}

/// Seek and rotation. A seek over the distance d of a disk of size c takes
/// `settle + (full_stroke - settle) * sqrt(d / c)` and half a revolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// The shortest seek, in microseconds.
    pub settle_us: f64,
    /// From one end of the image to the other, in microseconds.
    pub full_stroke_us: f64,
    /// Revolutions a minute; each seek waits half of one.
    pub rpm: f64,
    /// The next request is the nearest ahead among so many of the oldest.
    pub window: u32,
}

impl Model {
    /// Reads a model from TOML; `name` is for messages.
    ///
    /// # Errors
    /// When the text is not such a document or a value is out of its range.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let wrong = |reason: String| Error::Model { name: name.to_owned(), reason };
        let model: Self = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        model.device.as_ref().map_or(Ok(()), Device::check).map_err(wrong)?;
        Ok(model)
    }

    /// The built-in model of that name or the one in the file of that path.
    ///
    /// # Errors
    /// When there is neither, or the model is not valid.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(n, _)| *n == name) {
            return Self::parse(name, text);
        }
        if !name.contains(['/', '.']) {
            let names = BUILT_IN.map(|(n, _)| n).join(", ");
            let reason = format!("There is none of this name; take {names} or a file's path");
            return Err(Error::Model { name: name.to_owned(), reason });
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(Error::io("read the model", path))?;
        Self::parse(name, &text)
    }
}

impl Device {
    /// Says which value is out of range.
    fn check(&self) -> std::result::Result<(), String> {
        const MINUTE_US: f64 = 60e6;
        let within = |name: &str, v: f64, min: f64, max: f64| {
            let ok = v.is_finite() && (min..=max).contains(&v);
            ok.then_some(()).ok_or_else(|| format!("{name} is {v}; it must be {min} to {max}"))
        };
        within("read_latency_us", self.read_latency_us, 0.0, MINUTE_US)?;
        within("write_latency_us", self.write_latency_us, 0.0, MINUTE_US)?;
        within("queue_depth", f64::from(self.queue_depth), 1.0, 1024.0)?;
        within("bandwidth_mb_s", self.bandwidth_mb_s, 0.001, 1e6)?;
        self.iops.map_or(Ok(()), |v| within("iops", v, 0.1, 1e9))?;
        let Some(seek) = &self.seek else { return Ok(()) };
        within("seek.settle_us", seek.settle_us, 0.0, MINUTE_US)?;
        within("seek.full_stroke_us", seek.full_stroke_us, seek.settle_us, MINUTE_US)?;
        within("seek.rpm", seek.rpm, 1.0, 1e6)?;
        within("seek.window", f64::from(seek.window), 1.0, 1024.0)
    }

    /// The most reads of 4 KiB a second that these times allow, without
    /// seeks of account.
    pub fn requests_per_s(&self) -> f64 {
        let overlapped = f64::from(self.queue_depth) * 1e6 / self.read_latency_us;
        let transferred = self.bandwidth_mb_s * 1e6 / 4096.0;
        overlapped.min(transferred).min(self.iops.unwrap_or(f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_model_is_valid_and_only_nvme_is_not_modelled() {
        for (name, _) in BUILT_IN {
            let model = Model::find(name).unwrap();
            assert_eq!(model.device.is_none(), name == "nvme", "{name}");
            assert_eq!(model.rotational, name == "hdd", "{name}");
            if let Some(device) = model.device {
                assert!(device.requests_per_s() < FUSE_REQUESTS_PER_S, "{name} is above FUSE");
            }
        }
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let good = "description='x'\n[device]\nread_latency_us=1\nwrite_latency_us=1\n\
                    queue_depth=1\nbandwidth_mb_s=1\n";
        assert!(Model::parse("x", good).is_ok());
        for (from, to, name) in [
            ("read_latency_us=1", "read_latency_us=nan", "read_latency_us"),
            ("write_latency_us=1", "write_latency_us=-1", "write_latency_us"),
            ("queue_depth=1", "queue_depth=0", "queue_depth"),
            ("bandwidth_mb_s=1", "bandwidth_mb_s=0", "bandwidth_mb_s"),
            ("queue_depth=1", "queue_depth=1\niops=0", "iops"),
            ("queue_depth=1", "queue_depth=1\nspeed=9", "speed"),
        ] {
            let message = Model::parse("x", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn a_full_stroke_shorter_than_the_shortest_move_is_refused() {
        let text = include_str!("../models/hdd.toml").replace("settle_us = 800", "settle_us = 1e7");
        assert!(Model::parse("x", &text).unwrap_err().to_string().contains("full_stroke_us"));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        assert!(Model::find("floppy").unwrap_err().to_string().contains("cloud-lazy"));
    }

    #[test]
    fn a_path_is_read_as_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), BUILT_IN[0].1).unwrap();
        assert_eq!(
            Model::find(file.path().to_str().unwrap()).unwrap(),
            Model::find("hdd").unwrap()
        );
        assert!(Model::find("./none.toml").unwrap_err().to_string().contains("./none.toml"));
    }
}
