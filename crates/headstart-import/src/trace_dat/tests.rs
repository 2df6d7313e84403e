use super::made::{FAULT, enters, insert, leaves, page, read, version_6, version_7};
use super::*;
use crate::unpack::Compression;
use faults::{FileSum, Kinds, Sum, count};
use headstart::host::id::{Dev, InodeId};
use proptest::prelude::*;

/// Two CPUs with three faults, two of which bring pages in, and reads.
fn cpus() -> [Vec<u8>; 2] {
    let one = [
        (1_000, enters(7, FAULT + 4)),
        (2_000, insert(7, 42, 5, 0)),
        (3_000, insert(7, 42, 6, 2)),
        (500_000, leaves(7, FAULT + 4, 1_000, 490_640)),
        (600_000, enters(7, FAULT + 4)),
        (601_000, leaves(7, FAULT + 4, 600_000, 600_500)),
        (700_000, enters(7, FAULT + 9999)),
        (701_000, leaves(7, FAULT + 9999, 700_000, 701_000)),
    ];
    let two = [
        (2_500, insert(8, 43, 0, 0)),
        (2_600, read(8, 43, 0, 3)),
        (40_000, leaves(8, FAULT, 39_000, 39_100)),
        (650_000, enters(8, FAULT)),
        (20_000_000, read(8, 43, 9, 9)),
    ];
    [page(&one), [page(&two[..2]), page(&two[2..])].concat()]
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("version 6", version_6(&cpus())),
        ("version 7", version_7(&cpus(), Compression::None)),
        ("zlib", version_7(&cpus(), Compression::Zlib)),
        ("zstd", version_7(&cpus(), Compression::Zstd)),
    ]
}

#[test]
fn a_clock_that_counts_no_ns_is_told_and_keeps_only_the_order() {
    let mut file = version_7(&cpus(), Compression::None);
    let at = file.windows(7).position(|text| text == b"\0local\0").unwrap();
    file[at + 1..at + 6].copy_from_slice(b"other");
    assert_eq!(count(&file).unwrap().odd_clock.as_deref(), Some("other"));
    let accesses = import(&file).unwrap();
    assert!(!accesses.has_times && accesses.duration() < 100_000, "{}", accesses.duration());
    assert!(accesses.lacks.coarse.is_some_and(|text| text.contains("clock")));
}

#[test]
fn the_counter_finds_the_same_in_each_version_and_compression() {
    for (name, file) in files() {
        let counts = count(&file).unwrap();
        let sum = |count, time_ns, max_ns| Sum { count, time_ns, max_ns };
        assert_eq!(counts.faults, sum(3, 490_240, 489_640), "{name}");
        assert_eq!((counts.mappings, counts.mapped_pages), (3, 6), "{name}");
        let kinds = Kinds { hits: sum(2, 600, 500), reads: sum(1, 489_640, 489_640) };
        assert_eq!(counts.kinds, kinds, "{name}");
        let threads: Vec<_> =
            counts.threads.iter().map(|(tid, name, _)| (*tid, &name[..])).collect();
        assert_eq!(threads, [(7, &b"cat"[..]), (8, b"sh")], "{name}");
        let id = |ino| InodeId { dev: Dev::new(8, 1), ino };
        let by_faults = FileSum { by_faults: 5, otherwise: 0, faults: sum(1, 489_640, 489_640) };
        let otherwise = FileSum { by_faults: 0, otherwise: 1, faults: Sum::default() };
        assert_eq!(counts.files, [(id(42), by_faults), (id(43), otherwise)], "{name}");
        assert_eq!((counts.unended, counts.unbegun, counts.broken), (1, 1, 0), "{name}");
        assert_eq!(counts.lost, if name == "version 6" { 3 } else { 0 }, "{name}");
        let latencies: Vec<_> = counts.latencies.iter().map(|sum| sum.count).collect();
        assert_eq!(latencies, [2, 0, 0, 0, 0, 0, 0, 0, 0, 1], "{name}");
        assert_eq!(counts.duration_ns, 20_000_000 - 1_000, "{name}");
    }
}

#[test]
fn reads_are_accesses_of_inodes_in_the_order_of_all_cpus() {
    for (name, file) in files() {
        let accesses = import(&file).unwrap();
        // Without `mm_filemap_map_pages`, what is added counts.
        assert!(!accesses.has_access_events);
        let found: Vec<_> = accesses
            .files()
            .into_iter()
            .map(|(name, spans)| {
                let Name::Inode(id) = name else { panic!("{name:?}") };
                let spans: Vec<_> =
                    spans.iter().map(|s| (s.pages.first, s.pages.count(), s.at)).collect();
                (id.ino, spans)
            })
            .collect();
        let expected = [(42, vec![(5, 5, 0)]), (43, vec![(0, 4, 500), (9, 1, 19_998_000)])];
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn what_is_not_read_is_refused_in_a_sentence() {
    let good = version_7(&cpus(), Compression::Zlib);
    let with = |from: &str, to: &str| {
        let at = good.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut file = good.clone();
        file[at..at + from.len()].copy_from_slice(to.as_bytes());
        file
    };
    let latency = {
        let file = version_6(&cpus());
        let at = file.windows(9).position(|window| window == b"flyrecord").unwrap();
        [&file[..at], b"latency  \0# tracer: wakeup"].concat()
    };
    for (file, words) in [
        (with("zlib", "lzma"), "compressed with lzma"),
        (with("tracing7", "tracing8"), "version 8"),
        (latency, "latency trace"),
        (good[..20].to_vec(), "cut off"),
        (good[..good.len() - 1].to_vec(), "cut off"),
    ] {
        let error = import(&file).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn traces_of_cpus_that_overlap_are_refused() {
    let trace = page(&[(1, read(7, 1, 0, 0))]);
    let mut file = version_6(&[trace.clone(), trace.clone(), trace]);
    let at = file.windows(9).position(|window| window == b"flyrecord").unwrap() + 10;
    for cpu in 0..3 {
        let size = (file.len() as u64 / 2).to_ne_bytes();
        let place = at + cpu * 16;
        file[place..place + 8].copy_from_slice(&0u64.to_ne_bytes());
        file[place + 8..place + 16].copy_from_slice(&size);
    }
    assert!(import(&file).unwrap_err().to_string().contains("the trace of a CPU"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_damaged_file_makes_no_panic(
        which in 0usize..4, at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 1..9),
        cut: prop::sample::Index,
    ) {
        let (_, mut file) = files().swap_remove(which);
        let at = at.index(file.len());
        for (place, byte) in file[at..].iter_mut().zip(bytes) {
            *place = byte;
        }
        let _ = (import(&file), count(&file));
        file.truncate(cut.index(file.len()));
        let _ = (import(&file), count(&file));
    }
}
