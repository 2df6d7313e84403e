//! What /proc says of a process as recording begins: what it has mapped (proc_pid_maps(5)), names of
//! threads, and how many faults it has had. It does not follow what changes later.

use crate::document::Usage;
use crate::record::Mapped;
use crate::recording::{EXECUTE, READ, SHARED, WRITE};
use headstart::host::contents;
use std::io;
use std::str;

/// `MAP_PRIVATE`
const PRIVATE: u32 = 2;

/// The text of `/proc/PID/maps`.
///
/// # Errors
/// The process has ended, or this user may not look.
pub fn maps(pid: i32) -> io::Result<Vec<u8>> {
    contents::bytes(format!("/proc/{pid}/maps"))
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
        if let (b'S', usage) = faults(&stat)? {
            return Some(usage);
        }
        std::thread::yield_now();
    }
    None
}

/// Fields 3, 10 and 12 of `/proc/PID/stat`: the state, minor and major faults. The name before them
/// may hold any byte.
fn faults(stat: &[u8]) -> Option<(u8, Usage)> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let minor = fields.nth(6)?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((state, Usage { minor, major }))
}

/// The mappings in such a text, in its order; malformed lines are skipped.
pub fn mapped(maps: &[u8]) -> impl Iterator<Item = Mapped<'_>> {
    maps.split(|byte| *byte == b'\n').filter_map(line)
}

/// `start-end perms offset major:minor inode` and, behind padding, the path.
fn line(line: &[u8]) -> Option<Mapped<'_>> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end) = str::from_utf8(fields.next()?).ok()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let [r, w, x, share] = *fields.next()?.first_chunk()?;
    let offset = hex(str::from_utf8(fields.next()?).ok()?)?;
    let (_device, _inode) = (fields.next()?, fields.next()?);
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let bit = |is, bit| if is { bit } else { 0 };
    Some(Mapped {
        start,
        length: end.checked_sub(start)?,
        offset,
        protection: bit(r == b'r', READ) | bit(w == b'w', WRITE) | bit(x == b'x', EXECUTE),
        flags: if share == b's' { SHARED } else { PRIVATE },
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_and_memory_are_mapped_and_malformed_lines_are_skipped() {
        let text = b"7f5f000-7f60000 r-xp 00003000 00:2c 17      /tmp/a b\n\
            1000-3000 rw-s 00000000 00:00 0 \n\
            nonsense\n\
            9-8 r--p 0 00:2c 17 /backwards\n\
            5000-6000 rw-p 00000000 00:00 0    [heap]";
        let found: Vec<_> = mapped(text).collect();
        assert_eq!(found.len(), 3);
        let Mapped { start, length, offset, protection, flags, name } = found[0];
        assert_eq!((start, length, offset), (0x7f5f000, 0x1000, 0x3000));
        assert_eq!((protection, flags, name), (READ | EXECUTE, PRIVATE, &b"/tmp/a b"[..]));
        assert_eq!((found[1].flags, found[1].name), (SHARED, &b""[..]));
        assert_eq!(found[2].name, b"[heap]");
        let own = maps(std::process::id() as i32).unwrap();
        assert!(mapped(&own).any(|mapped| mapped.name == b"[stack]"));
    }

    #[test]
    fn faults_are_found_behind_any_process_name() {
        let stat = b"7 (a) b (c) S 1 7 7 0 -1 4194560 111 2 33 4 5 6";
        assert_eq!(faults(stat), Some((b'S', Usage { minor: 111, major: 33 })));
        for broken in [&b""[..], b"7 (a", b"7 (a) S 1", b"\xff)\xff"] {
            assert_eq!(faults(broken), None);
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(line in "([0-9a-f]{1,18}|-|:| |/|r|\n){0,40}") {
            prop_assert!(mapped(line.as_bytes()).count() <= line.len());
        }
    }
}
