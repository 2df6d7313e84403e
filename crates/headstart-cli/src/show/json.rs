//! A pack as a JSON document, `headstart/show/2`.

use super::by_file::{View, history};
use crate::output::{self, JsonPath};
use headstart::host::range::PageRange;
use headstart::host::usage::How;
use headstart::pack::changing::changes_often;
use headstart::pack::{FileSystem, History, Identity, Origin};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    pack: JsonPath,
    origin: &'a Origin,
    page_size: u64,
    file_systems: &'a [FileSystem],
    files: Vec<JsonFile>,
    metadata: Vec<JsonRange>,
}

#[derive(Serialize)]
struct JsonFile {
    #[serde(flatten)]
    path: JsonPath,
    file_system: u16,
    #[serde(flatten)]
    identity: Identity,
    /// In which of the last starts it changed, the last first.
    changes: String,
    changing: bool,
    ranges: Vec<JsonRange>,
}

#[derive(Serialize)]
struct JsonRange {
    offset: u64,
    length: u64,
    first_touch_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<How>,
    history: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_system: Option<u16>,
}

/// Prints the document. Times are milliseconds from the beginning of a start,
/// offsets and lengths bytes, mtime and ctime nanoseconds of Unix time.
pub fn print(path: &Path, view: &View<'_>) -> anyhow::Result<()> {
    let pack = view.pack;
    let page = pack.page_size();
    let starts = pack.origin.starts;
    let range = |pages: PageRange, at_us: u32, touched: History| JsonRange {
        offset: pages.bytes(page).offset,
        length: pages.bytes(page).length(),
        first_touch_ms: f64::from(at_us) / 1000.0,
        how: None,
        history: history(touched, starts),
        file_system: None,
    };
    let file = |i: usize| JsonFile {
        path: view.path(i).as_path().into(),
        file_system: pack.files[i].file_system,
        identity: pack.files[i].identity,
        changes: history(pack.files[i].changes, starts),
        changing: changes_often(pack.files[i].changes),
        ranges: view
            .ranges_of(i)
            .map(|r| JsonRange { how: Some(r.how), ..range(r.page_range(), r.at_us, r.history) })
            .collect(),
    };
    let metadata = pack.metadata.iter().map(|r| JsonRange {
        file_system: Some(r.file_system),
        ..range(r.page_range(), r.at_us, r.history)
    });
    output::print_json(&Document {
        schema: "headstart/show/2",
        pack: path.into(),
        origin: &pack.origin,
        page_size: page,
        file_systems: &pack.file_systems,
        files: (0..pack.files.len()).map(file).collect(),
        metadata: metadata.collect(),
    })
}
