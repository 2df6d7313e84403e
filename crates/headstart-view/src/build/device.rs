//! A device: requests in flight, bandwidth, and the times in which nothing was in flight.

use super::accesses::kind::DEVICE;
use super::flow;
use crate::picture::{
    Axis, Colour, Column, Flow, Frame, Kind, MOST, Mark, Marks, Panel, Picture, Series, Span,
    Subject, Unit, View, Y,
};
use crate::units::{amount, grouped};

/// Intervals over time.
const BINS: usize = 1000;
/// Idle times that are drawn, the longest.
const GAPS: usize = 500;
/// Bytes of a sector.
const SECTOR: u64 = 512;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes, or discards.
    Write,
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// When it was issued, in ns from the start.
    pub issued_ns: u64,
    /// When it was done, in ns from the start; if that was not seen, the end of the recording.
    pub done_ns: u64,
    /// Where it begins on the device, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// What it does.
    pub direction: Direction,
}

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its requests, by the time of issue.
    pub requests: Vec<Request>,
}

/// What the marks are, behind those of accesses.
fn kinds() -> [Kind; 2] {
    [
        Kind::new("read", Colour::Green, Mark::Plain),
        Kind::new("written or discarded", Colour::Pink, Mark::Hatched),
    ]
}

/// Adds the view to a picture of accesses that ends at `end_ns`.
pub(super) fn add(picture: &mut Picture, devices: &[Device], end_ns: u64) {
    if devices.is_empty() {
        return;
    }
    debug_assert_eq!(picture.kinds.len(), DEVICE);
    picture.kinds.extend(kinds());
    let devices: Vec<Device> = devices.iter().map(bounded).collect();
    let done = devices.iter().flat_map(|device| &device.requests).map(|request| request.done_ns);
    let end_ns = done.max().unwrap_or(0).max(end_ns).clamp(1, MOST);
    let mut subjects = Vec::new();
    for device in &devices {
        let frame = picture.frames.len();
        picture.frames.push(rows(device));
        subjects.push(subject(device, frame, end_ns));
    }
    picture.views.push(View {
        title: "Device".into(),
        help: "From top to bottom: requests in flight, bandwidth, and each request at its place on the \
               device, as long as it took. Nothing was in flight in the shaded times."
            .into(),
        x: Axis::new("time from the start", Unit::Ns, 0.0, end_ns as f64),
        subjects,
    });
}

/// With times and offsets that a picture can have, in the order of issue.
fn bounded(device: &Device) -> Device {
    let request = |request: &Request| {
        let issued_ns = request.issued_ns.min(MOST);
        let done_ns = request.done_ns.clamp(issued_ns, MOST);
        let (offset, bytes) = (request.offset.min(MOST / 2), request.bytes.min(MOST / 4));
        let offset = offset / SECTOR * SECTOR;
        Request { issued_ns, done_ns, offset, bytes, direction: request.direction }
    };
    let mut requests: Vec<Request> = device.requests.iter().map(request).collect();
    requests.sort_by_key(|request| request.issued_ns);
    Device { name: device.name.clone(), requests }
}

fn rows(device: &Device) -> Frame {
    let values =
        |of: &dyn Fn(&Request) -> u64| device.requests.iter().map(of).collect::<Vec<u64>>();
    let kind = |request: &Request| DEVICE as u64 + u64::from(request.direction == Direction::Write);
    Frame::new(vec![
        Column::numbers("at", Unit::Ns, 1, values(&|request| request.issued_ns)),
        Column::numbers("took", Unit::Ns, 1, values(&took)),
        Column::numbers("offset", Unit::Bytes, SECTOR, values(&|request| request.offset / SECTOR)),
        Column::numbers(
            "size",
            Unit::Bytes,
            SECTOR,
            values(&|request| request.bytes.div_ceil(SECTOR)),
        ),
        Column { unit: Unit::Kind, ..Column::numbers("", Unit::Count, 1, values(&kind)) },
    ])
}

