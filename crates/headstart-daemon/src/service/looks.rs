//! Reads the counters of a process from /proc (proc(5)).

use crate::watch::Counters;
use headstart::host::{contents, proc};
use std::fs;
use std::time::Duration;

/// Less than this is never a slow start, in bytes.
const FEW_BYTES: u64 = 32 << 10;

/// What counts for a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// Also what its children did that have ended.
    Family,
    /// Only what its threads did that have not ended.
    Own,
}

/// The counters of the process that started at this time; none when it has ended.
pub(super) fn counters(pid: u32, start_time: u64, whose: Whose) -> Option<Counters> {
    let stat = contents::bytes(format!("/proc/{pid}/stat")).ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    let counters = of_stat(&stat, start_time, ticks, whose)?;
    let read_bytes = match whose {
        Whose::Family => value_in(pid, "io", "read_bytes:"),
        Whose::Own => proc::threads_of(pid.cast_signed())
            .into_iter()
            .map(|thread| value_in(pid, &format!("task/{thread}/io"), "read_bytes:"))
            .fold(0, u64::saturating_add),
    };
    let sleeps = if read_bytes < FEW_BYTES { 0 } else { sleeps(pid) };
    Some(Counters { read_bytes, sleeps, ..counters })
}

/// How often the first thread of a process has slept. This file costs the kernel most, and says nothing of a
/// start that reads nothing.
pub(super) fn sleeps(pid: u32) -> u64 {
    value_in(pid, "status", "voluntary_ctxt_switches:")
}

fn value_in(pid: u32, file: &str, name: &str) -> u64 {
    value_of(&contents::bytes(format!("/proc/{pid}/{file}")).unwrap_or_default(), name)
}

/// A process and its descendants, as they are now.
pub(super) fn family(pid: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let with_parent = |pid: u32| {
        let stat = contents::bytes(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, proc::parse_parent(&stat)?.cast_unsigned()))
    };
    let mut others: Vec<_> = numbers.filter_map(with_parent).collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(_, of)| *of == parent);
        family.extend(children.into_iter().map(|(child, _)| child));
        (others, next) = (rest, next + 1);
    }
    family
}

/// Fields 12, 13 and 42 of /proc/PID/stat, if field 22 is this; `ticks` of its clock are a second.
fn of_stat(stat: &[u8], start_time: u64, ticks: u64, whose: Whose) -> Option<Counters> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields: Vec<_> =
        std::str::from_utf8(&stat[after_name..]).ok()?.split_whitespace().collect();
    // The first one behind the name is field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let has_ended = fields.first().is_some_and(|state| ["Z", "X"].contains(state));
    if has_ended || field(22)? != start_time {
        return None;
    }
    let blocked = field(42).unwrap_or(0).saturating_mul(1_000_000) / ticks.max(1);
    let of_children = if whose == Whose::Family { field(13)? } else { 0 };
    Some(Counters {
        major_faults: field(12)?.saturating_add(of_children),
        read_bytes: 0,
        sleeps: 0,
        blocked: Duration::from_micros(blocked),
    })
}

/// The value of the line that begins with `name`, as in /proc/PID/io and /proc/PID/status; 0
/// without it.
fn value_of(text: &[u8], name: &str) -> u64 {
    // The name of a program in `status` may be any bytes.
    let value = |line: &[u8]| {
        let value = std::str::from_utf8(line.strip_prefix(name.as_bytes())?).ok()?;
        value.trim().parse().ok()
    };
    text.split(|byte| *byte == b'\n').find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_behind_any_name_and_only_of_the_process_that_is_meant() {
        let rest: Vec<String> = (23..=44).map(|field| format!("{}", field * 10)).collect();
        let stat = format!(
            "7 (a) b) S 1 7 7 0 -1 4194560 100 200 30 4 5 6 7 8 20 0 1 0 4242 {}",
            rest.join(" ")
        );
        let of = |stat: &str, start_time| of_stat(stat.as_bytes(), start_time, 100, Whose::Family);
        let counters = of(&stat, 4242).unwrap();
        assert_eq!((counters.major_faults, counters.blocked), (34, Duration::from_millis(4200)));
        assert_eq!(of(&stat, 4243), None, "another process of this number");
        let own = of_stat(stat.as_bytes(), 4242, 100, Whose::Own).unwrap();
        assert_eq!((own.major_faults, own.blocked), (30, counters.blocked));
        let ended = stat.replace(") S ", ") Z ");
        for broken in [ended.as_str(), "", "7 (a", "7 (a) S 1"] {
            assert_eq!(of(broken, 4242), None, "{broken}");
        }
    }

    #[test]
    fn a_value_is_found_by_its_name() {
        let io = b"rchar: 5\nread_bytes: 4096\nwrite_bytes: 7\n";
        let status = b"Name:\t\xff\nvoluntary_ctxt_switches:\t31\nnonvoluntary_ctxt_switches:\t7\n";
        for (text, name, expected) in [
            (&io[..], "read_bytes:", 4096),
            (&status[..], "voluntary_ctxt_switches:", 31),
            (b"", "read_bytes:", 0),
            (b"read_bytes: -1", "read_bytes:", 0),
        ] {
            assert_eq!(value_of(text, name), expected, "{name}");
        }
    }

    #[test]
    fn a_family_has_the_children_of_children() {
        let own = std::process::id();
        let words = ["-c", "sleep 60 & echo $!; wait"];
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(words).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let output = shell.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        let found = family(own);
        headstart_sys::signals::kill(grandchild.cast_signed(), 9).unwrap();
        shell.wait().unwrap();
        assert!([own, shell.id(), grandchild].iter().all(|pid| found.contains(pid)), "{found:?}");
        assert_eq!(family(u32::MAX), [u32::MAX]);
    }

    #[test]
    fn this_process_has_counters() {
        let own = std::process::id();
        let start_time = headstart::host::proc::start_time(own as i32).unwrap();
        let [all, threads] =
            [Whose::Family, Whose::Own].map(|whose| counters(own, start_time, whose));
        // More may be read meanwhile.
        assert!(
            threads.unwrap().read_bytes
                <= counters(own, start_time, Whose::Family).unwrap().read_bytes
        );
        assert!(all.is_some());
        assert_eq!(counters(own, start_time + 1, Whose::Family), None);
    }
}
