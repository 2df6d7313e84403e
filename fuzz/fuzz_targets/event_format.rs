//! The kernel's descriptions of its trace data, and a page read by them: page
//! header, event format and page, separated by NUL.
#![no_main]

use headstart::trace::decode::{Decoder, Tally};
use headstart::trace::format::parse_event;
use headstart_fuzz::check_event;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (header, format, page) = (part(), part(), part());
    let (header, format) = (String::from_utf8_lossy(header), String::from_utf8_lossy(format));
    if let Ok(event) = parse_event(&format) {
        assert!(event.fields.len() <= format.lines().count());
    }
    for page_size in [0, 4096, u64::MAX] {
        let Ok(decoder) = Decoder::new(&header, [&*format], page_size) else { return };
        decoder.page(page, &mut Tally::default(), |event| check_event(&event));
    }
});
