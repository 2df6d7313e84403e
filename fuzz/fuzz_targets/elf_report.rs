//! The report of any bytes: no panic, no more than there is, and JSON.
#![no_main]

use headstart_elf::image::Image;
use headstart_elf::image::symbols::{build_id, defined};
use headstart_elf::report::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(image) = Image::parse(data) else { return };
    let report = Report::of(&image);
    let counts = &report.relocations;
    assert!(counts.rela_bytes <= data.len() as u64);
    assert!(counts.relative * 24 <= counts.rela_bytes + counts.plt_bytes);
    assert!(report.layout.segments.len() == image.loads().count());
    assert!(serde_json::to_vec(&report).is_ok());
    let _ = (build_id(&image), defined(&image));
});
