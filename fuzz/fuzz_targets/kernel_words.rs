//! A kernel command line gets our words and loses them, and keeps all others.
#![no_main]

use headstart::boot::install::{kernel_words, without_ours};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    for release in [&*text, "6.18", "6.1"] {
        let words = kernel_words(release);
        let without = without_ours(&text);
        assert!(without.len() <= text.len());
        let with = format!("{} {words}\n", without.trim_end());
        assert_eq!(without_ours(&with).trim_end(), without_ours(&without).trim_end());
    }
});
