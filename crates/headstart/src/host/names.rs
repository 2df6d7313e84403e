//! Names of files, programs and labels as people read them. No name can move the cursor, look like
//! another line, or change the direction of text.
//!
//! Each byte of an invisible character becomes a backslash and three octal digits, as in
//! `/proc/self/mountinfo`: control and format characters, separators except the space, and invalid
//! UTF-8. [`unescape`] undoes it. Pure.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A name as text, of which [`unescape`] makes the name again: a backslash that three octal
/// digits could follow is escaped too.
///
/// ```
/// assert_eq!(headstart::host::names::name(b"a\x1b[31m"), "a\\033[31m");
/// ```
pub fn name(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find('\\') {
            push(&mut out, &rest[..at]);
            rest = &rest[at + 1..];
            // Escapes are full ones, so that no digits can come to stand behind a backslash.
            let digits = rest.bytes().take(3).filter(|byte| byte.is_ascii_digit()).count();
            out.push_str(if digits == 3 { "\\134" } else { "\\" });
        }
        push(&mut out, rest);
        octal(&mut out, chunk.invalid());
    }
    out
}

/// A path as text, see [`name`].
pub fn path(path: &Path) -> String {
    name(path.as_os_str().as_bytes())
}

/// Text that names are a part of, such as a message: as it is, but for what isn't visible.
/// Names that are escaped stay as they are.
pub fn text(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        push(&mut out, chunk.valid());
        octal(&mut out, chunk.invalid());
    }
    out
}

/// A name as a field of CSV (RFC 4180): as [`name`], in quotes where that is necessary.
pub fn csv_field(bytes: &[u8]) -> String {
    let text = name(bytes);
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Undoes the kernel's octal escapes, like `\040` for a space; a backslash that
/// starts none stays.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

fn push(out: &mut String, text: &str) {
    for c in text.chars() {
        if is_visible(c) {
            out.push(c);
        } else {
            octal(out, c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

/// Whether a character shows as itself. What the standard library would escape behind another
/// character doesn't: control, format, private and unassigned characters, and separators.
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    let mut both = [b'x'; 5];
    let end = 1 + c.encode_utf8(&mut both[1..]).len();
    // A combining mark is escaped at the beginning of a text only.
    std::str::from_utf8(&both[..end]).is_ok_and(|both| both.escape_debug().eq(both.chars()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What turns the direction of text, hides itself, or begins a new line.
    const HOSTILE: &str = "\0\t\n\r\u{1b}\u{7f}\u{85}\u{9b}\u{ad}\u{61c}\u{200b}\u{200e}\u{200f}\
        \u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\
        \u{2069}\u{feff}\u{fff9}\u{e0001}\u{e0041}\u{3000}\u{a0}";

    #[test]
    fn what_is_not_visible_is_written_in_octal_and_the_rest_stays() {
        for (bytes, written) in [
            (&b"/usr/lib/a b.so"[..], "/usr/lib/a b.so"),
            (b"a\nb\x1b[2J", "a\\012b\\033[2J"),
            (
                "e\u{301} \u{e9} \u{65e5}\u{672c} \u{1f980}".as_bytes(),
                "e\u{301} \u{e9} \u{65e5}\u{672c} \u{1f980}",
            ),
            ("a\u{202e}txt.exe".as_bytes(), "a\\342\\200\\256txt.exe"),
            (b"\xff\xe2\x80", "\\377\\342\\200"),
            (b"dev-by\\x2dlabel", "dev-by\\x2dlabel"),
            (b"a\\040", "a\\134040"),
            (b"\\\n\\", "\\\\012\\"),
        ] {
            assert_eq!(name(bytes), written);
        }
        assert!(HOSTILE.chars().all(|c| !is_visible(c)));
        assert_eq!(path(Path::new("/a\n")), "/a\\012");
    }

    #[test]
    fn a_name_in_a_message_is_not_escaped_twice() {
        let message = format!("Can't read {}\n", name(b"a\\040\n"));
        assert_eq!(text(&message), "Can't read a\\134040\\012\\012");
    }

    proptest! {
        #[test]
        fn every_name_is_visible_and_can_be_had_back(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\\'), Just(b'0'), Just(b'3'), Just(b'\n'), any::<u8>()], 0..40),
        ) {
            let name = name(&bytes);
            prop_assert!(name.chars().all(is_visible), "{name}");
            prop_assert_eq!(text(&name), name.clone());
            prop_assert_eq!(unescape(name.as_bytes()), bytes);
        }

        #[test]
        fn every_text_becomes_one_line_of_visible_characters(any in "\\PC*|.*|[\\x00-\\x{10ffff}]*") {
            prop_assert!(text(&any).chars().all(is_visible));
        }
    }
}
