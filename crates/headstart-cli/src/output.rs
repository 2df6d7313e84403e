//! How all verbs print: sizes, tables, JSON, messages, and a closed pipe.
//!
//! Nothing here panics when it cannot write, unlike the standard macros.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
pub use headstart::host::error::causes;
pub use headstart::host::json_path::JsonPath;
use headstart::host::names;
pub use headstart::host::names::{name, path as shown, text as harmless};
use serde::Serialize;

/// The reader of standard output has closed it: no failure, but no reason to
/// go on printing either.
#[derive(Debug)]
pub struct ReaderGone;

impl Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("The reader of standard output has gone")
    }
}

impl std::error::Error for ReaderGone {}

/// Writes text to standard output, buffered, and escapes invisible characters. Names, which may
/// contain line ends, are escaped by [`shown`] and [`name`] before.
///
/// # Errors
///
/// [`ReaderGone`] for a broken pipe, else the error with its context.
pub fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let out = io::BufWriter::new(io::stdout().lock());
    let mut out = Visible { out, line: Vec::new(), colours: has_colours() };
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            // What is still buffered would be written, and fail, on drop.
            let _unwritten = out.out.into_parts();
            Err(ReaderGone.into())
        }
        other => other.context("Can't write to standard output"),
    }
}

/// Escapes all but visible characters, line ends, tabs and our own colours.
struct Visible<W: Write> {
    out: W,
    /// The last line, as far as it is known.
    line: Vec<u8>,
    /// Whether colours pass. They do no harm, even in a name.
    colours: bool,
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\t')) {
            match part.split_last() {
                Some((end @ (b'\n' | b'\t'), part)) => {
                    self.line.extend(part);
                    self.end_part()?;
                    self.out.write_all(&[*end])?;
                }
                _ => self.line.extend(part),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_part()?;
        self.out.flush()
    }
}

impl<W: Write> Visible<W> {
    fn end_part(&mut self) -> io::Result<()> {
        let mut text = harmless(std::mem::take(&mut self.line));
        if self.colours {
            for code in COLOURS.map(Colour::code).into_iter().chain([PLAIN]) {
                text = text.replace(&harmless(code), code);
            }
        }
        self.out.write_all(text.as_bytes())
    }
}

/// A JSON document, indented. What isn't visible is escaped in its strings.
pub fn json_text(document: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(document).context("Can't make JSON of the result")?;
    if text.is_ascii() && !text.contains('\x7f') {
        return Ok(text);
    }
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || names::is_visible(c) {
            visible.push(c);
        } else {
            // All such are in strings.
            visible.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    Ok(visible)
}

/// Prints one JSON document.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    let text = json_text(document)?;
    print(|out| writeln!(out, "{text}"))
}

/// Wipes the line of a terminal.
const WIPE: &str = "\r\x1b[K";
/// Whether a progress line is on the terminal.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);

/// A message for people, on standard error.
pub fn message(text: impl Display) {
    let wipe = if UNDER_WAY.swap(false, Ordering::Relaxed) { WIPE } else { "" };
    // Where messages cannot be written, saying so cannot either.
    let _ = writeln!(io::stderr().lock(), "{wipe}headstart: {}", harmless(text.to_string()));
}

/// A line about something under way, on a terminal; the next one, or a message,
/// takes its place. An empty one wipes it.
pub fn progress(text: &str) {
    UNDER_WAY.store(!text.is_empty(), Ordering::Relaxed);
    let _ = write!(io::stderr().lock(), "{WIPE}{}", harmless(text));
}

/// An error and its causes as one message.
pub fn error(error: &dyn std::error::Error) {
    message(causes(error));
}

/// A time in seconds of Unix time as `2026-01-31T12:34:56Z`.
pub fn time(unix: u64) -> String {
    /// The last second of the year 9999; later times come from broken records.
    const LAST: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(unix.min(LAST));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A number of bytes for people, in powers of 1024: `0 B`, `1023 B`, `4.0 KiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // As rounded for printing: 1023.96 KiB would read 1024.0 KiB.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 page`, `2 pages`.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A part in per cent, `-` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.1}", 100.0 * part as f64 / whole as f64)
}

