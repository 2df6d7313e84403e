//! Page faults in a file of perf, as a recording of headstart's own: `page-faults` begins a fault,
//! `minor-faults` and `major-faults` end one. Without the first, or without the others, each is a
//! fault that took no time; without the others, all are minor.

use super::layout::{PerfData, Source};
use super::stream::{Stream, What};
use crate::accesses::MOST_TIMES;
use crate::error::ImportError;
use headstart_faults::record::{Record, What as Kernel};
use headstart_faults::recorder::Recorder;
use headstart_faults::recording::Recording;

/// The faults of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerfFaults {
    /// Each fault, with its mapping.
    pub recording: Recording,
    /// Faults that samples of `page-faults` stand for.
    pub begun: u64,
    /// Those of `minor-faults`.
    pub minor: u64,
    /// Those of `major-faults`.
    pub major: u64,
    /// Whether faults have latencies: their begins and ends were recorded.
    pub has_latencies: bool,
    /// Whether samples have the accessed address.
    pub has_addresses: bool,
    /// Whether a sample stands for several faults.
    pub is_sampled: bool,
    /// From the first record to the last, in ns.
    pub duration_ns: u64,
    /// Events that were lost when it was recorded.
    pub lost: u64,
    /// Records that can't be read.
    pub skipped: u64,
}

/// Counts the faults in a file.
///
/// # Errors
/// The file is damaged, or no event of page faults was recorded.
pub fn count(bytes: &[u8]) -> Result<PerfFaults, ImportError> {
    let file = PerfData::parse(bytes)?;
    let stream = Stream::of(&file)?;
    let events = [Source::Faults, Source::MinorFaults, Source::MajorFaults];
    let [begins, minor_ends, major_ends] = events.map(|source| stream.has(source));
    if [begins, minor_ends, major_ends].iter().all(Option::is_none) {
        return Err(ImportError::Unsupported(
            "The perf.data file has no events of page faults; record with: perf record -c 1 -d \
             -e page-faults,minor-faults,major-faults CMD"
                .into(),
        ));
    }
    let mut out = PerfFaults {
        recording: recording(&stream, bytes.len())?,
        begun: 0,
        minor: 0,
        major: 0,
        has_latencies: begins.is_some() && minor_ends.is_some() && major_ends.is_some(),
        has_addresses: false,
        is_sampled: [begins, minor_ends, major_ends].contains(&Some(false)),
        duration_ns: 0,
        lost: stream.lost(),
        skipped: stream.skipped(),
    };
    let (mut first, mut last) = (None, 0);
    for record in stream.records() {
        if record.time > 0 {
            first.get_or_insert(record.time);
            last = record.time;
        }
        if let What::Fault(source, sample) = record.what {
            out.has_addresses |= sample.address != 0;
            let count = match source {
                Source::Faults => &mut out.begun,
                Source::MinorFaults => &mut out.minor,
                Source::MajorFaults => &mut out.major,
                Source::Tracepoint | Source::Other => continue,
            };
            *count = count.saturating_add(sample.period);
        }
    }
    out.duration_ns = last.saturating_sub(first.unwrap_or(last));
    Ok(out)
}

/// What a mapping takes that is kept for another process too, in bytes.
const COPY_BYTES: usize = 48;
/// What all of these may take for each byte of the file, and in any case.
const COPIES: usize = 4;
const SMALL: usize = 1 << 18;

/// The faults of a stream with their mappings, of a file of so many bytes.
///
/// # Errors
/// The copies of mappings of forked processes take more than the file accounts for.
pub(super) fn recording(stream: &Stream, bytes: usize) -> Result<Recording, ImportError> {
    let most = (SMALL + bytes.saturating_mul(COPIES)) / COPY_BYTES;
    let mut recorder = Recorder::of_running(-1, 0);
    let has = |source| stream.has(source).is_some();
    let has_begins = has(Source::Faults);
    let has_ends = has(Source::MinorFaults) || has(Source::MajorFaults);
    for record in stream.records() {
        let add = |recorder: &mut Recorder, what| {
            let super::stream::Record { time, pid, tid, .. } = record;
            recorder.add(Record { time, pid, tid, what });
        };
        match record.what {
            What::Kernel(what) => add(&mut recorder, what),
            What::Fault(source, sample) => {
                let begin = Kernel::Begin { ip: sample.ip, address: sample.address, page: None };
                if source == Source::Faults || !has_begins {
                    add(&mut recorder, begin);
                }
                if source != Source::Faults || !has_ends {
                    let is_major = source == Source::MajorFaults;
                    add(&mut recorder, Kernel::End { is_major, page: None });
                }
            }
            What::Raw(_) => {}
        }
        if recorder.copied_mappings() > most {
            return Err(ImportError::TooMuch(MOST_TIMES));
        }
    }
    Ok(recorder.finish())
}
