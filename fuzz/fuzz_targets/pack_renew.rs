//! Any pack can be taken over to files of any size, into one that can be written and comes
//! back as it was.
#![no_main]

use headstart::pack::Identity;
use headstart::pack::renew::{Now, renew};
use headstart_fuzz::{check_encoding, pack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((sizes, data)) = data.split_first_chunk::<8>() else { return };
    let Some(old) = pack(data) else { return };
    let mut sizes = sizes.iter().cycle();
    let (new, renewal) = renew(&old, |_, _, was| match sizes.next() {
        Some(0) => Now::Gone,
        Some(1) | None => Now::Same,
        Some(part) => {
            let size = was.size / 128 * u64::from(*part);
            Now::Other(Identity { ino: was.ino ^ 1, size, ..*was })
        }
    });
    check_encoding(&new);
    assert!(renewal.changes() || new.files.len() <= old.files.len());
});
