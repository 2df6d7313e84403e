//! What /proc says of a process as recording begins: what it has mapped (proc_pid_maps(5)), names of
//! threads, and how many faults it has had. It does not follow what changes later.

use crate::document::Usage;
use crate::record::{Mapped, Record, What};
use crate::recorder::Recorder;
use crate::recording::{EXECUTE, READ, SHARED, WRITE};
use headstart::host::maps::with_newlines;
use headstart::host::{contents, maps, proc};
use rustix::io::Errno;
use std::io;

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
    fn a_process_that_has_ended_has_mapped_nothing() {
        let own = maps(std::process::id() as i32).unwrap();
        assert!(maps::mapped(&own).any(|mapped| mapped.path == b"[stack]"));
        assert_eq!(maps(-1).unwrap(), b"");
    }
}
