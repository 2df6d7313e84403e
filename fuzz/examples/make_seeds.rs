//! Writes the seeds of the fuzz targets that come from real traces and packs:
//! `cargo run --example make_seeds`. Those of text formats are written by hand.
#![allow(clippy::disallowed_methods)] // Its files end.

use headstart::boot::{self, timeline::Timeline};
use headstart::host::id::Dev;
use headstart::pack::build::{FilePart, Parts};
use headstart::pack::merge::{Rule, merge};
use headstart::pack::paths::PathInterner;
use headstart::pack::{FileSystem, History, Identity, Origin, Pack, codec};
use headstart::profile::fold::{Rules, fold};
use headstart::profile::learn::pieces_of_start;
use headstart::trace::file::Capture;
use headstart_fuzz::capture;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the header before a pack's body.
const HEADER: usize = codec::HEADER_BYTES;

fn main() {
    for (number, name) in ["folios", "losses", "overwritten", "python"].into_iter().enumerate() {
        let whole = capture(number);
        // The last page is the shortest: it was read before it was full.
        let last = whole.pages.iter().last().expect("a fixture has pages");
        let page = last.unpack();
        let page = &page[..page.len().min(2048)];
        let small = Capture { pages: [(last.cpu(), page)].into_iter().collect(), ..whole.clone() };
        seed("ring_page", name, page);
        seed("trace_file", name, &small.to_bytes().expect("a fixture is sound"));
        let description = &whole.description;
        if let Some(format) = description.formats.get(number) {
            let parts = [description.header_page.as_bytes(), format.as_bytes(), page];
            seed("event_format", name, &parts.join(&0));
        }
    }
    let pack = small_pack();
    let body = &codec::encode(&pack)[HEADER..];
    let next = Rule::NextStart { keep: 4, metadata_seen: true, keep_time_us: 0 };
    let grown = merge(&pack, &pack, next);
    let grown = &codec::encode(&grown)[HEADER..];
    seed("pack_decode", "one-start", body);
    seed("pack_decode", "two-starts", grown);
    seed("pack_decode", "file", &codec::encode(&pack));
    seed("plan", "one-start", &[&[0xc2], body].concat());
    // A rotational disk, one with a queue, and one with cheap requests.
    for (name, numbers) in [
        ("hdd", [12_000u32, 200, 150, 1, 90, 90]),
        ("cloud", [1500, 1500, 125, 4, 2500, 3000]),
        ("nvme", [80, 20, 2000, 64, 400_000, 400_000]),
    ] {
        let model: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        seed("device_model", name, &[&model[..], body].concat());
    }
    let own = std::env::current_exe().and_then(fs::read).expect("this program can be read");
    seed("code_pages", "program", &own[..1024]);
    let timeline = Timeline { schema: boot::timeline::SCHEMA.into(), ..Timeline::default() };
    let timeline = serde_json::to_vec(&timeline).expect("a timeline is JSON");
    let record = fs::read(seeds("boot_history").join("record")).expect("a seed");
    // JSON may have blanks where the split falls.
    let gap = [b' '; 32];
    let all = timeline.len() + gap.len() + record.len();
    let share = (timeline.len() + gap.len() / 2) * 256 / all;
    seed("documents", "boot", &[&[share as u8], &timeline[..], &gap, &record].concat());
    for (name, rule) in [("next", 0x14), ("union", 0)] {
        seed("pack_merge", name, &[&[rule, 128], body, body].concat());
    }
    seed("pack_renew", "alike", &[&[128, 0, 1, 120, 140, 255, 2, 100], body].concat());
}

fn seeds(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target)
}

fn seed(target: &str, name: &str, bytes: &[u8]) {
    let dir = seeds(target);
    fs::create_dir_all(&dir).expect("a directory for seeds");
    fs::write(dir.join(name), bytes).expect("a seed");
}

/// Some files and metadata of a start of Python.
fn small_pack() -> Pack {
    let capture = capture(3);
    let rules = Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        has_access_events: true,
        ..Rules::default()
    };
    let seen = fold(capture.events().expect("a fixture is sound"), &rules);
    let mut parts = Parts {
        origin: Origin {
            name: "python3".into(),
            command: b"python3\0-I\0-c\0import ssl".to_vec(),
            kernel: capture.description.kernel,
            page_shift: 12,
            starts: 1,
            learned_at: 1_790_000_000,
            has_access_events: true,
            duration_us: seen.duration / 1000,
            ..Origin::default()
        },
        ..Parts::default()
    };
    let mut names = PathInterner::default();
    let fs = FileSystem { uuid: Some([7; 16]), kind: "ext4".into(), source: b"/dev/loop4".into() };
    let file_system = parts.file_system(&fs).expect("the first");
    let mut files: Vec<_> = seen.files.into_iter().filter(|(id, _)| id.dev.major() == 7).collect();
    files.sort_by_key(|(id, _)| *id);
    for (id, pages) in files.into_iter().take(12) {
        let identity =
            Identity { ino: id.ino, size: 1 << 20, mtime_ns: 1 << 60, ctime_ns: 1 << 60 };
        let pieces = pieces_of_start(&pages.touched);
        let path: PathBuf =
            format!("/usr/lib/python3.11/dir-{}/file-{}", id.ino % 3, id.ino).into();
        let node = names.intern(&path).expect("a path");
        parts.files.insert(
            node,
            FilePart { file_system, identity, changes: History((id.ino % 4) as u8), pieces },
        );
    }
    let metadata = &seen.metadata[&Dev::new(7, 4)];
    parts.metadata.insert(file_system, pieces_of_start(&metadata.inserted));
    parts.build(names.table())
}
