//! The learned packs, and the expected benefit of each on this machine. The driver: it reads them
//! and changes nothing.

use super::policy::FREQUENT;
use crate::host::json_path::JsonPath;
use crate::host::mounts::Mounts;
use crate::pack::store::{self, StoreError, packs_in};
use crate::replay::benefit::Expected;
use crate::replay::models::{Models, device_of};
use serde::Serialize;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A pack, and what its starts gain here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LearnedPack {
    /// The name of its program.
    pub name: String,
    /// The words of the command that its key is made from, with blanks between them. Any byte
    /// may be in it.
    pub command: String,
    /// Where it is.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Bytes of the pack file.
    pub pack_bytes: u64,
    /// Starts that it has learned.
    pub starts: u32,
    /// Files in it.
    pub files: usize,
    /// Bytes of files in it.
    pub data_bytes: u64,
    /// When it was last learned or read, in seconds of Unix time. Reading counts once a day on
    /// most file systems, and never where they are mounted with `noatime`.
    pub used_at: u64,
    /// The device that most of it lies on, as `major:minor`; none when that is not known.
    pub device: Option<String>,
    /// What is to be expected; none when the device was never measured.
    pub expected: Option<Expected>,
    /// By which part a cold start is faster, at least and at most, 0 to 1.
    pub gain: Option<(f64, f64)>,
    /// Whether `headstart run` reads it ahead.
    pub has_benefit: bool,
}

impl LearnedPack {
    /// Its title for people. It may contain any byte.
    pub fn title(&self) -> &str {
        if self.command.is_empty() { &self.name } else { &self.command }
    }
}

/// The packs in these directories, as far as the user `uid` can trust and read them.
///
/// # Errors
/// Somebody else could have changed what is in a directory, or it can't be read.
pub fn learned_packs(
    dirs: &[PathBuf],
    models: &Models,
    uid: u32,
) -> Result<Vec<LearnedPack>, StoreError> {
    let mut paths = Vec::new();
    for dir in dirs {
        paths.extend(packs_in(dir, uid)?);
    }
    paths.sort_unstable();
    Ok(paths.iter().filter_map(|path| look_at(path, models, uid)).collect())
}

fn look_at(path: &Path, models: &Models, uid: u32) -> Option<LearnedPack> {
    // The times are taken before the pack is read, since this is no use of it.
    let meta = path.symlink_metadata().ok()?;
    let pack = store::read(path, uid).ok()?;
    let device = device_of(&pack, &Mounts::default()).map(|device| device.rdev);
    let model = device.and_then(|dev| models.of_device(dev));
    let expected = model.map(|model| Expected::of(&pack, &FREQUENT.choice(&pack), &model));
    let words = pack.origin.command.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    Some(LearnedPack {
        command: words.collect::<Vec<_>>().join(" "),
        path: path.into(),
        pack_bytes: meta.len(),
        starts: pack.origin.starts,
        files: pack.files.len(),
        data_bytes: pack.data_bytes(),
        used_at: used_at(&meta),
        device: device.map(|dev| dev.to_string()),
        expected,
        gain: expected.map(|expected| expected.gain()),
        has_benefit: expected.is_none_or(|expected| expected.has_benefit()),
        name: pack.origin.name,
    })
}

fn used_at(meta: &Metadata) -> u64 {
    u64::try_from(meta.mtime().max(meta.atime())).unwrap_or(0)
}
