//! Extent trees on a device of any bytes: no panic, and no more blocks than are allowed.
#![no_main]

use headstart_layout::trees::of_inodes;
use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use std::io;

fuzz_target!(|data: &[u8]| {
    let inodes: HashSet<u64> = (0..40).chain([u64::MAX]).collect();
    let found = of_inodes(&inodes, |at, bytes| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let part = data.get(at..at.saturating_add(bytes.len()));
        bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    });
    if let Ok((_, trees)) = found {
        assert!(trees.values().all(|blocks| !blocks.is_empty() && blocks.len() <= 4096));
    }
});
