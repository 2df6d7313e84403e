//! Lists of files or parts of files as text, and logs of fatrace(1), which lists the files that
//! fanotify(7) reports.

use crate::accesses::{Accesses, Name};
use crate::clock::DayClock;
use crate::error::ImportError;
use headstart::host::usage::How;
use headstart::replay::list::parse_list;
use std::borrow::Cow;
use std::os::unix::ffi::OsStringExt;

/// What is said of lists.
const COARSE: &str = "a list of files has no times: its order is taken as that of the accesses";
/// What is said of fanotify.
const WHOLE: &str =
    "fanotify does not tell which parts of a file are read: files are taken as a whole";

/// The accesses that a list stands for: lines `name offset:length,offset:length` or of a name only,
/// as `headstart replay` takes them, also with a space behind each comma.
///
/// # Errors
/// A line is none of a list.
pub fn import(text: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let entries = parse_list(&without_spaces(text)).map_err(|error| {
        let reason = std::error::Error::source(&error).map(ToString::to_string);
        ImportError::Unsupported(format!("{error}: {}", reason.unwrap_or_default()))
    })?;
    let mut accesses = Accesses::new(page_size, text.len());
    for entry in entries {
        let name = Name::Path(entry.path.into_os_string().into_vec());
        if entry.ranges.is_empty() {
            let at = accesses.next_step();
            accesses.add_whole(name.clone(), at, How::READ)?;
        }
        for range in entry.ranges {
            let at = accesses.next_step();
            accesses.add_bytes(name.clone(), range, at, How::READ)?;
        }
    }
    accesses.lacks.coarse = Some(COARSE);
    Ok(accesses)
}

/// The text without blanks between the parts of a file (`0:4096, 8192:4096`).
fn without_spaces(text: &[u8]) -> Cow<'_, [u8]> {
    let is_between = |at: usize| {
        text[at] == b' '
            && text[..at].ends_with(b",")
            && text.get(at + 1).is_some_and(u8::is_ascii_digit)
            && part_before(&text[..at - 1])
    };
    if !text.windows(2).any(|pair| pair == b", ") {
        return text.into();
    }
    (0..text.len()).filter(|at| !is_between(*at)).map(|at| text[at]).collect::<Vec<_>>().into()
}

/// Whether a text ends with `offset:length`.
fn part_before(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let length = digits(text);
    let Some(text) = text[..text.len() - length].strip_suffix(b":") else { return false };
    length > 0 && digits(text) > 0
}

/// The accesses of a log of `fatrace`, with `-t` or without: files that were opened or read, as a
/// whole.
///
/// # Errors
/// There is none in it.
pub fn import_fatrace(log: &[u8], page_size: u64) -> Result<Accesses, ImportError> {
    let mut accesses = Accesses::new(page_size, log.len());
    let mut clock = DayClock::default();
    for line in log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match fatrace_line(line) {
            Some(Line { time, is_read: true, path }) => {
                let time = time.map(|time| clock.at(time));
                let at = time.unwrap_or_else(|| accesses.next_step());
                accesses.add_whole(Name::Path(path.to_vec()), at, How::READ)?;
            }
            Some(_) => {}
            None => accesses.lacks.not_understood += 1,
        }
    }
    accesses.lacks.coarse = Some(WHOLE);
    if accesses.is_empty() {
        return Err(ImportError::Nothing("record with: fatrace -t -f RO -o LOG"));
    }
    Ok(accesses)
}

/// A line of fatrace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Line<'a> {
    /// In ns of the day, or since 1970.
    time: Option<u64>,
    /// Whether it was opened or read.
    is_read: bool,
    path: &'a [u8],
}

/// Bytes of time, program, process, user and group at most.
const LONGEST_HEAD: usize = 128;

/// Whether a line is one of fatrace.
pub(crate) fn is_fatrace_line(line: &[u8]) -> bool {
    fatrace_line(line).is_some()
}

