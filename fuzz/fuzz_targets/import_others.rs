//! Lists, logs of fatrace, and packs of ureadahead and Android: no panic, and memory bounded by their
//! length. Whatever is detected is imported or refused.
#![no_main]

use headstart_fuzz::check_import;
use headstart_import::detect::{Format, detect};
use headstart_sys::counting::Counting;
use libfuzzer_sys::fuzz_target;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    for format in
        [Format::List, Format::Fatrace, Format::Ureadahead, Format::AndroidPrefetch, Format::Iorap]
    {
        check_import(data, format, 0);
    }
    let _ = detect(data);
});
