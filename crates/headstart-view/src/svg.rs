//! The SVG elements that the pictures share.

use super::axis::Axis;
use headstart::host::names;
use std::fmt::{self, Display, Write};

/// Okabe and Ito's colours for light and for dark grounds;
/// where there are more things to distinguish, they begin again.
pub(super) const COLOURS: [(&str, &str); 6] = [
    ("#0072b2", "#4aa8e0"),
    ("#56b4e9", "#9ad4f5"),
    ("#009e73", "#2fc99b"),
    ("#d55e00", "#ff8a3d"),
    ("#cc79a7", "#e3a0c6"),
    ("#c08600", "#f0b93a"),
];

/// Begins a picture: its size, title, ground and look. `class` is that of the
/// picture, and c0, c1 … are those of the colours, which are distinguished by people
/// who see red and green alike, and change with the viewer's light or dark setting.
pub(super) fn open(
    out: &mut String,
    class: &str,
    title: &str,
    (width, height): (f64, f64),
    colours: &[(&str, &str)],
) {
    let mut light = String::new();
    let mut dark = String::new();
    for (i, (on_light, on_dark)) in colours.iter().enumerate() {
        light += &format!(".{class} .c{i}{{color:{on_light}}}");
        dark += &format!(".{class} .c{i}{{color:{on_dark}}}");
    }
    // Every selector begins with the picture's class, so that it can be put
    // into a page without changing the page's look.
    let c = class;
    put(
        out,
        format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" class="{c}" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<title>{title}</title>
<style>
.{c} text{{font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums;fill:#1d1d20}}
.{c} .t{{font-size:16px;font-weight:600}}.{c} .m{{fill:#66666e}}
.{c} .mid{{text-anchor:middle}}.{c} .end{{text-anchor:end}}
.{c} .bg{{fill:#fff}}.{c} .grid{{stroke:#e4e4e9}}.{c} .line{{stroke:#9a9aa2}}.{c} .mark{{stroke:#1d1d20;stroke-width:2}}
{light}
@media (prefers-color-scheme:dark){{
.{c} text{{fill:#ececf0}}.{c} .m{{fill:#a0a0aa}}
.{c} .bg{{fill:#17171b}}.{c} .grid{{stroke:#303038}}.{c} .line{{stroke:#6c6c76}}.{c} .mark{{stroke:#fff}}
{dark}
}}
</style>
<rect class="bg" width="{width}" height="{height}"/>"##,
            title = Escaped(title),
        ),
    );
    text(out, 24.0, 32.0, "t", &shortened(title, 96));
}

/// Text that is safe between tags and in quoted attributes. What isn't visible is escaped, and
/// so is what XML 1.0 forbids.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in names::text(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
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

/// Every other tick of an upright axis: a line from left to right, and its label before it.
pub(super) fn levels(out: &mut String, axis: &Axis, left: f64, right: f64) {
    for (value, label) in axis.ticks().iter().step_by(2) {
        let y = axis.pixel(*value);
        line(out, "grid", (left, y), (right, y));
        text(out, left - 8.0, y + 4.0, "m end", label);
    }
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
            r"&lt;script&gt;&quot;&#39;&amp;\033\000&lt;/script&gt;\357\277\277"
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
            ("prefetched", vec!["prefetched"]),
            ("prefetched beside", vec!["prefetched", "beside"]),
            ("unbreakablelong", vec!["unbreakable…"]),
            ("naïve – read everything twice", vec!["naïve – read", "everything …"]),
        ] {
            assert_eq!(two_lines(name, 12), lines, "{name}");
        }
    }
}
