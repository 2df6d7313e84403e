//! A journal of a layout of any bytes, and of any JSON with a right checksum: no panic, no overlaps,
//! and what is read is written as it was.
#![no_main]

use headstart_layout::extents::compare;
use headstart_layout::journal::Journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Journal::from_bytes(data);
    let Ok(journal) = Journal::from_bytes(&Journal::sealed(data)) else { return };
    assert_eq!(Journal::from_bytes(&journal.to_bytes()).as_ref(), Ok(&journal));
    let _ = (journal.bytes(), journal.aside_bytes(), journal.donor_bytes());
    for swap in journal.all() {
        let (range, old) = (swap.piece.bytes, &swap.piece.old);
        let found = compare(old, old, &swap.new, range);
        assert_eq!((found.old, found.elsewhere), (vec![range], 0));
    }
});
