//! The worked example of `doc/pack-format.md` is what the codec reads and
//! writes.

use std::path::Path;

use headstart::host::usage::How;
use headstart::pack::codec::{decode, encode};
use headstart::pack::paths::PathInterner;
use headstart::pack::{
    Dropped, File, FileSystem, History, Identity, MetadataRange, Origin, Pack, Range,
};

/// What the document says that the bytes are.
fn example() -> Pack {
    let mut names = PathInterner::default();
    let [a, b] = ["/srv/a", "/srv/b"].map(|path| names.intern(Path::new(path)).unwrap());
    let time = 1_790_000_000_000_000_000;
    let file = |node, ino, size, mtime_ns, ctime_ns, changes| File {
        file_system: 0,
        node,
        identity: Identity { ino, size, mtime_ns, ctime_ns },
        changes: History(changes),
    };
    Pack {
        origin: Origin {
            name: "cat".into(),
            command: b"cat\0/srv/a\0/srv/b".to_vec(),
            kernel: "6.18.0 x86_64".into(),
            page_shift: 12,
            starts: 2,
            learned_at: 1_790_000_300,
            lost_events: 0,
            has_access_events: true,
            buffer_kb: 0,
            duration_us: 2500,
            dropped: Dropped { written: 1, ..Dropped::default() },
        },
        file_systems: vec![FileSystem {
            uuid: Some(*b"\x4f\xdc\x36\x6a\x1c\x1a\x4b\x5e\x9d\x0c\x3f\x56\xb2\x0e\x77\xa1"),
            kind: "ext4".into(),
            source: b"/dev/vda1".to_vec(),
        }],
        paths: names.finish(),
        files: vec![
            file(a, 131, 20_000, time, time + 1000, 0),
            file(b, 130, 4096, time - 1, time - 1, 0b01),
        ],
        ranges: vec![
            Range {
                file: 0,
                first: 0,
                pages: 5,
                at_us: 700,
                how: How::READ,
                history: History(0b11),
            },
            Range {
                file: 1,
                first: 0,
                pages: 1,
                at_us: 900,
                how: How::READ,
                history: History(0b01),
            },
        ],
        metadata: vec![MetadataRange {
            file_system: 0,
            first: 1057,
            pages: 1,
            at_us: 400,
            history: History(0b10),
        }],
    }
}

/// The bytes of the example: what stands before the `;` in its lines.
fn bytes_in(document: &str) -> Vec<u8> {
    let (_, example) = document.split_once("```hex\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    example
        .lines()
        .filter_map(|line| line.split(';').next())
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

#[test]
fn the_example_of_the_document_decodes_to_what_it_says() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/pack-format.md");
    let bytes = bytes_in(&std::fs::read_to_string(document).unwrap());
    assert_eq!(decode(&bytes).unwrap(), example());
    assert_eq!(encode(&example()), bytes);
}
