//! The fields of a sample, in their order (`perf_event_open(2)`, `PERF_RECORD_SAMPLE`).

use super::layout::{Attribute, Attributes};
use crate::fields::Fields;

/// `PERF_SAMPLE_*`
mod kind {
    pub const IP: u64 = 1;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const IDENTIFIER: u64 = 1 << 16;
}
/// `PERF_FORMAT_*`
const TIME_ENABLED: u64 = 1;
const TIME_RUNNING: u64 = 2;
const READ_ID: u64 = 4;
const GROUP: u64 = 8;
const READ_LOST: u64 = 16;

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sample<'a> {
    pub ip: u64,
    pub pid: i32,
    pub tid: i32,
    pub time: u64,
    pub address: u64,
    /// Events that it stands for.
    pub period: u64,
    /// The record of a trace event.
    pub raw: &'a [u8],
}

/// The fields of a record's end, where it is no sample: process, thread and time.
pub(super) fn trailer(body: &[u8], attribute: &Attribute) -> Option<(i32, i32, u64)> {
    let kinds = [kind::TID, kind::TIME, kind::ID, kind::STREAM_ID, kind::CPU, kind::IDENTIFIER];
    let has = |kind: u64| attribute.sample_type & kind != 0;
    let length = kinds.iter().filter(|kind| has(**kind)).count() * 8;
    let mut fields = Fields(body.get(body.len().checked_sub(length)?..)?);
    let (pid, tid) = if has(kind::TID) { (fields.i32()?, fields.i32()?) } else { (0, 0) };
    Some((pid, tid, if has(kind::TIME) { fields.u64()? } else { 0 }))
}

/// Bytes of the trailer.
pub(super) fn trailer_bytes(attribute: &Attribute) -> usize {
    let kinds = kind::TID | kind::TIME | kind::ID | kind::STREAM_ID | kind::CPU | kind::IDENTIFIER;
    if attribute.has_trailer {
        (attribute.sample_type & kinds).count_ones() as usize * 8
    } else {
        0
    }
}

/// The event of a sample among several: samples of all have its number at the same place.
pub(super) fn attribute_of<'a>(body: &[u8], attributes: &'a Attributes) -> Option<&'a Attribute> {
    let first = attributes.all.first()?;
    if attributes.all.len() == 1 {
        return Some(first);
    }
    let has = |kind: u64| first.sample_type & kind != 0;
    let id = if has(kind::IDENTIFIER) {
        Fields(body).u64()?
    } else if has(kind::ID) {
        let before = [kind::IP, kind::TID, kind::TIME, kind::ADDR];
        let before = before.iter().filter(|kind| has(**kind)).count() * 8;
        Fields(body.get(before..)?).u64()?
    } else {
        return None;
    };
    attributes.of_id(id)
}

/// The fields of a sample of an event.
pub(super) fn sample<'a>(body: &'a [u8], attribute: &Attribute) -> Option<Sample<'a>> {
    let mut fields = Fields(body);
    let has = |kind: u64| attribute.sample_type & kind != 0;
    let mut out = Sample { period: 1, ..Sample::default() };
    if has(kind::IDENTIFIER) {
        fields.u64()?;
    }
    if has(kind::IP) {
        out.ip = fields.u64()?;
    }
    if has(kind::TID) {
        (out.pid, out.tid) = (fields.i32()?, fields.i32()?);
    }
    if has(kind::TIME) {
        out.time = fields.u64()?;
    }
    if has(kind::ADDR) {
        out.address = fields.u64()?;
    }
    for skipped in [kind::ID, kind::STREAM_ID, kind::CPU] {
        if has(skipped) {
            fields.u64()?;
        }
    }
    if has(kind::PERIOD) {
        out.period = fields.u64()?;
    }
    if has(kind::READ) {
        read(&mut fields, attribute.read_format)?;
    }
    if has(kind::CALLCHAIN) {
        let count = fields.u64()?;
        fields.take(count.checked_mul(8)?)?;
    }
    if has(kind::RAW) {
        let size = fields.u32()?;
        out.raw = fields.take(size.into())?;
    }
    Some(out)
}

/// Skips the values of counters.
fn read(fields: &mut Fields, format: u64) -> Option<()> {
    let has = |flag: u64| u64::from(format & flag != 0);
    let times = has(TIME_ENABLED) + has(TIME_RUNNING);
    let each = 1 + has(READ_ID) + has(READ_LOST);
    let words = if format & GROUP != 0 {
        let count = fields.u64()?;
        times.checked_add(count.checked_mul(each)?)?
    } else {
        times + each
    };
    fields.take(words.checked_mul(8)?).map(|_| ())
}
