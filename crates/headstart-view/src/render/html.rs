//! A picture as one page, which loads nothing from elsewhere: what it says in words, a canvas to look
//! around in, and the figures in tables. The scripts in `page/` draw it from the JSON document.

use super::json::json;
use super::xml::{Escaped, put};
use crate::picture::{Picture, Table};

/// How all of them begin.
pub const BEGIN: &str = "<!DOCTYPE html>\n<!-- headstart/picture/1 -->\n";

const STYLE: &str = include_str!("page/page.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 5] = [
    include_str!("page/data.js"),
    include_str!("page/scale.js"),
    include_str!("page/draw.js"),
    include_str!("page/hover.js"),
    include_str!("page/page.js"),
];
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The page.
///
/// # Errors
/// Those of [`json`].
pub fn html(picture: &Picture) -> serde_json::Result<String> {
    let title = Escaped(picture.title.as_str());
    let mut out = format!(
        "{BEGIN}<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{colours}{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        colours = super::xml::colours(":root", "--"),
    );
    for words in &picture.summary {
        put(&mut out, format_args!("<p class=\"said\">{}</p>\n", Escaped(words.as_str())));
    }
    out.push_str(include_str!("page/body.html"));
    picture.tables.iter().for_each(|given| table(&mut out, 2, given));
    // In a string, this is the same for a reader of JSON, and ends no script.
    let data = json(picture)?.replace('<', "\\u003c");
    put(&mut out, format_args!("<script id=\"data\" type=\"application/json\">{data}</script>\n"));
    out.push_str("<script>\n\"use strict\";\n");
    SCRIPTS.iter().for_each(|script| out.push_str(script));
    out.push_str("</script>\n</body>\n</html>\n");
    Ok(out)
}

/// A table with a heading of a level.
pub(super) fn table(out: &mut String, level: u8, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    put(out, format_args!("<h{level}>{}</h{level}>\n<table>\n<tr>", Escaped(table.title.as_str())));
    for cell in &table.head {
        put(out, format_args!("<th>{}</th>", Escaped(cell.as_str())));
    }
    out.push_str("</tr>\n");
    for row in &table.rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", Escaped(cell.as_str())));
        put(out, format_args!("<tr>{}</tr>\n", cells.collect::<String>()));
    }
    out.push_str("</table>\n");
    if table.skipped > 0 {
        put(out, format_args!("<p>and {} more</p>\n", table.skipped));
    }
}
