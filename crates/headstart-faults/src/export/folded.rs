//! Folded stacks, as flame graphs are made of: `process;thread;file;segment;section WEIGHT` in each
//! line, the weight being the time of its faults in ns. A name has no semicolon: it is escaped as
//! what is not visible is ([`headstart::host::names`]).

use super::places::{Places, Spelled, owner};
use crate::recording::Recording;
use crate::tables::SectionsOf;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes a recording. Faults without a known end have no time, and no line.
///
/// # Errors
/// Those of the writer.
pub fn write(out: &mut dyn Write, recording: &Recording, sections: &SectionsOf) -> io::Result<()> {
    let mut places = Places::new(recording, sections);
    let mut sums: BTreeMap<(u32, usize), u64> = BTreeMap::new();
    for fault in recording.faults.iter().filter(|fault| fault.latency > 0) {
        let sum = sums.entry((fault.thread, places.of(fault).0)).or_default();
        *sum = sum.saturating_add(fault.latency);
    }
    for ((thread, place), ns) in sums {
        let Spelled { file, segment, section } = &places.spelled()[place];
        let thread = recording.threads.get(thread as usize);
        let process = thread.and_then(|thread| recording.processes.get(thread.process as usize));
        let process = process.map_or((0, 0), |process| (process.name, process.pid));
        let thread = thread.map_or((0, 0), |thread| (thread.name, thread.tid));
        for (name, number) in [process, thread] {
            write!(out, "{};", frame(&owner(recording.name(name), number)))?;
        }
        write!(out, "{}", frame(file))?;
        for part in [segment, &**section].into_iter().filter(|part| !part.is_empty()) {
            write!(out, ";{}", frame(part))?;
        }
        writeln!(out, " {ns}")?;
    }
    Ok(())
}

/// A name without what separates frames.
fn frame(name: &str) -> String {
    name.replace(';', "\\073")
}

/// Whether a text is one that [`write()`] made.
pub fn is_folded(text: &[u8]) -> bool {
    let is_owner = |frame: &[u8]| {
        let Some(number) = frame.strip_suffix(b")") else { return false };
        let digits = number.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && number[..number.len() - digits].ends_with(b" (")
    };
    let is_line = |line: &[u8]| {
        let mut frames = line.split(|byte| *byte == b';');
        frames.next().is_some_and(is_owner) && frames.next().is_some_and(is_owner)
    };
    text.strip_suffix(b"\n").is_some_and(|lines| lines.split(|byte| *byte == b'\n').all(is_line))
}

#[cfg(test)]
mod tests {
    use super::super::test_recordings::{FILE, any_recording, recording};
    use super::*;
    use crate::sections::Sections;
    use headstart::host::names;
    use proptest::prelude::*;

    fn text(recording: &Recording, sections: &SectionsOf) -> String {
        let mut out = Vec::new();
        write(&mut out, recording, sections).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_time_of_a_thread_is_summed_by_place_and_no_name_ends_a_frame() {
        let text_section = headstart_elf::image::sections::Section {
            name: ".text".into(),
            kind: 1,
            flags: 6,
            address: 0,
            offset: 0x1000,
            size: 0x800,
            link: 0,
        };
        let sections = SectionsOf::from([((0, FILE), Sections::new(&[text_section]))]);
        let expected = "sh (7);sh (7);/li\\073b\\012x;text;.text 1500\n\
                        sh (7);worker (8);/li\\073b\\012x;text;.text 30\n\
                        sh (7);worker (8);[unknown] 4\n";
        let found = text(&recording(), &sections);
        assert_eq!(found, expected);
        assert!(is_folded(found.as_bytes()));
        let first = found.split(';').nth(2).unwrap();
        assert_eq!(names::unescape(first.as_bytes()), b"/li;b\nx");
    }

    #[test]
    fn stacks_of_others_are_none_of_ours() {
        for other in ["", "\n", "main;f;g 7\n", "sh (7);f 3\n", "a (1);b (2);c 7", "x (1)\n"] {
            assert!(!is_folded(other.as_bytes()), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn the_sum_of_weights_is_that_of_latencies(recording in any_recording()) {
            let text = text(&recording, &SectionsOf::new());
            let weight = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
            let latencies = recording.faults.iter().map(|fault| fault.latency).sum::<u64>();
            prop_assert_eq!(text.lines().map(weight).sum::<u64>(), latencies);
            prop_assert!(text.is_empty() || is_folded(text.as_bytes()));
            prop_assert!(text.lines().all(|line| (3..6).contains(&line.split(';').count())));
        }
    }
}
