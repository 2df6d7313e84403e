//! What is imported of recordings of real tools (`fixtures/import`).
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // Files of tests end.

use headstart_import::accesses::{Accesses, Name};
use headstart_import::detect::{Format, detect};
use headstart_import::perf_data::faults::count as count_perf;
use headstart_import::trace_dat::faults::count;
use headstart_import::{import, perf_data};
use std::collections::BTreeMap;
use std::path::Path;

fn bytes(name: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/import");
    std::fs::read(fixtures.join(name)).unwrap()
}

fn imported(name: &str, format: Format) -> Accesses {
    let bytes = bytes(name);
    assert_eq!(detect(&bytes), Some(format), "{name}");
    import(&bytes, format, 4096).unwrap()
}

/// Pages of each file by its path.
fn pages(accesses: &Accesses) -> BTreeMap<String, u64> {
    let path = |name: &Name| match name {
        Name::Path(path) => String::from_utf8_lossy(path).into_owned(),
        Name::Inode(id) => format!("{}", id.ino),
    };
    accesses.files().into_iter().map(|(name, spans)| (path(name), spans.pages())).collect()
}

#[test]
fn logs_of_strace_tell_what_was_read_and_mapped_with_and_without_paths() {
    for name in ["strace.log", "strace-y.log"] {
        let accesses = imported(name, Format::Strace);
        let pages = pages(&accesses);
        assert_eq!(pages["/usr/share/common-licenses/GPL-3"], 9, "{name}");
        assert_eq!(pages["/etc/services"], 4, "{name}");
        assert!(
            pages.contains_key("/lib/x86_64-linux-gnu/libc.so.6")
                || pages.contains_key("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            "{name}: {pages:?}"
        );
        assert!(pages.contains_key("/usr/bin/wc"), "{name}: executed: {pages:?}");
        assert!(accesses.has_times && accesses.duration() > 1_000_000, "{name}");
        assert_eq!(accesses.lacks.not_understood, 0, "{name}");
    }
}

#[test]
fn a_log_of_fatrace_tells_whole_files() {
    let accesses = imported("fatrace.log", Format::Fatrace);
    let pages = pages(&accesses);
    assert!(pages["/usr/share/common-licenses/GPL-3"] > 1 << 40);
    assert_eq!(accesses.lacks.not_understood, 0);
}

#[test]
fn traces_of_trace_cmd_tell_the_same_in_each_version_and_compression() {
    let all = ["pages-v7-zstd.dat", "pages-v7-none.dat", "pages-v6.dat"];
    let found = all.map(|name| {
        let accesses = imported(name, Format::TraceDat);
        assert!(accesses.has_access_events && accesses.lacks.not_understood == 0, "{name}");
        pages(&accesses)
    });
    assert!(found[0].len() > 15, "{:?}", found[0]);
    assert_eq!((&found[1], &found[2]), (&found[0], &found[0]));
}

#[test]
fn the_counter_finds_the_calls_of_the_function_graph_in_each_version_and_compression() {
    for name in ["graph-v6.dat", "graph-v7-none.dat", "graph-v7-zlib.dat", "graph-v7-zstd.dat"] {
        let counts = count(&bytes(name)).unwrap();
        let took = 53_556 + 489_639 + (0..1000u64).map(|n| 400 + n % 7 * 100).sum::<u64>();
        assert_eq!((counts.faults.count, counts.faults.time_ns), (1002, took), "{name}");
        assert_eq!((counts.mappings, counts.kinds.reads.count), (18, 1), "{name}");
        assert_eq!(counts.files[0].1.by_faults, 17, "{name}");
        assert_eq!((counts.broken, counts.unended, counts.lost), (0, 0, 0), "{name}");
        assert_eq!(counts.threads[1].1, b"chrome", "{name}");
    }
}

#[test]
fn events_of_perf_are_accesses_to_files_that_its_mappings_name() {
    let accesses = imported("pages-zstd.data", Format::PerfData);
    assert!(accesses.has_access_events);
    let named = accesses.inodes().iter().filter(|id| accesses.paths.contains_key(id)).count();
    assert!(named >= 4, "{named} of {:?}", accesses.paths.len());
}

#[test]
fn faults_of_perf_have_places_and_latencies_also_compressed() {
    for name in ["faults.data", "faults-zstd.data"] {
        let bytes = bytes(name);
        assert!(perf_data::is_perf(&bytes));
        let faults = count_perf(&bytes).unwrap();
        assert!(faults.has_latencies && faults.has_addresses && !faults.is_sampled, "{name}");
        assert_eq!((faults.lost, faults.skipped), (0, 0), "{name}");
        assert_eq!(faults.begun, faults.minor + faults.major, "{name}");
        let recording = &faults.recording;
        let placed = recording.faults.iter().filter(|f| f.mapping.is_some() && f.latency > 0);
        assert!(placed.count() as u64 * 10 >= faults.begun * 9, "{name}");
        let pages = pages(&imported(name, Format::PerfData));
        assert!(pages.keys().any(|path| path.ends_with("libc.so.6")), "{name}: {pages:?}");
    }
}
