//! Any pack can be taken over to files of any size, into one that can be written and comes
//! back as it was.
#![no_main]

use headstart::pack::renew::{Now, renew};
use headstart::pack::{FileSystem, Identity};
use headstart_fuzz::{bounded, check_encoding, pack};
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    let Some((sizes, data)) = data.split_first_chunk::<8>() else { return };
    let Some(old) = pack(data) else { return };
    let mut sizes = sizes.iter().cycle();
    let now = |_: &Path, _: &FileSystem, was: &Identity| match sizes.next() {
        Some(0) => Now::Gone,
        Some(1) | None => Now::Same,
        Some(part) => {
            let size = was.size / 128 * u64::from(*part);
            Now::Other(Identity { ino: was.ino ^ 1, size, ..*was })
        }
    };
    let (new, renewal) = bounded(data.len(), 0, || renew(&old, now));
    check_encoding(&new);
    assert!(renewal.changes() || new.files.len() <= old.files.len());
});
