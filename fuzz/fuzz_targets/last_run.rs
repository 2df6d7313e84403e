//! The record of a last start, which lies beside its pack, and the picture of it.
#![no_main]

use headstart::outcome::last_run::LastRun;
use headstart_view::build::last_run;
use headstart_view::render::svg::svg;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(run) = LastRun::parse(data) {
        assert!(svg(&last_run::picture(&run)).ends_with("</svg>\n"));
    }
});
