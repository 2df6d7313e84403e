//! The list form `name offset:length,offset:length`, one file a line, in
//! bytes: what the mincore tools of 2008 wrote and read. Pure.
//!
//! The name is all up to the last blank. A newline in a name is written as
//! `\n` and a backslash as `\\`; a line without ranges means the whole file.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// One file of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// Offset and length of each range, in bytes; none means the whole file.
    pub ranges: Vec<(u64, u64)>,
}

/// A line that is no list entry.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("Line {line} is not `name offset:length,offset:length`")]
pub struct ListError {
    /// Its number, from 1.
    pub line: usize,
}

/// One line, without its newline.
pub fn format(path: &Path, ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\\' => out.extend(b"\\\\"),
            _ => out.push(byte),
        }
    }
    let ranges: Vec<String> =
        ranges.into_iter().map(|(offset, length)| format!("{offset}:{length}")).collect();
    out.push(b' ');
    out.extend(ranges.join(",").into_bytes());
    out
}

/// Parses a whole list. Empty lines and lines that begin with `#` are passed
/// over.
pub fn parse(text: &[u8]) -> Result<Vec<Entry>, ListError> {
    text.split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
        .map(|(i, line)| parse_line(line).ok_or(ListError { line: i + 1 }))
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let blank = line.iter().rposition(|b| *b == b' ');
    let (name, ranges) = blank.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
    // A name with blanks and without ranges has no digits and colons there.
    let parsed = if ranges.is_empty() { Some(Vec::new()) } else { parse_ranges(ranges) };
    let (name, ranges) = match parsed {
        Some(ranges) => (name, ranges),
        None if !ranges.contains(&b':') => (line, Vec::new()),
        None => return None,
    };
    let mut path = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => byte,
        });
    }
    (!path.is_empty()).then(|| Entry { path: OsString::from_vec(path).into(), ranges })
}

fn parse_ranges(text: &[u8]) -> Option<Vec<(u64, u64)>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(',')
        .map(|range| {
            let (offset, length) = range.split_once(':')?;
            let (offset, length): (u64, u64) = (offset.parse().ok()?, length.parse().ok()?);
            offset.checked_add(length)?;
            Some((offset, length))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    #[test]
    fn lines_of_every_shape_are_understood() {
        let entry = |path: &str, ranges: &[(u64, u64)]| Entry {
            path: path.into(),
            ranges: ranges.to_vec(),
        };
        for (line, expected) in [
            ("/a 0:4096", entry("/a", &[(0, 4096)])),
            ("/a b 0:4096,8192:1", entry("/a b", &[(0, 4096), (8192, 1)])),
            ("/whole", entry("/whole", &[])),
            ("/whole ", entry("/whole", &[])),
            ("/my file", entry("/my file", &[])),
            ("/a\\nb\\\\ 1:2", entry("/a\nb\\", &[(1, 2)])),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(vec![expected]), "{line}");
        }
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        for text in ["# note\n\n/a x:1", "\n\n/a 18446744073709551615:1", "\n\n/a\\q 1:2"] {
            assert_eq!(parse(text.as_bytes()), Err(ListError { line: 3 }), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(
            name in proptest::collection::vec(1u8.., 1..20),
            ranges in proptest::collection::vec((0u64..1 << 50, 0u64..1 << 50), 0..5)
        ) {
            prop_assume!(name[0] != b'#');
            let path = PathBuf::from(OsStr::from_bytes(&name));
            let line = format(&path, ranges.clone());
            prop_assert_eq!(parse(&line), Ok(vec![Entry { path, ranges }]));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&text);
        }
    }
}
