//! The few pieces of SVG that the pictures share.

use std::fmt::{self, Display, Write};

/// Text that is safe between tags and in quoted attributes. Characters that
/// XML 1.0 forbids become �.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_str("\u{fffd}")?,
                c if c.is_control() => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// A coordinate with one decimal: a tenth of a pixel is enough, and equal
/// pictures stay equal byte for byte.
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths / 10.0 })
    }
}

/// The first `most` characters, with … in place of what is cut off.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A name in at most two lines, broken at a space or after a hyphen.
pub(super) fn two_lines(name: &str, most: usize) -> Vec<String> {
    if name.chars().count() <= most {
        return vec![name.to_owned()];
    }
    let mut breaks = name.char_indices().filter(|(_, c)| [' ', '-'].contains(c));
    let fitting = breaks.rfind(|(i, _)| name[..=*i].trim_end().chars().count() <= most);
    let (first, second) = match fitting {
        Some((i, _)) => name.split_at(i + 1),
        None => return vec![shortened(name, most)],
    };
    vec![first.trim_end().to_owned(), shortened(second.trim_start(), most)]
}

/// Adds words at a point.
pub(super) fn text(out: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let (x, y, words) = (Px(x), Px(y), Escaped(words));
    put(out, format_args!(r#"<text x="{x}" y="{y}" class="{class}">{words}</text>"#));
}

/// Adds a straight line.
pub(super) fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let (x, y, to_x, to_y) = (Px(from.0), Px(from.1), Px(to.0), Px(to.1));
    put(out, format_args!(r#"<path class="{class}" d="M{x} {y}L{to_x} {to_y}"/>"#));
}

/// Adds a line of the file.
pub(super) fn put(out: &mut String, piece: fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{piece}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_only_text() {
        let hostile = "<script>\"'&\x1b\0</script>\u{ffff}";
        assert_eq!(
            Escaped(hostile).to_string(),
            "&lt;script&gt;&quot;&#39;&amp;��&lt;/script&gt;�"
        );
    }

    #[test]
    fn coordinates_are_short() {
        for (px, text) in [(1.0, "1"), (1.26, "1.3"), (-0.01, "0"), (100.04, "100")] {
            assert_eq!(Px(px).to_string(), text);
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("größer", 4), "grö…");
        assert_eq!(shortened("ab", 0), "…");
    }

    #[test]
    fn a_long_name_takes_two_lines_at_most() {
        for (name, lines) in [
            ("hot", vec!["hot"]),
            ("selectively cold", vec!["selectively", "cold"]),
            ("read-ahead", vec!["read-ahead"]),
            ("read-ahead beside", vec!["read-ahead", "beside"]),
            ("unbreakablelong", vec!["unbreakable…"]),
            ("naïve – read everything twice", vec!["naïve – read", "everything …"]),
        ] {
            assert_eq!(two_lines(name, 12), lines, "{name}");
        }
    }
}
