//! A report as one page that can be mailed: sections of words, tables and pictures. It loads nothing from
//! elsewhere. A picture is an image, which needs no script, and can be opened to look around in.

use super::html::{self, table};
use super::svg;
use super::xml::{Escaped, colours, put};
use crate::picture::{Picture, Table, Text};

/// How all of them begin.
pub const BEGIN: &str = "<!DOCTYPE html>\n<!-- headstart/report/1 -->\n";

/// Pictures take no more than this together, in bytes: an attachment of a mail has seldom more than
/// 20 MB, a third of which is its encoding. Images come first, then pages.
const MOST_BYTES: usize = 14_000_000;

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;max-width:1150px;margin:2em auto;padding:0 1em;\
    background:var(--ground);color:var(--ink)}table{border-collapse:collapse;margin:.5em 0 1em}\
    th,td{padding:.1em .8em;text-align:right;border-bottom:1px solid var(--grid);\
    font-variant-numeric:tabular-nums}th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}\
    th{color:var(--muted);font-weight:500}h2{margin-top:2em}h3{font-size:1em}svg{max-width:100%;height:auto}\
    iframe{width:100%;height:900px;border:1px solid var(--grid)}p{max-width:75em}\
    nav a{margin-right:1em}code{overflow-wrap:anywhere}";
/// A picture is loaded when it is opened, and only then takes memory.
const OPEN: &str = "for (const all of document.querySelectorAll('details')) all.ontoggle = () => {\
    const frame = all.querySelector('iframe'); if (all.open && !frame.srcdoc) frame.srcdoc = frame.dataset.page}";
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// A picture as it is drawn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// [`super::svg::svg`]
    pub image: String,
    /// [`super::html::html`]
    pub page: String,
}

impl Drawn {
    /// A picture.
    ///
    /// # Errors
    /// It has no form in JSON.
    pub fn of(picture: &Picture) -> serde_json::Result<Self> {
        Ok(Self { image: svg::svg(picture), page: html::html(picture)? })
    }
}

/// What to do, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// What it saves, and what it is about.
    pub title: Text,
    /// Why.
    pub words: Vec<Text>,
    /// The command that does it.
    pub command: Text,
}

/// A part of a report.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    /// What it is about.
    pub title: Text,
    /// What it says.
    pub words: Vec<Text>,
    /// What to do.
    pub advice: Vec<Advice>,
    /// Figures.
    pub tables: Vec<Table>,
    /// Pictures.
    pub pictures: Vec<Drawn>,
}

/// The page.
pub fn html(title: &Text, sections: &[Section]) -> String {
    let title = Escaped(title.as_str());
    let mut out = format!(
        "{BEGIN}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{colours}{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<nav>",
        colours = colours(":root", "--"),
    );
    for (number, section) in sections.iter().enumerate() {
        let title = Escaped(section.title.as_str());
        put(&mut out, format_args!("<a href=\"#s{number}\">{title}</a>"));
    }
    out.push_str("</nav>\n");
    let images =
        sections.iter().flat_map(|section| &section.pictures).map(|drawn| drawn.image.len());
    let mut room = Room::new(images.sum());
    for (number, section) in sections.iter().enumerate() {
        let title = Escaped(section.title.as_str());
        put(&mut out, format_args!("<h2 id=\"s{number}\">{title}</h2>\n"));
        paragraphs(&mut out, &section.words);
        for advice in &section.advice {
            put(&mut out, format_args!("<h3>{}</h3>\n", Escaped(advice.title.as_str())));
            paragraphs(&mut out, &advice.words);
            let command = Escaped(advice.command.as_str());
            put(&mut out, format_args!("<p><code>{command}</code></p>\n"));
        }
        section.pictures.iter().for_each(|drawn| picture(&mut out, drawn, &mut room));
        section.tables.iter().for_each(|given| table(&mut out, 3, given));
    }
    put(&mut out, format_args!("<script>{OPEN}</script>\n</body>\n</html>\n"));
    out
}

fn paragraphs(out: &mut String, words: &[Text]) {
    for words in words {
        put(out, format_args!("<p>{}</p>\n", Escaped(words.as_str())));
    }
}

/// Bytes that are left.
struct Room {
    images: usize,
    pages: usize,
}

impl Room {
    /// When all images take so many.
    fn new(images: usize) -> Self {
        Self { images: MOST_BYTES, pages: MOST_BYTES.saturating_sub(images) }
    }
}

/// Whether there is room for so many bytes, which is taken.
fn take(room: &mut usize, bytes: usize) -> bool {
    let left = room.checked_sub(bytes);
    *room = left.unwrap_or(*room);
    left.is_some()
}

fn picture(out: &mut String, drawn: &Drawn, room: &mut Room) {
    if take(&mut room.images, drawn.image.len()) {
        put(out, format_args!("<figure>{}</figure>\n", drawn.image));
    } else {
        out.push_str("<p>The picture is too large for this page.</p>\n");
    }
    // All else in a quoted attribute is the page's own text.
    let page = drawn.page.replace('&', "&amp;").replace('"', "&quot;");
    if !take(&mut room.pages, page.len()) {
        out.push_str(
            "<p>The picture to look around in is too large for this page: --picture FILE.html of the \
             command that recorded it writes a file of its own.</p>\n",
        );
        return;
    }
    put(
        out,
        format_args!(
            "<details><summary>Look around in it</summary><iframe title=\"picture\" \
             sandbox=\"allow-scripts\" data-page=\"{page}\"></iframe></details>\n"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(page: &str) -> Drawn {
        Drawn { image: "<svg/>".into(), page: page.into() }
    }

    #[test]
    fn names_are_text_and_pages_are_attributes() {
        let advice = Advice {
            title: "a <b>".into(),
            words: vec!["why & how".into()],
            command: "run 'x'".into(),
        };
        let section = Section {
            title: "T\"".into(),
            words: vec!["<script>".into()],
            advice: vec![advice],
            pictures: vec![drawn("<p title=\"a&b\">\n")],
            ..Section::default()
        };
        let page = html(&"x\u{1b}".into(), &[section]);
        assert!(page.starts_with(BEGIN), "{page}");
        for part in [
            "<title>x\\033</title>",
            "<h2 id=\"s0\">T&quot;</h2>\n<p>&lt;script&gt;</p>",
            "<h3>a &lt;b&gt;</h3>\n<p>why &amp; how</p>\n<p><code>run &#39;x&#39;</code></p>",
            "<figure><svg/></figure>",
            "data-page=\"<p title=&quot;a&amp;b&quot;>\n\"",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("<script>").count(), 1, "its own: {page}");
    }

    #[test]
    fn what_is_too_large_for_a_mail_is_skipped_pages_first() {
        let large = "x".repeat(MOST_BYTES / 2 + 1);
        let counts = |pictures: Vec<Drawn>| {
            let page = html(&"x".into(), &[Section { pictures, ..Section::default() }]);
            assert!(page.len() < MOST_BYTES + (1 << 14), "{}", page.len());
            ["<iframe", "<figure", "to look around in is too large", "The picture is too large"]
                .map(|words| page.matches(words).count())
        };
        assert_eq!(counts(vec![drawn(&large), drawn(&large), drawn("small")]), [2, 3, 1, 0]);
        let wide = |page: &str| Drawn { image: large.clone(), ..drawn(page) };
        assert_eq!(counts(vec![drawn(&large), wide("small")]), [1, 2, 1, 0]);
        assert_eq!(counts(vec![wide("a"), wide("b")]), [0, 1, 2, 1]);
    }
}