/// A number with a comma before each three digits: `4,864`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The width of the terminal in characters: `$COLUMNS`, or that of standard
/// output, or 80.
pub fn terminal_width() -> usize {
    // Wider lines can't be formatted.
    let columns = || Some(usize::from(std::env::var("COLUMNS").ok()?.parse::<u16>().ok()?));
    let window = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|w| w.ws_col.into());
    columns().filter(|&n| n > 0).or_else(window).filter(|&n| n > 0).unwrap_or(80)
}

/// A colour for a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// As it should be.
    Green,
    /// Worth a look.
    Yellow,
    /// Not as it should be.
    Red,
}

const COLOURS: [Colour; 3] = [Colour::Green, Colour::Yellow, Colour::Red];

impl Colour {
    const fn code(self) -> &'static str {
        match self {
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
        }
    }
}

/// Ends a colour.
const PLAIN: &str = "\x1b[0m";

/// Whether standard output is a terminal that may have colours (<https://no-color.org>).
fn has_colours() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !set("NO_COLOR") && !dumb && io::stdout().is_terminal()
}

/// The text in a colour, if there are colours.
pub fn coloured(text: &str, colour: Colour) -> String {
    if has_colours() { format!("{}{text}{PLAIN}", colour.code()) } else { text.to_owned() }
}

/// On which side a column is flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows with columns as wide as their widest entry.
#[derive(Debug)]
pub struct Table<const N: usize> {
    align: [Align; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table with these headings.
    pub fn new(columns: [(&str, Align); N]) -> Self {
        let rows = vec![columns.map(|(heading, _)| heading.to_owned())];
        Self { align: columns.map(|(_, align)| align), rows }
    }

    /// Adds a row.
    pub fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Writes all rows, two spaces between columns and none at the end.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for row in &self.rows {
            let mut line = String::new();
            for ((text, align), width) in row.iter().zip(self.align).zip(widths) {
                // Wider ones can't be formatted.
                let width = width.min(u16::MAX.into());
                match align {
                    Align::Left => line += &format!("{text:<width$}  "),
                    Align::Right => line += &format!("{text:>width$}  "),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_four_digits_at_most_before_their_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (1536 * 1024, "1.5 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        for (n, text) in [(0, "0"), (999, "999"), (4864, "4,864"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
    }

    #[test]
    fn a_time_in_the_far_future_can_be_written() {
        for (unix, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(time(unix), text);
        }
    }

    #[test]
    fn nothing_that_is_not_visible_is_printed() {
        let mut visible = Visible { out: Vec::new(), line: Vec::new(), colours: false };
        for part in ["a\u{e9}\x1b[2J\n\tb\r", "\u{202e}c\nd"] {
            // In pieces that end within characters.
            part.as_bytes().chunks(1).for_each(|byte| visible.write_all(byte).unwrap());
        }
        visible.flush().unwrap();
        let text = "a\u{e9}\\033[2J\n\tb\\015\\342\\200\\256c\nd";
        assert_eq!(String::from_utf8(visible.out).unwrap(), text);
    }

    #[test]
    fn what_is_not_visible_is_escaped_in_json_and_read_back() {
        let words = ["a\u{e9}\n\x1b\u{7f}\u{9b}\u{202e}\u{e0041}", "b"];
        let text = json_text(&words).unwrap();
        assert!(text.chars().all(|c| c == '\n' || names::is_visible(c)), "{text}");
        assert_eq!(serde_json::from_str::<[String; 2]>(&text).unwrap(), words);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_entry() {
        let mut table =
            Table::new([("N", Align::Right), ("NAME", Align::Left), ("X", Align::Left)]);
        table.row(["100".into(), "\u{e9}".into(), "y".into()]);
        table.row(["1".into(), "longer".into(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let expected = "  N  NAME    X\n100  \u{e9}       y\n  1  longer\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
