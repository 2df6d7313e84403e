//! Recordings for the tests of rules.

use crate::facts::Facts;
use crate::observed::{Part, Touch, sum};
use headstart::replay::model::Model;
use headstart_faults::tables::Segment;

/// A network volume.
pub(super) const CLOUD: Model = Model { iops: 2500, ..Model::of(5000, 5000, 125, 16, 3000) };

pub(super) fn part(segment: Segment, touches: impl IntoIterator<Item = (u64, u64)>) -> Part {
    let touch = |(page, latency)| Touch { process: 0, page, latency, is_major: latency >= 100_000 };
    Part { path: "/lib/x.so".into(), segment, touches: touches.into_iter().map(touch).collect() }
}

pub(super) fn facts(parts: Vec<Part>) -> Facts {
    let mut facts = Facts { wall_ns: 1_000_000_000, ..Facts::default() };
    facts.command = vec!["x".into()];
    let majors = parts.iter().flat_map(|part| &part.touches).filter(|touch| touch.is_major);
    facts.total.major = sum(majors);
    facts.observed.parts = parts;
    facts
}
