//! Facts about processes, from /proc (proc(5)).

use crate::host::{clock, contents};
use headstart_sys::calls;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// When a process started, in clock ticks since boot: with the PID it names
/// a process for good. `None` when there is none, or only what its parent has
/// not yet requested.
pub fn start_time(pid: i32) -> Option<u64> {
    parse_start_time(&contents::bytes(format!("/proc/{pid}/stat")).ok()?)
}

/// For how long a process runs that started at this time, in clock ticks since boot.
pub fn age(start_time: u64) -> Duration {
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let began = u128::from(start_time) * 1_000_000_000 / u128::from(ticks);
    let began = u64::try_from(began).unwrap_or(u64::MAX);
    Duration::from_nanos(clock::boot_ns().saturating_sub(began))
}

/// Whether the process that started at this time has certainly ended, with all of its threads. What
/// can't be read may be alive; and a killed process is a zombie as long as one of its threads is
/// still in a system call.
pub fn has_ended(pid: i32, start_time: u64) -> bool {
    match contents::bytes(format!("/proc/{pid}/stat")) {
        Ok(stat) => match parse_state(&stat) {
            Some((_, started)) if started != start_time => true,
            Some((b'Z' | b'X', _)) => has_one_thread(pid),
            _ => false,
        },
        Err(error) => no_process(&error),
    }
}

/// Whether an error of a file below /proc/PID says that there is no such process.
fn no_process(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// Whether a process has no thread but its first one.
fn has_one_thread(pid: i32) -> bool {
    match fs::read_dir(format!("/proc/{pid}/task")) {
        // An entry that can't be read may be a thread.
        Ok(threads) => threads.count() <= 1,
        Err(error) => no_process(&error),
    }
}

/// Fields 3 and 22 of /proc/PID/stat: the state and when the process started.
fn parse_state(stat: &[u8]) -> Option<(u8, u64)> {
    let mut fields = fields_of_stat(stat)?;
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Whether a process is within execve(2) or execveat(2), where it waits for the disk that the program is on: it
/// still is what it was before. Not known of one that runs at the moment.
pub fn is_in_exec(pid: i32) -> bool {
    contents::bytes(format!("/proc/{pid}/syscall")).is_ok_and(|text| is_exec(&text))
}

/// /proc/PID/syscall begins with the number of the system call, if the process is blocked in one.
fn is_exec(text: &[u8]) -> bool {
    let number = text.split(|byte| *byte == b' ').next().and_then(|word| str::from_utf8(word).ok());
    let name = number.and_then(|number| calls::name(number.parse().ok()?));
    matches!(name, Some("execve" | "execveat"))
}

/// Field 22 of /proc/PID/stat, unless field 3 says that the process has ended.
pub fn parse_start_time(stat: &[u8]) -> Option<u64> {
    parse_state(stat).filter(|(state, _)| !b"ZX".contains(state)).map(|(_, started)| started)
}

/// Field 3 of /proc/PID/stat and what follows; the name before them may hold any byte.
fn fields_of_stat(stat: &[u8]) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    Some(rest.split_ascii_whitespace())
}

/// Fields 3, 10 and 12 of /proc/PID/stat: the state, minor and major faults.
pub fn parse_faults(stat: &[u8]) -> Option<(u8, u64, u64)> {
    let mut fields = fields_of_stat(stat)?;
    let state = *fields.next()?.as_bytes().first()?;
    let minor = fields.nth(6)?.parse().ok()?;
    Some((state, minor, fields.nth(1)?.parse().ok()?))
}

/// The processes whose parent is `pid`, zombies included.
pub fn children(pid: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|process: &i32| {
            let stat = contents::bytes(format!("/proc/{process}/stat"));
            stat.is_ok_and(|stat| parse_parent(&stat) == Some(pid))
        })
        .collect()
}

/// The threads of this process.
pub fn own_threads() -> Vec<i32> {
    threads("self")
}

/// The threads of a process, by its number; none when it has ended.
pub fn threads_of(pid: i32) -> Vec<i32> {
    threads(&pid.to_string())
}

fn threads(process: &str) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|t| t.file_name().to_str()?.parse().ok()).collect()
}

/// A number in /proc/PID/status, of a process or thread.
pub fn status(pid: i32, name: &str) -> Option<u64> {
    let text = contents::bytes(format!("/proc/{pid}/status")).ok()?;
    status_text(&text, name)?.parse().ok()
}

/// A value in the text of /proc/PID/status.
pub fn status_text<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    // Its name, the first line, may be any bytes.
    status.split(|byte| *byte == b'\n').find_map(|line| {
        let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        (key == name).then(|| value.trim())
    })
}

