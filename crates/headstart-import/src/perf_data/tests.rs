use super::layout::MAGIC;
use super::*;
use crate::unpack::Compression;
use headstart::host::id::{Dev, InodeId};
use proptest::prelude::*;

const TID: u64 = 2;
const TIME: u64 = 4;
const ADDR: u64 = 8;
const IDENTIFIER: u64 = 1 << 16;
const KINDS: u64 = 1 | TID | TIME | ADDR | 1 << 8 | IDENTIFIER;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn ints(ints: &[i32]) -> Vec<u8> {
    ints.iter().flat_map(|int| int.to_ne_bytes()).collect()
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u16 + 8).to_ne_bytes();
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size, body].concat()
}

/// A sample of an event of thread 7.
fn sample(id: u64, time: u64, address: u64) -> Vec<u8> {
    record(9, 0, &[words(&[id, 0x5000]), ints(&[7, 7]), words(&[time, address, 1])].concat())
}

fn trailer(time: u64) -> Vec<u8> {
    [ints(&[7, 7]), words(&[time, 1])].concat()
}

fn mapping(time: u64, start: u64, length: u64, offset: u64, path: &str) -> Vec<u8> {
    let mut name = path.as_bytes().to_vec();
    name.resize((path.len() + 1).next_multiple_of(8), 0);
    let file = [ints(&[8, 1]), words(&[42, 0]), ints(&[5, 2])].concat();
    let body = [ints(&[7, 7]), words(&[start, length, offset]), file, name, trailer(time)].concat();
    record(10, 0, &body)
}

/// A file with software events of these kinds, numbered from 1.
fn file(events: &[u64], data: &[u8]) -> Vec<u8> {
    let entry = 64 + 16u64;
    let attributes_at = 104 + events.len() as u64 * 8;
    let mut out =
        [&MAGIC[..], &words(&[104, entry, attributes_at, entry * events.len() as u64])].concat();
    let data_at = attributes_at + entry * events.len() as u64;
    out.extend(words(&[data_at, data.len() as u64, 0, 0]));
    out.extend([0; 32]);
    out.extend((1..=events.len() as u64).flat_map(u64::to_ne_bytes));
    for (number, event) in events.iter().enumerate() {
        let mut attribute = [ints(&[1, 64]), words(&[*event, 1, KINDS, 0, 1 << 18])].concat();
        attribute.resize(64, 0);
        out.extend(attribute);
        out.extend(words(&[104 + number as u64 * 8, 8]));
    }
    [&out[..], data].concat()
}

fn records() -> Vec<u8> {
    [
        sample(1, 5_000, 0x10_2345),
        mapping(10, 0x10_0000, 0x8000, 0x3000, "/lib/x.so"),
        sample(3, 5_700, 0),
        sample(2, 9_500, 0),
        sample(1, 9_000, 0x10_7fff),
        sample(1, 9_900, 0x99_0000),
        record(2, 0, &[words(&[1, 9]), trailer(9_999)].concat()),
    ]
    .concat()
}

/// The same records, compressed as perf does: one frame over several records without an end.
fn compressed(records: &[u8]) -> Vec<u8> {
    let frame = crate::trace_dat::made::packed(records, Compression::Zstd);
    let whole = [&0xfd2f_b528u32.to_le_bytes()[..], &frame].concat();
    whole.chunks(64).flat_map(|piece| record(81, 0, piece)).collect()
}

#[test]
fn faults_are_paired_and_placed_in_their_mappings_also_out_of_order_and_compressed() {
    for (name, data) in [("plain", records()), ("compressed", compressed(&records()))] {
        let found = faults::count(&file(&[2, 5, 6], &data)).unwrap();
        assert_eq!((found.begun, found.minor, found.major), (3, 1, 1), "{name}");
        assert!(found.has_latencies && found.has_addresses && !found.is_sampled, "{name}");
        assert_eq!((found.lost, found.skipped), (9, 0), "{name}");
        let recording = &found.recording;
        let faults: Vec<_> = recording
            .faults
            .iter()
            .map(|f| (f.latency, recording.mapping(f.mapping).map(|m| m.offset_of(f.address))))
            .collect();
        assert_eq!(faults, [(700, Some(0x5345)), (500, Some(0xafff)), (0, None)], "{name}");
    }
}

