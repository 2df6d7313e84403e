//! A record of any bytes: no panic, and what it undoes has the length that it says.
#![no_main]

use headstart_elf::files::journal::Record;
use headstart_fuzz::split;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (record, file) = split(data);
    if let Some(record) = Record::from_bytes(record) {
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record.clone()));
        let _ = (record.undo(file), record.names());
    }
});
