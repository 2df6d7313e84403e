use super::*;
use proptest::prelude::*;

/// CBOR values, as `prefetch` writes them.
mod write {
    pub fn head(kind: u8, number: u64) -> Vec<u8> {
        match number {
            0..24 => vec![kind << 5 | number as u8],
            24..256 => vec![kind << 5 | 24, number as u8],
            _ => [&[kind << 5 | 27][..], &number.to_be_bytes()].concat(),
        }
    }
    pub fn text(text: &str) -> Vec<u8> {
        [head(3, text.len() as u64), text.into()].concat()
    }
    pub fn number(number: u64) -> Vec<u8> {
        head(0, number)
    }
    pub fn array(items: &[Vec<u8>]) -> Vec<u8> {
        [head(4, items.len() as u64), items.concat()].concat()
    }
    pub fn map(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| [&key[..], value].concat()).collect();
        [head(5, entries.len() as u64), entries.concat()].concat()
    }
    pub fn object(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        map(&entries.iter().map(|(key, value)| (text(key), value.clone())).collect::<Vec<_>>())
    }
}
use write::{array, number, object, text};

fn records(records: &[[u64; 4]]) -> Vec<u8> {
    let magic = array(&MAGIC.map(|byte| number(byte.into())));
    let file = |path: &str| {
        object(&[
            ("inode_number", number(12)),
            ("file_size", number(1 << 20)),
            ("paths", array(&[text(path), text("/other/name")])),
            ("device_number", number(64_768)),
        ])
    };
    let files = write::map(&[(number(1), file("/a")), (number(300), file("/b"))]);
    let record = |[id, offset, length, time]: &[u64; 4]| {
        object(&[
            ("file_id", number(*id)),
            ("offset", number(*offset)),
            ("length", number(*length)),
            ("timestamp", number(*time)),
        ])
    };
    object(&[
        ("header", object(&[("magic", magic), ("major_number", number(0))])),
        (
            "inner",
            object(&[
                ("filesystems", object(&[("map", object(&[]))])),
                ("inode_map", object(&[("map", files)])),
                ("records", array(&records.iter().map(record).collect::<Vec<_>>())),
            ]),
        ),
    ])
}

#[test]
fn records_come_in_the_order_of_their_times() {
    let bytes = records(&[[300, 0, 4096, 7_000_000], [300, 8192, 4096, 9], [1, 0, 8192, 8]]);
    assert!(is_records(&bytes) && !is_iorap(&bytes));
    let accesses = import_records(&bytes, 4096).unwrap();
    let files = accesses.files();
    let of = |number: usize| -> Vec<_> {
        files[number].1.iter().map(|s| (s.pages.first, s.pages.count(), s.at)).collect()
    };
    assert_eq!(files[0].0, &Name::Path(b"/a".to_vec()));
    assert_eq!((of(0), of(1)), (vec![(0, 2, 0)], vec![(0, 1, 6_999_992), (2, 1, 1)]));
    assert!(!accesses.has_access_events);
}

#[test]
fn records_that_are_cut_are_refused_or_shorter() {
    let whole = records(&[[1, 0, 4096, 1], [9, 0, 4096, 2]]);
    assert_eq!(import_records(&whole, 4096).unwrap().lacks.not_understood, 1, "no file 9");
    for end in 0..whole.len() {
        let _ = import_records(&whole[..end], 4096);
    }
    assert!(import_records(&whole[..90], 4096).unwrap_err().to_string().contains("cut off"));
}

#[test]
fn a_compiled_trace_keeps_the_order_of_its_list() {
    let message = |number: u8, content: Vec<u8>| {
        [&[number << 3 | 2, content.len() as u8][..], &content].concat()
    };
    let named = |id: u8, path: &str| [&[8, id, 18, path.len() as u8][..], path.as_bytes()].concat();
    let index = [message(1, named(1, "/a")), message(1, named(2, "/b"))].concat();
    let part = |id: u8, pages: u8| vec![8, id, 16, 0x80, 0x20 * pages, 24, 0x80, 0x20];
    let list = [message(1, part(2, 1)), message(1, part(1, 0)), message(1, part(7, 0))].concat();
    let bytes = [message(1, index), message(2, list)].concat();
    assert!(is_iorap(&bytes));
    let accesses = import_iorap(&bytes, 4096).unwrap();
    let names: Vec<_> = accesses.files().iter().map(|(name, _)| (*name).clone()).collect();
    assert_eq!(names, [Name::Path(b"/b".to_vec()), Name::Path(b"/a".to_vec())]);
    assert_eq!(accesses.lacks.not_understood, 1);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..400, byte: u8,
    ) {
        let _ = (import_records(&bytes, 4096), import_iorap(&bytes, 4096), is_records(&bytes));
        let mut damaged = records(&[[1, 0, 4096, 1], [300, 0, 4096, 2]]);
        let at = at % damaged.len();
        damaged[at] = byte;
        let _ = import_records(&damaged, 4096);
    }
}
