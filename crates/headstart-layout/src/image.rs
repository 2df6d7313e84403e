//! The order of files in an image that is built once (squashfs, EROFS), as its builder takes it. Pure.
//!
//! Builders place whole files, so ranges don't matter here. The order is that of a layout: first
//! touch, and several packs by weight.

use super::wanted::Wanted;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How a list is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A path and a priority a line: `mksquashfs -sort`.
    SquashfsSort,
    /// A path a line, for tar(1), cpio(1) and what reads their archives.
    Paths,
}

impl Format {
    /// The first line, where the format has comments.
    pub fn comment(self) -> Option<&'static str> {
        match self {
            Self::SquashfsSort => Some("# headstart: files in the order of their first touch\n"),
            Self::Paths => None,
        }
    }
}

/// The highest priority of `mksquashfs -sort`; files that are not listed have 0.
const HIGHEST: usize = 32_767;

/// A list, and what is not in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listed {
    /// The list.
    pub text: Vec<u8>,
    /// Files in it.
    pub files: u64,
    /// Files that are not below the root of the image.
    pub outside: u64,
    /// Files whose names have a newline, which no line can hold.
    pub newlines: u64,
}

/// The files of packs that are below `root`, by their paths from there, in the order of their first
/// touch.
pub fn list(wanted: &Wanted, root: &Path, format: Format) -> Listed {
    let mut out = Listed::default();
    let mut seen = vec![false; wanted.files.len()];
    let mut names = Vec::new();
    for range in &wanted.ranges {
        let (Some(file), Some(seen)) = (wanted.files.get(range.file), seen.get_mut(range.file))
        else {
            continue;
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        match file.path.strip_prefix(root) {
            Ok(name) if name.as_os_str().is_empty() => out.outside += 1,
            Ok(name) if name.as_os_str().as_bytes().contains(&b'\n') => out.newlines += 1,
            Ok(name) => names.push(name.as_os_str().as_bytes()),
            Err(_) => out.outside += 1,
        }
    }
    out.files = names.len() as u64;
    out.text.extend(format.comment().unwrap_or_default().bytes());
    for (rank, name) in names.iter().enumerate() {
        match format {
            Format::SquashfsSort => {
                out.text.extend(escaped(name));
                out.text.extend(format!(" {}\n", priority(rank, names.len())).bytes());
            }
            Format::Paths => {
                out.text.extend(*name);
                out.text.push(b'\n');
            }
        }
    }
    out
}

/// The priority of a file: lower for each that comes later. Where there are more files than
/// priorities, those that follow each other have the same.
fn priority(rank: usize, count: usize) -> usize {
    HIGHEST - rank * HIGHEST / count.max(HIGHEST)
}

/// A name for `mksquashfs -sort`, in which a backslash makes the next byte part of the name.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        if byte == b'\\' || byte == b'#' || byte.is_ascii_whitespace() || byte == 0x0b {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::{WantedFile, WantedRange};
    use headstart::host::identity::Identity;
    use headstart::host::range::ByteRange;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn wanted(names: &[&[u8]], touched: &[usize]) -> Wanted {
        let file = |name: &&[u8]| WantedFile {
            path: OsString::from_vec([b"/srv/image/", *name].concat()).into(),
            identity: Identity::default(),
        };
        let range = |&file: &usize| WantedRange { file, bytes: ByteRange::of(0, 4096) };
        Wanted {
            files: names.iter().map(file).collect(),
            ranges: touched.iter().map(range).collect(),
        }
    }

    /// The names of a sort file and their priorities, as mksquashfs reads them.
    fn read(text: &[u8]) -> Vec<(Vec<u8>, i16)> {
        let line = |line: &[u8]| {
            let (mut name, mut bytes) = (Vec::new(), line.iter().copied());
            loop {
                match bytes.next().unwrap() {
                    b'\\' => name.push(bytes.next().unwrap()),
                    byte if byte.is_ascii_whitespace() => break,
                    byte => name.push(byte),
                }
            }
            (name, String::from_utf8(bytes.collect()).unwrap().parse().unwrap())
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.filter(|line| !line.starts_with(b"#")).map(line).collect()
    }

    #[test]
    fn files_are_listed_once_by_their_first_touch_with_paths_from_the_root_of_the_image() {
        let wanted =
            wanted(&[b"usr/a", b"b c", b"usr/new\nline", b"not touched"], &[1, 0, 2, 1, 9]);
        let list = |root: &str, format| list(&wanted, Path::new(root), format);
        for (root, format, text, counts) in [
            ("/srv/image", Format::Paths, "b c\nusr/a\n", (2, 0, 1)),
            ("/srv/image/usr", Format::Paths, "a\n", (1, 1, 1)),
            ("/srv/image/usr/a", Format::Paths, "", (0, 3, 0)),
            ("/srv/im", Format::Paths, "", (0, 3, 0)),
            (
                "/",
                Format::SquashfsSort,
                "# headstart: files in the order of their first touch\n\
                 srv/image/b\\ c 32767\nsrv/image/usr/a 32766\n",
                (2, 0, 1),
            ),
        ] {
            let found = list(root, format);
            assert_eq!(String::from_utf8(found.text).unwrap(), text, "{root}");
            assert_eq!((found.files, found.outside, found.newlines), counts, "{root}");
        }
    }

    #[test]
    fn priorities_fall_and_stay_above_those_of_files_that_are_not_listed() {
        for count in [1, 2, 32_767, 32_768, 1_000_000] {
            let of = |rank| priority(rank, count);
            assert_eq!(of(0), HIGHEST);
            assert!(of(count - 1) >= 1 && (1..count).all(|rank| of(rank) <= of(rank - 1)));
            assert!(count > HIGHEST || (1..count).all(|rank| of(rank) < of(rank - 1)), "{count}");
        }
    }

    proptest! {
        #[test]
        fn mksquashfs_finds_each_name_as_it_is(
            names in prop::collection::hash_set(
                prop::collection::vec((1u8..).prop_filter("names", |b| !b"/\n".contains(b)), 1..9)
                    .prop_filter("names", |name| !matches!(&name[..], b"." | b"..")), 1..9),
        ) {
            let names: Vec<Vec<u8>> = names.into_iter().collect();
            let slices: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let order: Vec<usize> = (0..names.len()).rev().collect();
            let wanted = wanted(&slices, &order);
            let found = list(&wanted, Path::new("/srv/image"), Format::SquashfsSort);
            let (found, priorities): (Vec<_>, Vec<_>) = read(&found.text).into_iter().unzip();
            prop_assert!(found.iter().eq(names.iter().rev()));
            prop_assert!(priorities.is_sorted_by(|a, b| a > b));
        }
    }
}