/// `[time ]program(123)[ [uid:gid]]: RO   /path`
fn fatrace_line(line: &[u8]) -> Option<Line<'_>> {
    // The name of a program may have anything, also what ends it, but has 15 bytes at most (comm).
    let head = &line[..line.len().min(LONGEST_HEAD)];
    let ends = head.windows(3).enumerate().filter(|(_, w)| matches!(w, [b')' | b']', b':', b' ']));
    ends.map(|(at, _)| (&line[..=at], &line[at + 3..])).find_map(|(head, rest)| {
        let head = head.strip_suffix(b"]").map_or(head, |head| {
            let open = head.iter().rposition(|byte| *byte == b'[').unwrap_or(head.len());
            head[..open].trim_ascii_end()
        });
        let open = head.iter().rposition(|byte| *byte == b'(')?;
        let pid = head[open + 1..].strip_suffix(b")")?;
        let is_number = !pid.is_empty() && pid.iter().all(u8::is_ascii_digit);
        let (kinds, path) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        let are_kinds = kinds.iter().all(|kind| b"ROCWD+<>".contains(kind));
        let path = path.trim_ascii_start();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let time = head[..open].split(|byte| *byte == b' ').next().and_then(time);
        let is_read = kinds.iter().any(|kind| b"RO".contains(kind)) && !kinds.contains(&b'+');
        let is_line = is_number && are_kinds && path.starts_with(b"/");
        is_line.then_some(Line { time, is_read, path })
    })
}

/// `12:34:56.789012` or `1700000000.123456`, in ns.
fn time(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (whole, fraction) = text.split_once('.')?;
    let fraction: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let seconds = whole
        .split(':')
        .try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(accesses: &Accesses) -> Vec<String> {
        let path = |name: &Name| match name {
            Name::Path(path) => String::from_utf8_lossy(path).into_owned(),
            Name::Inode(id) => panic!("{id:?}"),
        };
        accesses.files().into_iter().map(|(name, _)| path(name)).collect()
    }

    #[test]
    fn lists_of_the_old_tools_are_read_with_and_without_spaces() {
        let text =
            b"Gallery3D.apk 0:131072, 172032:393216,602112:180224\n# a remark\n/a, b\n/c, 1:2\n";
        let accesses = import(text, 4096).unwrap();
        assert_eq!(names(&accesses), ["Gallery3D.apk", "/a, b", "/c,"]);
        let files = accesses.files();
        let ranges = files[0].1.iter().map(|span| (span.pages.first, span.pages.count()));
        assert_eq!(ranges.collect::<Vec<_>>(), [(0, 32), (42, 96), (147, 44)]);
        assert!(!accesses.has_times);
    }

    #[test]
    fn a_line_that_is_none_is_named_with_its_number() {
        let error = import(b"/a\n/b x:1\n", 4096).unwrap_err().to_string();
        assert!(error.contains("Line 2") && error.contains("offset:length"), "{error}");
    }

    #[test]
    fn lines_of_fatrace_are_read_with_times_users_and_odd_names() {
        for (line, time, is_read, path) in [
            ("cat(7): RO   /etc/passwd", None, true, "/etc/passwd"),
            ("a (b): c(7): C /x y", None, false, "/x y"),
            ("12:00:01.500000 cat(7): O /x", Some(43_201_500_000_000), true, "/x"),
            ("1700000000.000001 cat(7): W /x", Some(1_700_000_000_000_001_000), false, "/x"),
            ("cat(7) [0:0]: R /gone (deleted)", None, true, "/gone"),
        ] {
            let expected = Some(Line { time, is_read, path: path.as_bytes() });
            assert_eq!(fatrace_line(line.as_bytes()), expected, "{line}");
        }
        for line in ["", "/etc/passwd", "cat(x): R /x", "cat(7): Q /x", "cat(7): R x"] {
            assert_eq!(fatrace_line(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn long_lines_and_numbers_take_no_longer_for_each_byte_and_a_day_ends() {
        let long = "x".repeat(200) + "): R /x";
        assert_eq!(fatrace_line(format!("{}cat(7): R /x", "): ".repeat(50)).as_bytes()), None);
        assert_eq!(fatrace_line(long.as_bytes()), None);
        // Minutes, if each byte reads them all once more.
        let line = "): ".repeat(1 << 20) + "\ncat(7): R /x\n";
        assert_eq!(import_fatrace(line.as_bytes(), 4096).unwrap().lacks.not_understood, 1);
        let number = format!("/a 0:{}, 1\n", "1".repeat(1 << 19));
        assert!(import(number.as_bytes(), 4096).is_err());
        let log = "23:59:59.5 cat(7): R /x\n00:00:00.5 cat(7): R /y\n";
        assert_eq!(import_fatrace(log.as_bytes(), 4096).unwrap().duration(), 1_000_000_000);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9a:,() \\[\\]/RO+\n]{0,80}") {
            let _ = (import(text.as_bytes(), 4096), import_fatrace(text.as_bytes(), 4096));
        }
    }
}
