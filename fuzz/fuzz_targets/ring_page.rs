//! Pages of the kernel's ring buffer.
#![no_main]

use headstart::trace::decode::{Decoder, Tally};
use headstart::trace::format::{PageHeader, parse_page_header};
use headstart::trace::page::used;
use headstart_fuzz::{capture, check_event};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static KERNEL: LazyLock<(Decoder, PageHeader)> = LazyLock::new(|| {
    let description = capture(0).description;
    let decoder = description.decoder().expect("a fixture is sound");
    (decoder, parse_page_header(&description.header_page).expect("a fixture is sound"))
});

fuzz_target!(|page: &[u8]| {
    let (decoder, header) = &*KERNEL;
    let decode = |page| {
        let (mut events, mut tally) = (Vec::new(), Tally::default());
        decoder.page(page, &mut tally, |event| events.push(event));
        (events, tally)
    };
    let (events, tally) = decode(page);
    events.iter().for_each(check_event);
    // A record has a header of four bytes.
    assert!(tally.events + tally.foreign <= page.len() as u64 / 4);
    assert_eq!(decode(&page[..used(page, header)]), (events, tally));
});
