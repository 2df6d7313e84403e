//! Lists of files to be prefetched, as text. Pure; [`super::plan`] makes a plan of one,
//! [`crate::cache::list`] defines the form of a line.

use crate::cache::list::{self, LineError};
use crate::host::range::ByteRange;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use thiserror::Error;

/// One file of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file.
    pub path: PathBuf,
    /// Its ranges in bytes; none means the whole file.
    pub ranges: Vec<ByteRange>,
}

/// A line of a list that can't be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("Line {line} of the list")]
pub struct ListError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    source: LineError,
}

/// Parses a list as [`crate::cache::list`] writes it. A line with only a name is a whole file;
/// empty lines and those that begin with `#` are skipped.
///
/// ```
/// let list = b"# what a start needs\n/bin/sh 0:4096\n/etc/passwd\n";
/// let entries = headstart::replay::list::parse_list(list).expect("a list");
/// assert_eq!(entries[0].ranges, [(0..4096).into()]);
/// assert!(entries[1].ranges.is_empty(), "the whole file");
/// ```
pub fn parse_list(text: &[u8]) -> Result<Vec<Entry>, ListError> {
    text.split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"))
        .map(|(i, line)| {
            let (name, ranges) = match list::parse(line) {
                // No name has a NUL byte: it is some binary file.
                _ if line.contains(&0) => {
                    return Err(ListError { line: i + 1, source: LineError::NoName });
                }
                Ok(parsed) => parsed,
                Err(LineError::NoParts) => (line.to_vec(), Vec::new()),
                // The last word of a name with blanks.
                Err(LineError::BadPart(word)) if !word.contains(':') => (line.to_vec(), Vec::new()),
                Err(source) => return Err(ListError { line: i + 1, source }),
            };
            Ok(Entry { path: OsString::from_vec(name).into(), ranges })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_name_ranges_or_whole_files() {
        let entry = |path: &str, ranges: Vec<ByteRange>| Entry { path: path.into(), ranges };
        assert_eq!(
            parse_list(b"# made by hand\n/a 0:4096,8192:1\n\n/whole\n/my file\n").unwrap(),
            [
                entry("/a", vec![(0..4096).into(), (8192..8193).into()]),
                entry("/whole", vec![]),
                entry("/my file", vec![])
            ]
        );
        assert_eq!(parse_list(b"\n/a x:1").unwrap_err().line, 2);
        assert_eq!(parse_list(b"\x7fELF\0\n").unwrap_err().line, 1);
    }
}
