//! Packing any bytes: no panic; a result has a proof, is no smaller than the file, has its old
//! program headers, and can't be packed again.
//!
//! The seeds are of a table of 200 pointers, a call, a thread-local variable and a constructor:
//! `cc -O1 -fPIC -shared -s -Wl,-z,noseparate-code a.c`, linked by each linker, and a PIE of it.
#![no_main]

use headstart_elf::image::Image;
use headstart_elf::repack::proof::prove;
use headstart_elf::repack::refuse::Refusal;
use headstart_elf::repack::repack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let new = match repack(data, 1) {
        Ok(new) => new,
        Err(_) => return,
    };
    assert_eq!(prove(data, &new.bytes), Ok(new.proof));
    assert!(new.bytes.len() >= data.len());
    let hole = new.hole.start as usize..new.hole.end as usize;
    assert!(new.bytes[hole].iter().all(|byte| *byte == 0));
    let (before, after) = (Image::parse(data).unwrap(), Image::parse(&new.bytes).unwrap());
    assert_eq!(before.segments, after.segments);
    assert_eq!(repack(&new.bytes, 1), Err(Refusal::AlreadyPacked));
});
