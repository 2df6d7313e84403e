//! Packs: whatever decodes can be walked and comes back as it was, and decoding
//! takes at most 16 times the memory of the file.
#![no_main]

use headstart::pack::codec;
use headstart_fuzz::{check_encoding, pack};
use headstart_sys::counting::{Counting, peak_of};
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FACTOR: usize = 16;

fuzz_target!(|data: &[u8]| {
    let (_, peak) = peak_of(|| codec::decode(data).is_ok());
    assert!(peak <= FACTOR * data.len(), "{peak} bytes for a file of {}", data.len());
    let (pack, peak) = peak_of(|| pack(data));
    assert!(peak <= FACTOR * data.len(), "{peak} bytes for a body of {}", data.len());
    let Some(pack) = pack else { return };
    check_encoding(&pack);
    let _ = (pack.data_bytes(), pack.metadata_bytes());
    for range in &pack.ranges {
        let file = pack.files[range.file as usize];
        assert!(pack.paths.path(file.node).is_absolute());
        let _ = &pack.file_systems[usize::from(file.file_system)];
    }
    for range in &pack.metadata {
        let _ = &pack.file_systems[usize::from(range.file_system)];
    }
});
