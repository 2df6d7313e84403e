//! The packs of boots: which names are those of packs, and any pack by file system.
#![no_main]

use headstart::boot::pack_name::{file_name, key, parse};
use headstart::boot::split::{is_empty, share, split};
use headstart::pack::{Pack, Range};
use headstart_fuzz::{check_encoding, pack};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;

fuzz_target!(|data: &[u8]| {
    if let Ok(name) = std::str::from_utf8(data)
        && let Some((phase, key)) = parse(name)
    {
        assert_eq!(format!("{phase}@{key}.pack"), name);
    }
    let Some(whole) = pack(data) else { return };
    let shares = split(&whole);
    for (fs, part) in &shares {
        assert!(!is_empty(part));
        check_encoding(part);
        assert_eq!(parse(&file_name("system", fs)), Some(("system", key(fs).as_str())));
        assert_eq!(shares.iter().filter(|(other, _)| other.is(fs)).count(), 1);
        let again = split(part);
        assert_eq!(again.len(), 1);
        assert!(again[0].0 == *fs && contents(&again[0].1) == contents(part));
        assert!(share(whole.clone(), |other| other.is(fs)).is_some());
    }
});

/// What a pack holds, whatever the order of files that were touched at the same time.
fn contents(pack: &Pack) -> Vec<(Option<PathBuf>, u64, u64, u32, u32, u8)> {
    let file = |r: &Range| &pack.files[r.file as usize];
    let data = pack.ranges.iter().map(|r| {
        let path = pack.paths.path(file(r).node);
        (Some(path), file(r).identity.ino, r.first, r.pages, r.at_us, r.history.0)
    });
    let metadata = pack.metadata.iter();
    let metadata = metadata.map(|r| (None, 0, r.first, r.pages, r.at_us, r.history.0));
    let mut all: Vec<_> = data.chain(metadata).collect();
    all.sort();
    all
}
