//! Tests of merging files that starts append to.

use super::*;

/// A start that added to `/log`, an inode with this number, which has so many bytes then.
fn appended(ino: u64, size: u64) -> Pack {
    let mut pack = start(&[("/log", ino, (0, 1))], &[]);
    pack.ranges[0].how = How::WRITTEN | How::APPENDED;
    pack.files[0].identity.size = size;
    pack.files[0].changes = History(1);
    pack
}

#[test]
fn a_start_that_made_a_file_longer_appended_to_it() {
    let nothing = start(&[], &[]);
    let read = start(&[("/log", 1, (0, 1))], &[]);
    for (name, next, how, history, changes) in [
        ("longer", appended(1, 20), How::WRITTEN | How::APPENDED, 0b11, 0b11),
        ("as long", appended(1, 10), How::WRITTEN | How::APPENDED, 0b1, 0b11),
        ("another file", appended(2, 20), How::WRITTEN | How::APPENDED, 0b1, 0b11),
        ("not written again", nothing.clone(), How::WRITTEN | How::APPENDED, 0b10, 0b10),
        ("read and shorter", read, How::READ, 0b1, 0b11),
    ] {
        let merged = merge(appended(1, 10), next, NEXT);
        let range = &merged.ranges[0];
        let found = (range.how, range.history, merged.files[0].changes);
        assert_eq!(found, (how, History(history), History(changes)), "{name}");
    }
    let twice = merge(appended(1, 10), appended(1, 20), NEXT);
    let silent = merge(twice, nothing, NEXT);
    let found = (silent.ranges[0].history, silent.files[0].changes);
    assert_eq!(found, (History(0b111), History(0b111)), "its page was there already");
    let wrote = || {
        let mut wrote = appended(1, 20);
        wrote.ranges[0].how = How::WRITTEN;
        wrote
    };
    let mut pack = start(&[("/log", 1, (0, 1))], &[]);
    for (left, how) in
        [(0b10, How::READ), (0b100, How::READ), (0b1000, How::READ), (0b1, How::WRITTEN)]
    {
        pack = merge(&pack, wrote(), NEXT);
        assert_eq!((pack.ranges[0].how, pack.ranges[0].history), (how, History(left)));
    }
    let mut both = appended(1, 10);
    both.ranges[0].how |= How::READ;
    let merged = merge(both, start(&[("/log", 1, (0, 1))], &[]), NEXT);
    assert_eq!(
        (merged.ranges[0].how, merged.ranges[0].history),
        (How::READ | How::WRITTEN, History(0b11))
    );
}

#[test]
fn the_earliest_write_to_a_file_that_starts_append_to_counts() {
    // Other files tell that both starts were as fast.
    let others: Vec<String> = (1..9).map(|number| format!("/{number}")).collect();
    let first_write = |was, is| {
        let [old, new] = [(was, 10), (is, 20)].map(|(at_us, size)| {
            let files: Vec<_> = others.iter().map(|path| (path.as_str(), 3, (0, 1))).collect();
            let mut pack = merge(appended(1, size), start(&files, &[]), Rule::Union);
            for (number, range) in pack.ranges.iter_mut().enumerate() {
                let is_log = range.how.has(How::APPENDED);
                range.at_us = if is_log { at_us } else { 100 * number as u32 };
            }
            pack
        });
        let merged = merge(old, new, NEXT);
        merged.ranges.iter().find(|range| range.how.has(How::APPENDED)).unwrap().at_us
    };
    assert!(first_write(250, 850) <= 300 && first_write(850, 250) == 250, "later pages come later");
}