#[test]
fn faults_become_accesses_to_pages_of_their_files() {
    let accesses = import(&file(&[2, 5, 6], &records()), 4096).unwrap();
    let files = accesses.files();
    let spans: Vec<_> = files[0].1.iter().map(|span| (span.pages.first, span.at)).collect();
    assert_eq!(files[0].0, &Name::Path(b"/lib/x.so".to_vec()));
    assert_eq!((files.len(), spans), (1, vec![(5, 0), (10, 4_000)]));
    assert_eq!(accesses.lacks.lost, 9);
}

#[test]
fn without_faults_what_is_mapped_is_taken_as_a_whole() {
    let data = mapping(10, 0x10_0000, 0x8000, 0x3000, "/lib/x.so");
    let accesses = import(&file(&[0], &data), 4096).unwrap();
    let files = accesses.files();
    let spans: Vec<_> = files[0].1.iter().map(|s| (s.pages.first, s.pages.count())).collect();
    assert_eq!(spans, [(3, 8)]);
    let error = faults::count(&file(&[0], &data)).unwrap_err().to_string();
    assert!(error.contains("no events of page faults"), "{error}");
}

#[test]
fn a_mapping_with_a_build_id_has_no_inode() {
    let mut data = mapping(10, 0x10_0000, 0x8000, 0, "/lib/x.so");
    let perf = |data: &[u8]| {
        let bytes = file(&[2], data);
        let file = PerfData::parse(&bytes).unwrap();
        let stream = Stream::of(&file).unwrap();
        let what = stream.records().next().unwrap().what;
        let stream::What::Kernel(What::Map(mapped)) = what else { panic!("{what:?}") };
        mapped.file
    };
    assert_eq!(perf(&data), InodeId { dev: Dev::new(8, 1), ino: 42 });
    data[5] |= 1 << 6;
    assert_eq!(perf(&data), InodeId { dev: Dev(0), ino: 0 });
}

#[test]
fn what_is_not_read_is_refused_in_a_sentence() {
    let good = file(&[2, 5, 6], &records());
    let with = |at: usize, bytes: &[u8]| {
        let mut file = good.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    for (bytes, words) in [
        (with(0, b"2ELIFREP"), "byte order"),
        (with(8, &16u64.to_ne_bytes()), "pipe"),
        (with(48, &0u64.to_ne_bytes()), "did not finish"),
        (with(16, &0u64.to_ne_bytes()), "the events"),
        (good[..good.len() - 1].to_vec(), "the records"),
        (file(&[2], &record(81, 0, b"no frame")), "a compressed record"),
    ] {
        let error = import(&bytes, 4096).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_fault_that_goes_on_while_records_are_lost_has_no_latency() {
    let lost = record(2, 0, &[words(&[1, 9]), trailer(5_500)].concat());
    let data = [sample(1, 5_000, 0x10_2345), lost, sample(3, 5_700, 0)].concat();
    let found = faults::count(&file(&[2, 5, 6], &data)).unwrap();
    assert_eq!((found.recording.faults.len(), found.recording.faults[0].latency), (1, 0));
    assert_eq!(found.lost, 9);
}

#[test]
fn samples_of_many_events_are_found_by_their_numbers() {
    let samples: Vec<u8> = (1..=2000).flat_map(|id| sample(id, id, 0x1000)).collect();
    let found = faults::count(&file(&[2; 2000], &samples)).unwrap();
    assert_eq!((found.begun, found.skipped), (2000, 0));
}

#[test]
fn forks_that_copy_many_mappings_are_refused() {
    let maps = (0..2000).flat_map(|at| mapping(at, at << 16, 4096, 0, "/x"));
    let forks = (8..4008).flat_map(|pid| {
        let fork =
            record(7, 0, &[ints(&[pid, 7, pid, 7]), words(&[9_000]), trailer(9_000)].concat());
        let mut map = mapping(9_001, 1, 4096, 0, "/x");
        map[8..12].copy_from_slice(&pid.to_ne_bytes());
        [fork, map].concat()
    });
    let data: Vec<u8> = maps.chain(forks).collect();
    let error = faults::count(&file(&[2], &data)).unwrap_err();
    assert_eq!(error, ImportError::TooMuch(12));
}

proptest! {
    #[test]
    fn a_damaged_file_makes_no_panic(
        is_compressed: bool, at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
    ) {
        let data = if is_compressed { compressed(&records()) } else { records() };
        let mut file = file(&[2, 5, 6], &data);
        let at = at.index(file.len());
        file[at] = byte;
        let _ = (import(&file, 4096), faults::count(&file));
        file.truncate(cut.index(file.len()));
        let _ = (import(&file, 4096), faults::count(&file));
    }
}
