//! What /proc says of a process as recording begins: what it has mapped (proc_pid_maps(5)), names of
//! threads, and how many faults it has had. It does not follow what changes later.

use crate::document::Usage;
use crate::record::{Mapped, Record, What};
use crate::recorder::Recorder;
use crate::recording::{EXECUTE, READ, SHARED, WRITE};
use crate::waits::descriptors::Opened;
use headstart::host::maps::with_newlines;
use headstart::host::{contents, maps, proc};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// `MAP_PRIVATE`
const PRIVATE: u32 = 2;

/// The text of `/proc/PID/maps`; empty when the process has ended.
///
/// # Errors
/// This user may not look.
pub fn maps(pid: i32) -> io::Result<Vec<u8>> {
    match contents::bytes(format!("/proc/{pid}/maps")) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
            Ok(Vec::new())
        }
        read => read,
    }
}

/// The name of a thread; empty when it has ended.
pub fn name(pid: i32, tid: i32) -> Vec<u8> {
    let mut name = contents::bytes(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    name.truncate(name.len().saturating_sub(1));
    name
}

/// How often is looked whether a process sleeps: for some milliseconds.
const LOOKS: u32 = 1000;

/// How many faults a process has had that is about to sleep; `None` if it does not.
pub fn faults_when_asleep(pid: i32) -> Option<Usage> {
    for _ in 0..LOOKS {
        let stat = contents::bytes(format!("/proc/{pid}/stat")).ok()?;
        if let (b'S', minor, major) = proc::parse_faults(&stat)? {
            return Some(Usage { minor, major });
        }
        std::thread::yield_now();
    }
    None
}

/// The descriptors of a process; none when it has ended, or this user may not look.
pub fn descriptors(pid: i32) -> Vec<Opened> {
    let dir = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let link = |number: i32| fs::read_link(dir.join(number.to_string())).ok();
    let opened = |number: i32| {
        let link = link(number)?.into_os_string().into_vec();
        let flags = contents::text(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        Some(Opened { number, link, is_kept: is_kept(&flags) })
    };
    numbers.filter_map(opened).collect()
}

/// Whether execve(2) keeps a descriptor open, by the text of `/proc/PID/fdinfo/FD`
/// (proc_pid_fdinfo(5)).
fn is_kept(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & OFlags::CLOEXEC.bits() == 0)
}

/// The system call in which a thread waits, and its arguments; `None` if it waits in none.
pub fn call(pid: i32, tid: i32) -> Option<(u32, [u64; 6])> {
    parse_call(&contents::text(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

/// The text of `/proc/PID/task/TID/syscall` (proc_pid_syscall(5)).
fn parse_call(text: &str) -> Option<(u32, [u64; 6])> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

/// Gives a recorder the mappings in such a text, before all that is recorded.
pub fn map(recorder: &mut Recorder, pid: i32, text: &[u8]) {
    for mapped in maps::mapped(text) {
        let bit = |permission, bit| if mapped.may(permission) { bit } else { 0 };
        let name = with_newlines(mapped.path);
        let mapped = Mapped {
            start: mapped.address,
            length: mapped.bytes,
            offset: mapped.offset,
            protection: bit(b'r', READ) | bit(b'w', WRITE) | bit(b'x', EXECUTE),
            flags: if mapped.may(b's') { SHARED } else { PRIVATE },
            file: mapped.id,
            name: name.as_deref().unwrap_or(mapped.path),
        };
        recorder.add(Record { time: 0, pid, tid: pid, what: What::Map(mapped) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Object;

    #[test]
    fn what_is_mapped_already_has_its_place_and_its_name_as_the_kernel_has_it() {
        let text = b"7f5f000-7f60000 r-xp 00003000 00:2c 17      /tmp/a\\012b\n\
            1000-3000 rw-s 00000000 00:00 0 \n\
            5000-6000 rw-p 00000000 00:00 0    [heap]";
        let mut recorder = Recorder::of_running(7, 0);
        map(&mut recorder, 7, text);
        let found = recorder.finish();
        let [file, memory, heap] = found.mappings[..] else { panic!("{found:?}") };
        assert_eq!((file.start, file.offset, file.file.ino), (0x7f5f000, 0x3000, 17));
        assert_eq!((&*file.permissions(), found.name(file.name)), ("r-xp", &b"/tmp/a\nb"[..]));
        assert_eq!((memory.object, &*memory.permissions()), (Object::Anonymous, "rw-s"));
        assert_eq!(heap.object, Object::Heap);
    }

    #[test]
    fn a_thread_that_runs_or_is_in_no_call_has_none() {
        let text = "202 0x1 0x80 0x0 0x0 0x0 0xffffffffffffffff 0x7ffd 0x7f00\n";
        assert_eq!(parse_call(text), Some((202, [1, 0x80, 0, 0, 0, u64::MAX])));
        for text in ["running\n", "-1 0x7ffd 0x7f00\n", "", "7 0x1", "7 1 2 3 4 5 6"] {
            assert_eq!(parse_call(text), None, "{text}");
        }
    }

    #[test]
    fn descriptors_of_this_process_have_their_paths() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().as_os_str().as_encoded_bytes().to_vec();
        let own = descriptors(std::process::id() as i32);
        let found = own.iter().find(|opened| opened.link == path);
        assert!(found.is_some_and(|found| !found.is_kept), "{own:?}");
        assert!(is_kept("pos:\t0\nflags:\t0100002\n") && !is_kept("flags:\t02100002\n"));
        assert!(descriptors(-1).is_empty());
    }

    #[test]
    fn a_process_that_has_ended_has_mapped_nothing() {
        let own = maps(std::process::id() as i32).unwrap();
        assert!(maps::mapped(&own).any(|mapped| mapped.path == b"[stack]"));
        assert_eq!(maps(-1).unwrap(), b"");
    }
}
