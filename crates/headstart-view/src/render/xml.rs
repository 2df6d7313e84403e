//! What pages and images share: escaped text, coordinates and colours.

use crate::picture::Colour;
use headstart::host::names;
use std::fmt::{self, Display, Write};

impl Colour {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Sky => "sky",
            Self::Green => "green",
            Self::Red => "red",
            Self::Pink => "pink",
            Self::Amber => "amber",
            Self::Grey => "grey",
        }
    }
}

/// Each colour on light and on dark grounds. The red is darker than the blues, so that both differ
/// in grey.
const COLOURS: [(Colour, &str, &str); 7] = [
    (Colour::Blue, "#0072b2", "#4aa8e0"),
    (Colour::Sky, "#56b4e9", "#7cc4ee"),
    (Colour::Green, "#009e73", "#2fc99b"),
    (Colour::Red, "#b3140c", "#ff6a50"),
    (Colour::Pink, "#cc79a7", "#e3a0c6"),
    (Colour::Amber, "#c08600", "#f0b93a"),
    (Colour::Grey, "#85858f", "#9a9aa6"),
];
/// Ground, text, muted text, lines of a grid, shades.
const GROUND: [(&str, &str, &str); 5] = [
    ("ground", "#ffffff", "#17171b"),
    ("ink", "#1d1d20", "#ececf0"),
    ("muted", "#5c5c66", "#a8a8b2"),
    ("grid", "#e4e4e9", "#303038"),
    ("shade", "#f1f1f5", "#212128"),
];

/// Declarations of all colours as custom properties, for light and dark settings.
pub(super) fn colours(selector: &str, prefix: &str) -> String {
    let kinds = COLOURS.iter().map(|(colour, light, dark)| (colour.name(), *light, *dark));
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, on_light, on_dark) in kinds.chain(GROUND) {
        light += &format!("{prefix}{name}:{on_light};");
        dark += &format!("{prefix}{name}:{on_dark};");
    }
    format!("{selector}{{{light}}}\n@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}\n")
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

/// At most so many characters: the last ones of a path, since directories that many files share say
/// least, and the first ones of other names.
pub(super) fn fitting(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most || !name.starts_with('/') {
        return shortened(name, most);
    }
    ['…'].into_iter().chain(name.chars().skip(length + 1 - most)).collect()
}

/// Words in lines of at most `most` characters, unless one word is longer.
pub(super) fn wrapped(words: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Adds words at a point.
pub(super) fn text(out: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let (x, y, words) = (Px(x), Px(y), Escaped(words));
    put(out, format_args!(r#"<text class="{class}" x="{x}" y="{y}">{words}</text>"#));
    out.push('\n');
}

/// Adds a straight line.
pub(super) fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let [x, y, x_to, y_to] = [from.0, from.1, to.0, to.1].map(Px);
    put(out, format_args!(r#"<path class="{class}" d="M{x} {y}L{x_to} {y_to}"/>"#));
    out.push('\n');
}

/// Writing to a String cannot fail.
pub(super) fn put(out: &mut String, what: fmt::Arguments) {
    let _ = out.write_fmt(what);
}
