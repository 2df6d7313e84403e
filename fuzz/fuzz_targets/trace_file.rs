//! Trace files, from the file to the folded start.
#![no_main]

use headstart::host::id::Dev;
use headstart::profile::accesses::accesses;
use headstart::profile::accesses::rows::{self, Format, Names, Style};
use headstart::profile::fold::{Rules, fold};
use headstart::profile::resolve::Resolution;
use headstart::trace::file::Capture;
use headstart_fuzz::check_event;
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;

fuzz_target!(|data: &[u8]| {
    let Ok(capture) = Capture::from_bytes(data) else { return };
    let bytes = capture.to_bytes().expect("what was read can be written");
    assert_eq!(Capture::from_bytes(&bytes).expect("what was written can be read"), capture);
    let Ok(mut events) = capture.events() else { return };
    let rules = Rules {
        block_devices: capture.description.block_devices.iter().map(|dev| Dev(*dev)).collect(),
        ignored_tids: capture.description.ignored_tids.iter().copied().collect(),
        metadata_tids: capture.description.metadata_tids.iter().copied().collect(),
        has_access_events: capture.has_access_events(),
    };
    let seen = fold(events.by_ref().inspect(check_event), &rules);
    let events_again = || capture.events().into_iter().flatten();
    let (names, processes) = (Resolution::default(), HashMap::new());
    let names = Names::new(&names, |_| Vec::new(), &processes, capture.description.page_size);
    for group in [false, true] {
        let style = Style { format: Format::Csv, group };
        let listed = accesses(events_again, &rules);
        rows::write(&mut std::io::sink(), listed, &names, style, 0).expect("a sink takes all");
    }
    assert!(events.tally().lost >= capture.description.lost);
    for pages in seen.files.values().chain(seen.metadata.values()) {
        assert!(pages.touched.pages() + pages.inserted.pages() > 0);
        let _ = pages.inserted.without(&pages.touched);
    }
});
