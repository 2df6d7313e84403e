//! Lists of file parts as text, one file a line: `name offset:length,offset:length`, in bytes.
//!
//! The form is that of Tim Bird's mincore tool (2011) and treadahead, extended to all names: a name
//! is written as in all text ([`names`]), and a space at its beginning or end is `\040`. Other
//! spaces stay: the parts begin after the last space. A backslash that no three octal digits follow
//! stands for itself.

use crate::host::names::{self, unescape};
use crate::host::range::ByteRange;

/// Why a line is not `name offset:length,…`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineError {
    /// There is no space between a name and its parts.
    #[error("The line has no parts; it should read: name offset:length,offset:length")]
    NoParts,
    /// There is nothing before the parts.
    #[error("The line has no file name; it should read: name offset:length,offset:length")]
    NoName,
    /// A part is not two decimal numbers, or ends behind 2^64.
    #[error("{0:?} is not a part of a file; it should read: offset:length")]
    BadPart(String),
}

/// One line, without its end, for the byte ranges `parts` of the file `name`.
pub fn line(name: &[u8], parts: &[ByteRange]) -> Vec<u8> {
    let mut line = escape(name);
    for (i, part) in parts.iter().enumerate() {
        let separator = if i == 0 { ' ' } else { ',' };
        line.extend(format!("{separator}{}:{}", part.offset, part.length()).bytes());
    }
    line
}

/// The name and the byte ranges of one line.
///
/// # Errors
///
/// [`LineError`], when the line is not one of such a list.
///
/// ```
/// use headstart::cache::list::{line, parse};
/// use headstart::host::range::ByteRange;
/// let parts = [ByteRange::of(0, 4096), ByteRange::of(8192, 4096)];
/// let text = line(b"/tmp/a\nb", &parts);
/// assert_eq!(text, b"/tmp/a\\012b 0:4096,8192:4096");
/// assert_eq!(parse(&text), Ok((b"/tmp/a\nb".to_vec(), parts.to_vec())));
/// ```
pub fn parse(line: &[u8]) -> Result<(Vec<u8>, Vec<ByteRange>), LineError> {
    let space = line.iter().rposition(|&byte| byte == b' ').ok_or(LineError::NoParts)?;
    let (name, parts) = (&line[..space], &line[space + 1..]);
    if name.is_empty() {
        return Err(LineError::NoName);
    }
    let parts = parts.split(|&byte| byte == b',').map(part).collect::<Result<_, _>>()?;
    Ok((unescape(name), parts))
}

fn part(text: &[u8]) -> Result<ByteRange, LineError> {
    let numbers = || {
        let (offset, length) = std::str::from_utf8(text).ok()?.split_once(':')?;
        let offset: u64 = offset.parse().ok()?;
        Some(ByteRange { offset, end: offset.checked_add(length.parse().ok()?)? })
    };
    numbers().ok_or_else(|| LineError::BadPart(String::from_utf8_lossy(text).into_owned()))
}

/// A name as it stands in a list.
fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = names::name(name).into_bytes();
    if escaped.last() == Some(&b' ') {
        escaped.splice(escaped.len() - 1.., *b"\\040");
    }
    if escaped.first() == Some(&b' ') {
        escaped.splice(..1, *b"\\040");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_of_the_old_tool_is_understood() {
        let (name, parts) = parse(b"Gallery3D.apk 0:131072,172032:393216,602112:180224").unwrap();
        assert_eq!(name, b"Gallery3D.apk");
        let expected = [0..131_072, 172_032..565_248, 602_112..782_336];
        assert_eq!(parts, expected.map(ByteRange::from));
    }

    #[test]
    fn names_that_would_break_a_line_are_escaped_and_others_are_not() {
        for (name, written) in [
            (&b"/usr/lib/a b.so"[..], &b"/usr/lib/a b.so 0:4096"[..]),
            (b" a ", b"\\040a\\040 0:4096"),
            (b" ", b"\\040 0:4096"),
            (b"a\nb", b"a\\012b 0:4096"),
            (b"a\\040", b"a\\134040 0:4096"),
            (b"a\\b", b"a\\b 0:4096"),
            (b"\x1b[2J\xff", b"\\033[2J\\377 0:4096"),
        ] {
            assert_eq!(line(name, &[ByteRange::of(0, 4096)]), written);
        }
    }

    #[test]
    fn a_backslash_before_anything_but_three_octal_digits_stands_for_itself() {
        for (text, name) in
            [(&b"a\\b 0:1"[..], &b"a\\b"[..]), (b"\\04 0:1", b"\\04"), (b"\\400 0:1", b"\\400")]
        {
            assert_eq!(parse(text).unwrap().0, name);
        }
    }

    #[test]
    fn lines_that_are_none_are_refused_with_the_reason() {
        let bad = |text: &str| LineError::BadPart(text.to_owned());
        for (text, error) in [
            ("", LineError::NoParts),
            ("/bin/sh", LineError::NoParts),
            (" 0:1", LineError::NoName),
            ("a ", bad("")),
            ("a 0", bad("0")),
            ("a 0:1,", bad("")),
            ("a -1:1", bad("-1:1")),
            ("a 18446744073709551615:1", bad("18446744073709551615:1")),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            name in prop::collection::vec(prop_oneof![Just(b' '), Just(b'\\'), Just(b'\n'), Just(b'0'), any::<u8>()], 1..20),
            parts in prop::collection::vec((any::<u32>(), any::<u32>()), 1..5),
        ) {
            let parts: Vec<_> =
                parts.iter().map(|&(a, b)| ByteRange::of(a.into(), b.into())).collect();
            let line = line(&name, &parts);
            prop_assert!(line.iter().all(u8::is_ascii_graphic) || String::from_utf8(line.clone()).is_ok_and(|text| text.chars().all(names::is_visible)));
            prop_assert_eq!(parse(&line), Ok((name, parts)));
        }

        #[test]
        fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&line);
        }
    }
}
