//! Saved code orders, and the functions of any program with any debug file: no panic, and order
//! files with names only.
#![no_main]

use headstart_elf::image::Image;
use headstart_elf::order::code::Code;
use headstart_elf::order::document::{is_name, parse};
use headstart_elf::order::merge::{DEFAULT_SHARE, documents, order};
use headstart_elf::order::predict::predict;
use headstart_elf::order::write::{Format, text};
use headstart_fuzz::split;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (a, b) = split(data);
    for (program, debug) in [(data, None), (a, Some(b))] {
        let Ok(image) = Image::parse(program) else { continue };
        let code = Code::of(&image, debug);
        for (at, point) in code.points.iter().enumerate() {
            assert_eq!(code.point_at(point.offset), Some(at));
            assert_eq!(program[point.offset as usize], point.original);
            assert!(point.function.names().all(is_name));
        }
        assert!(code.initializers.iter().all(|index| (*index as usize) < code.points.len()));
    }
    let Ok(document) = parse(data) else { return };
    let Some(twice) = documents([document.clone(), document.clone()]) else { return };
    for (file, merged) in document.files.iter().zip(&twice.files) {
        let once = order(file, DEFAULT_SHARE);
        let found = predict(&once.functions, file.text_address);
        assert!(once.functions.is_empty() || found.now.pages > 0);
        let order_file = text(&once.functions, Format::Lld);
        let comment = Format::Lld.comment().unwrap_or_default();
        assert!(order_file.strip_prefix(comment).is_some_and(|names| names.lines().all(is_name)));
        // A file that is there twice is one afterwards.
        if document.files.len() == 1 {
            assert_eq!(order_file, text(&order(merged, DEFAULT_SHARE).functions, Format::Lld));
        }
    }
    let again = serde_json::to_vec(&twice).expect("it was JSON");
    assert!(parse(&again).is_ok());
});
