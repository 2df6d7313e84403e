//! The kinds of result files that options name, and how each begins, so that a result replaces
//! nothing else.

use crate::output;
use crate::picture::Form;
use anyhow::Context;
use headstart::host::outputs::{self, Known};
use headstart::profile::accesses::rows;
use headstart_elf::order::write::Format;
use headstart_faults::export;
use headstart_layout::image;
use headstart_view::picture::SCHEMA as PICTURE;
use headstart_view::render::report::BEGIN as REPORT;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::path::Path;

/// What a result is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultKind {
    /// A document of ours.
    Json,
    /// ChromeOS's boot performance figures.
    Bootperf,
    /// A picture.
    Picture(Form),
    /// A report.
    Markdown,
    /// A page with several pictures.
    Report,
    /// Page faults, one in a row.
    FaultsCsv,
    /// Accesses of a start.
    Accesses(rows::Format),
    /// Page faults for the Firefox Profiler.
    Firefox,
    /// Page faults for Perfetto.
    Perfetto,
    /// Page faults as folded stacks.
    Folded,
    /// Functions in an order, for a linker.
    Order(Format),
    /// Files in an order, for the builder of an image.
    ImageList(image::Format),
}

impl ResultKind {
    /// How an earlier result is known.
    fn known(self) -> Known {
        match self {
            Self::Json => Known::ByContent(is_document),
            Self::Bootperf => Known::ByContent(is_bootperf),
            Self::Picture(form) => Known::ByBegin(form.begin().as_bytes()),
            Self::Report => Known::ByBegin(REPORT.as_bytes()),
            Self::Markdown => Known::ByContent(is_report),
            Self::FaultsCsv => Known::ByBegin(headstart_faults::csv::HEADER.as_bytes()),
            Self::Accesses(format) => Known::ByBegin(format.header().as_bytes()),
            Self::Firefox => Known::ByBegin(export::firefox::BEGIN),
            Self::Perfetto => Known::ByBegin(export::perfetto::BEGIN),
            Self::Folded => Known::ByContent(export::folded::is_folded),
            Self::Order(format) => by_comment(format.comment()),
            Self::ImageList(format) => by_comment(format.comment()),
        }
    }
}

/// Without a comment in it, it could be anybody's list.
fn by_comment(comment: Option<&'static str>) -> Known {
    match comment {
        Some(comment) => Known::ByBegin(comment.as_bytes()),
        None => Known::ByContent(|_| false),
    }
}

fn is_document(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Value>(bytes).is_ok_and(|document| {
        let is_own = |schema: &str| schema.starts_with("headstart/") && schema != PICTURE;
        document["schema"].as_str().is_some_and(is_own)
    })
}

fn is_report(bytes: &[u8]) -> bool {
    let second = bytes.split(|byte| *byte == b'\n').nth(1).unwrap_or_default();
    let second = String::from_utf8_lossy(second);
    second.contains(", until ") && second.contains("; cold by ")
}

/// Whether these are charts, each with variants.
fn is_bootperf(bytes: &[u8]) -> bool {
    let is_chart = |chart: &Value| {
        let is_variant = |variant: &Value| variant["improvement_direction"].is_string();
        chart.as_object().is_some_and(|variants| variants.values().all(is_variant))
    };
    serde_json::from_slice::<Value>(bytes).is_ok_and(|document| {
        document.as_object().is_some_and(|charts| charts.values().all(is_chart))
    })
}

/// Writes a result; with `force`, whatever is there.
///
/// # Errors
/// What is there is neither empty nor an earlier result, or the file can't be written.
pub fn write(path: &Path, text: &str, kind: ResultKind, force: bool) -> anyhow::Result<()> {
    told(path, outputs::replace(path, text.as_bytes(), kind.known(), force))
}

/// Writes a result piece by piece; with `force`, whatever is there.
///
/// # Errors
/// Those of [`write`].
pub fn write_by(
    path: &Path,
    kind: ResultKind,
    force: bool,
    write: impl FnOnce(File) -> io::Result<()>,
) -> anyhow::Result<()> {
    told(path, outputs::open(path, kind.known(), force).and_then(write))
}

/// Fails as [`write`] will: before what takes a while.
///
/// # Errors
/// What is there is neither empty nor an earlier result.
pub fn check(path: &Path, kind: ResultKind, force: bool) -> anyhow::Result<()> {
    told(path, outputs::check(path, kind.known(), force))
}

fn told(path: &Path, done: io::Result<()>) -> anyhow::Result<()> {
    done.with_context(|| format!("Can't write {}", output::shown(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_elf::order::write;

    #[test]
    fn each_kind_knows_its_own_and_nothing_else() {
        use ResultKind::{
            Accesses, Bootperf, FaultsCsv, Firefox, Folded, ImageList, Json, Markdown, Order,
            Perfetto, Picture, Report,
        };
        let order = |format| write::text(&[], format);
        let (lld, gnu_ld) = (order(Format::Lld), order(Format::GnuLd));
        let picture = |form: Form| form.text(&headstart_view::picture::Picture::default()).unwrap();
        let [html, svg, data] = [Form::Html, Form::Svg, Form::Json].map(picture);
        let list = image::list(&Default::default(), "/".as_ref(), image::Format::SquashfsSort);
        let perf = r#"{"seconds": {"default": {"improvement_direction": "down"}}}"#;
        let is_own = |kind: ResultKind, bytes: &[u8]| match kind.known() {
            Known::ByBegin(begin) => bytes.starts_with(begin),
            Known::ByContent(is_own) => is_own(bytes),
        };
        let own: [(ResultKind, &[u8]); _] = [
            (Json, br#"{"a": 1, "schema": "headstart/run/2"}"#),
            (Bootperf, perf.as_bytes()),
            (Picture(Form::Svg), svg.as_bytes()),
            (Picture(Form::Html), html.as_bytes()),
            (Picture(Form::Json), data.as_bytes()),
            (FaultsCsv, headstart_faults::csv::HEADER.as_bytes()),
            (Accesses(rows::Format::Text), rows::Format::Text.header().as_bytes()),
            (Accesses(rows::Format::Csv), rows::Format::Csv.header().as_bytes()),
            (Firefox, b"{\"exportedBy\":\"headstart faults\",\"meta\":{}}"),
            (Perfetto, export::perfetto::BEGIN),
            (Folded, b"sh (7);sh (7);[heap] 9\n"),
            (Report, REPORT.as_bytes()),
            (Markdown, b"true\n8 rounds in 3s, until it ends; cold by drop_caches=3\n"),
            (Order(Format::Lld), lld.as_bytes()),
            (Order(Format::GnuLd), gnu_ld.as_bytes()),
            (ImageList(image::Format::SquashfsSort), list.text.as_slice()),
        ];
        let foreign = [
            r#"{"schema": "mine/1"}"#,
            r#"{"name": "app", "version": "1"}"#,
            "<svg width=\"1\">",
            "<!DOCTYPE html>\n<html>",
            "# Notes\n\ncold by drop_caches\n",
            "print()\n",
            "main\n",
            "main;f 7\n",
            ".text.main\n",
        ];
        for (kind, _) in own {
            for (other, text) in own {
                assert_eq!(is_own(kind, text), kind == other, "{kind:?}: {other:?}");
            }
            for text in foreign {
                assert!(!is_own(kind, text.as_bytes()), "{kind:?}: {text}");
            }
        }
        for format in [Format::Gold, Format::Bolt] {
            assert!(!is_own(Order(format), order(format).as_bytes()));
        }
    }
}
