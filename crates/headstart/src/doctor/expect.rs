//! What is to be expected of the packs that were learned. The driver: it reads them.

use crate::host::json_path::JsonPath;
use crate::host::mounts::Mounts;
use crate::pack::store;
use crate::replay::benefit::Expected;
use crate::replay::frequency::Frequency;
use crate::replay::models::{Models, device_of};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A pack, and what its starts gain here.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LearnedPack {
    /// The name of its program.
    pub name: String,
    /// Where it is.
    #[serde(flatten)]
    pub path: JsonPath,
    /// Starts that it has learned.
    pub starts: u32,
    /// The device that most of it lies on, as `major:minor`; none when that is not known.
    pub device: Option<String>,
    /// What is to be expected; none when the device was never measured.
    pub expected: Option<Expected>,
    /// By which part a cold start is faster, at least and at most, 0 to 1.
    pub gain: Option<(f64, f64)>,
    /// Whether `headstart run` reads it ahead.
    pub worth_it: bool,
}

/// The packs in the directories that this user's packs are looked for in; those that
/// can't be read are left out.
pub(super) fn learned_packs(dirs: &[PathBuf], models: &Models, uid: u32) -> Vec<LearnedPack> {
    let mut paths: Vec<PathBuf> = dirs
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
        .collect();
    paths.sort_unstable();
    paths.iter().filter_map(|path| look_at(path, models, uid)).collect()
}

fn look_at(path: &Path, models: &Models, uid: u32) -> Option<LearnedPack> {
    let pack = store::read(path, uid).ok()?;
    let device = device_of(&pack, &Mounts::default()).map(|device| device.rdev);
    let model = device.and_then(|dev| models.of_device(dev));
    let expected = model.map(|model| Expected::of(&pack, &Frequency::HALF.choice(&pack), &model));
    Some(LearnedPack {
        path: path.into(),
        starts: pack.origin.starts,
        device: device.map(|dev| dev.to_string()),
        expected,
        gain: expected.map(|expected| expected.gain()),
        worth_it: expected.is_none_or(|expected| expected.has_benefit()),
        name: pack.origin.name,
    })
}
