//! Times, numbers and words of a command line as text.

use headstart::host::names;
use headstart_view::units;
pub(crate) use headstart_view::units::nanos as time;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A number with groups of three digits.
pub(crate) fn number(n: u64) -> String {
    units::grouped(n as f64, 0)
}

/// A part in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Bytes in KiB or MiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

/// A word of a command line for a shell. What is not visible is in octal digits in `$'…'`, which shells
/// turn into the same bytes.
pub(crate) fn word(word: impl AsRef<[u8]>) -> String {
    let word = word.as_ref();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match std::str::from_utf8(word) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        Ok(text) if text.chars().all(names::is_visible) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let byte = |byte: &u8| match byte {
                b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                _ => format!("\\{byte:03o}"),
            };
            format!("$'{}'", word.iter().map(byte).collect::<String>())
        }
    }
}

/// A path of a command line for a shell.
pub(crate) fn path(path: &Path) -> String {
    word(path.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        for (text, expected) in [
            ("/usr/bin/a-b", "/usr/bin/a-b"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$HOME", "'$HOME'"),
            ("é x", "'é x'"),
            ("a\nb'\\ \u{202e}", r"$'a\012b\'\\ \342\200\256'"),
        ] {
            assert_eq!(word(text), expected);
        }
        assert_eq!(word(b"/a\xff;reboot"), r"$'/a\377;reboot'");
    }

    #[test]
    fn sizes_and_shares_have_their_units() {
        assert_eq!((size(8192), size(3 << 19)), ("8 KiB".to_owned(), "1.5 MiB".to_owned()));
        assert_eq!((percent(1, 4), percent(1, 0)), ("25 %".to_owned(), "100 %".to_owned()));
        assert_eq!((time(1500), time(1_500_000_000)), ("1.5 µs".to_owned(), "1.50 s".to_owned()));
    }
}