/// Field 4 of /proc/PID/stat.
pub fn parse_parent(stat: &[u8]) -> Option<i32> {
    fields_of_stat(stat)?.nth(1)?.parse().ok()
}

/// The inode number that names our PID namespace; 0 without /proc.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// Inode number of the first PID namespace (`PROC_PID_INIT_INO` of
/// `include/linux/proc_ns.h`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether the kernel's process numbers, which traces have, are ours.
pub fn in_first_pid_namespace() -> bool {
    pid_namespace() == FIRST_PID_NAMESPACE
}

/// Whether some process that we see is in this PID namespace.
pub fn has_processes(pid_namespace: u64) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| fs::metadata(entry.path().join("ns/pid")).ok())
        .any(|namespace| namespace.ino() == pid_namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2";
        assert_eq!(parse_start_time(stat), Some(4242));
        let ended = b"7 (a) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2";
        for broken in [&ended[..], b"", b"7 (a", b"7 (a) S 1", b"\xff)\xff"] {
            assert_eq!(parse_start_time(broken), None);
        }
    }

    #[test]
    fn a_process_is_in_exec_by_the_number_of_its_system_call() {
        let number = (0..1000).find(|number| calls::name(*number) == Some("execve")).unwrap();
        for (text, expected) in [
            (format!("{number} 0x7f 0x0 0x7ffd 0x7f\n"), true),
            (format!("{} 0x7f\n", number + 1), false),
            ("running\n".into(), false),
            ("-1 0x7ffd 0x7f\n".into(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_exec(text.as_bytes()), expected, "{text}");
        }
        assert!(!is_in_exec(std::process::id().cast_signed()));
    }

    #[test]
    fn faults_are_found_behind_any_process_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 111 2 33 4 5 6";
        assert_eq!(parse_faults(stat), Some((b'S', 111, 33)));
        for broken in [&b""[..], b"7 (a", b"7 (a) S 1", b"\xff)\xff"] {
            assert_eq!(parse_faults(broken), None);
        }
    }

    #[test]
    fn a_process_has_ended_when_it_is_gone_or_a_zombie_and_its_pid_has_another_start_time() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let started = start_time(pid).unwrap();
        assert!(!has_ended(pid, started));
        assert!(has_ended(pid, started + 1));
        // Ticks are coarse, and this machine may be busy.
        assert!(age(started) < Duration::from_secs(60));
        assert_eq!(age(u64::MAX), Duration::ZERO);
        child.kill().unwrap();
        // Returns when it is a zombie, and leaves it one.
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_raw(pid).unwrap());
        rustix::process::waitid(id, options).unwrap();
        assert_eq!(start_time(pid), None);
        assert!(has_ended(pid, started));
        child.wait().unwrap();
        assert!(has_ended(pid, started));
    }

    #[test]
    fn threads_beside_the_first_one_are_seen() {
        let own = std::process::id() as i32;
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        assert!(!has_one_thread(own));
        drop(end);
        assert!(thread.join().unwrap().is_err());
        assert!(has_one_thread(-1), "there is no such process");
    }

    #[test]
    fn only_a_missing_file_or_process_says_that_a_process_is_gone() {
        for (errno, gone) in [
            (Errno::NOENT, true),
            (Errno::SRCH, true),
            (Errno::IO, false),
            (Errno::MFILE, false),
            (Errno::ACCESS, false),
        ] {
            assert_eq!(no_process(&errno.into()), gone, "{errno}");
        }
    }

    #[test]
    fn our_own_namespace_has_a_process() {
        assert!(has_processes(pid_namespace()));
        assert!(!has_processes(1));
    }

    #[test]
    fn a_child_is_among_its_parents_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mine = children(std::process::id() as i32);
        child.kill().unwrap();
        assert!(mine.contains(&(child.id() as i32)));
        let zombie = children(std::process::id() as i32);
        assert!(zombie.contains(&(child.id() as i32)));
        child.wait().unwrap();
        assert_eq!(parse_parent(b"7 (a) b (c) S 12 7"), Some(12));
        assert_eq!(parse_parent(b"7 (a"), None);
    }

    #[test]
    fn our_own_start_time_is_known() {
        assert!(start_time(std::process::id() as i32).is_some());
        assert_eq!(start_time(-1), None);
    }

    #[test]
    fn numbers_of_a_process_are_found_in_its_status() {
        let own = std::process::id();
        assert_eq!(status(own as i32, "Tgid"), Some(u64::from(own)));
        assert_eq!(status(own as i32, "Nonsense"), None);
        assert_eq!(status(-1, "Tgid"), None);
    }
}
