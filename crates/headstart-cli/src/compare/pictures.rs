//! Pictures among the files of a comparison: one of each side is drawn, before and after on the same
//! axes.

use crate::output::{self, counted};
use crate::picture as pictures;
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart_view::build::accesses::Accesses;
use headstart_view::build::{before_after, read_back};
use headstart_view::read;
use headstart_view::render::json::BEGIN;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Takes the pictures (`--picture FILE.json`) from the files of a side.
pub fn split(files: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    files.into_iter().partition(|path| is_picture(path))
}

fn is_picture(path: &Path) -> bool {
    let begin = |file: File| contents::rest_of(file.take(BEGIN.len() as u64));
    File::open(path).and_then(begin).is_ok_and(|begin| begin == BEGIN.as_bytes())
}

/// Draws the recordings of median length, and returns what there is to say of them.
///
/// # Errors
/// A side has no picture, one can't be used, or the file can't be written.
pub fn draw(
    first: &[PathBuf],
    second: &[PathBuf],
    to: &Path,
    force: bool,
) -> anyhow::Result<String> {
    let (before, after) = (median(first, "first")?, median(second, "second")?);
    let picture = before_after::picture(&before, &after);
    pictures::write(to, &picture, force)?;
    let said = picture.summary.first().map(ToString::to_string).unwrap_or_default();
    let of_several = match (first.len(), second.len()) {
        (1, 1) => String::new(),
        (n, m) => format!(" These are the recordings of median length, of {n} and {m}."),
    };
    Ok(format!("{}: {said}{of_several}\n", output::shown(to)))
}

/// Says that pictures are not drawn, if there are any.
pub fn mention(pictures: usize) {
    if pictures > 0 {
        let count = counted(pictures as u64, "picture");
        output::message(format_args!(
            "{count} among the files: --picture FILE draws one of each side"
        ));
    }
}

/// The recording whose length is in the middle; the shorter one of two.
fn median(files: &[PathBuf], side: &str) -> anyhow::Result<Accesses> {
    let mut lengths = Vec::new();
    for path in files {
        lengths.push((accesses(path)?.length_ns, path));
    }
    lengths.sort();
    match lengths.get(lengths.len().saturating_sub(1) / 2) {
        // All at once could take much memory.
        Some((_, path)) => accesses(path),
        None => bail!(
            "The {side} side has no picture: record each with headstart faults --picture FILE.json, \
             and name these files too"
        ),
    }
}

fn accesses(path: &Path) -> anyhow::Result<Accesses> {
    let name = || format!("Can't draw {}", output::shown(path));
    let picture = read::picture(&contents::bytes(path).with_context(name)?).with_context(name)?;
    read_back::accesses(&picture).context("It is no picture of headstart faults").with_context(name)
}