fn took(request: &Request) -> u64 {
    request.done_ns.saturating_sub(request.issued_ns)
}

fn subject(device: &Device, frame: usize, end_ns: u64) -> Subject {
    let idle = gaps(&device.requests, end_ns);
    let idle_ns: u64 = idle.iter().map(|(from, to)| to - from).sum();
    let longest = idle.iter().map(|(from, to)| to - from).max().unwrap_or(0);
    let bytes = device.requests.iter().fold(0u64, |sum, request| sum.saturating_add(request.bytes));
    let time = |ns: u64| amount(Unit::Ns, ns as f64);
    let summary = format!(
        "{} requests, {}; idle for {} of {}, at most {} at once",
        grouped(device.requests.len() as f64, 0),
        amount(Unit::Bytes, bytes as f64),
        time(idle_ns),
        time(end_ns),
        time(longest)
    );
    let width = end_ns as f64 / BINS as f64;
    let in_flight = over_time(device, width, &|request| took(request) as f64);
    let bandwidth = over_time(device, width, &|request| request.bytes as f64 * 1e9);
    let panel = |title, unit, flow| Panel { spans: spans(&idle), ..flow::panel(title, unit, flow) };
    let ends = device.requests.iter().map(|r| r.offset.saturating_add(r.bytes));
    let low = device.requests.iter().map(|r| r.offset).min().unwrap_or(0) as f64;
    let axis = Axis::new("place", Unit::Bytes, low, ends.max().unwrap_or(0) as f64);
    let mut places = Panel::new("requests by their place on the device", Y::Value(axis));
    places.marks = Some(Marks { frame, x: Some(0), length: Some(1), y: 2, kind: 4, only: None });
    Subject {
        name: (&device.name).into(),
        summary: summary.into(),
        x_high: None,
        panels: vec![
            panel("requests in flight", Unit::Count, in_flight),
            panel("bandwidth", Unit::BytesPerSecond, bandwidth),
            places,
        ],
    }
}

/// An amount of each request, evenly over the time that it was in flight, by ns.
fn over_time(device: &Device, width: f64, amount: &dyn Fn(&Request) -> f64) -> Flow {
    let series =
        [Direction::Read, Direction::Write].into_iter().enumerate().map(|(number, direction)| {
            let mut values = vec![0.0; BINS];
            for request in device.requests.iter().filter(|request| request.direction == direction) {
                let (from, to) =
                    (request.issued_ns as f64, request.done_ns.max(request.issued_ns + 1) as f64);
                let each = amount(request) / (to - from);
                let last = ((to / width) as usize).min(BINS - 1);
                for (bin, value) in
                    values.iter_mut().enumerate().take(last + 1).skip((from / width) as usize)
                {
                    let (begin, end) = (bin as f64 * width, (bin + 1) as f64 * width);
                    *value += each * (end.min(to) - begin.max(from)).max(0.0) / width;
                }
            }
            Series { kind: DEVICE + number, total: "".into(), values }
        });
    Flow { from: 0.0, width, stacked: true, series: series.collect() }
}

/// When nothing was in flight.
fn gaps(requests: &[Request], end_ns: u64) -> Vec<(u64, u64)> {
    let mut idle_from = 0;
    let mut out = Vec::new();
    for (issued, done) in
        requests.iter().map(|r| (r.issued_ns, r.done_ns)).chain([(end_ns, end_ns)])
    {
        if issued > idle_from {
            out.push((idle_from, issued));
        }
        idle_from = idle_from.max(done);
    }
    out
}

fn spans(gaps: &[(u64, u64)]) -> Vec<Span> {
    let mut longest = gaps.to_vec();
    longest.sort_by_key(|(from, to)| std::cmp::Reverse(to - from));
    longest.truncate(GAPS);
    longest.sort_unstable();
    let span = |(from, to): (u64, u64)| Span {
        from: from as f64,
        to: to as f64,
        name: format!("idle, {}", amount(Unit::Ns, (to - from) as f64)).into(),
    };
    longest.into_iter().map(span).collect()
}
