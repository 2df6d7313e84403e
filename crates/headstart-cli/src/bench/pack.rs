//! The pack that a benchmark prefetches: the program's own, or one that is learned for it.

use crate::output::JsonPath;
use std::path::Path;

use anyhow::bail;
use headstart::host::user::User;
use headstart::launch::learn::{know_device, locate};
use headstart::pack::Pack;
use headstart::pack::key::Key;
use headstart::pack::store::{self, StoreError};
use headstart::replay::models::Models;
use headstart_bench::arm::CacheState;
use headstart_bench::progress::progress;
use headstart_bench::report::Accuracy;
use headstart_bench::stats::hot::Progress;
use serde::Serialize;

use super::disks::Disks;
use super::learn;
use super::measure::Bench;
use super::rounds;
use crate::output;
use crate::scratch::Scratch;

/// Training starts of a program without a pack: two cold ones, and two that are
/// prefetched and add what was missing.
const TRAINING: [CacheState; 4] =
    [CacheState::Cold, CacheState::Cold, CacheState::Prefetched, CacheState::Prefetched];
/// Hot starts that are traced: one that brings in what is missing, and three of which the times of
/// touches are used.
const HOT: usize = 4;

/// The pack that was used, in figures.
#[derive(Clone, Serialize, Debug)]
pub struct PackFigures {
    /// Where it is, if it was named.
    pub path: Option<JsonPath>,
    /// Whether this benchmark learned it.
    pub learned_now: bool,
    /// Starts that are in it.
    pub starts: u32,
    /// Files in it.
    pub files: usize,
    /// Bytes of files in it.
    pub data_bytes: u64,
    /// Bytes of metadata in it.
    pub metadata_bytes: u64,
    /// How well it met what a traced start used.
    pub accuracy: Option<Accuracy>,
}

/// A pack to measure with.
#[derive(Debug)]
pub struct Prepared {
    /// The pack.
    pub figures: PackFigures,
    /// Keeps its copy until the end.
    _scratch: Scratch,
}

/// Finds the program's pack or learns it, lets `bench` know it, and sees how
/// well it does; `states` are to be measured. `None` when there is none and this
/// user can't learn one.
pub fn prepare(
    bench: &mut Bench,
    named: Option<&Path>,
    states: &[CacheState],
) -> anyhow::Result<Option<Prepared>> {
    let is_root = rustix::process::geteuid().is_root();
    let ahead = states.contains(&CacheState::Prefetched);
    let begins_cold = ahead || states.contains(&CacheState::Cold);
    let known = known(bench, named)?;
    let learned_now = known.is_none();
    if learned_now && !is_root {
        return Ok(None);
    }
    let scratch = Scratch::new("bench")?;
    let path = match named {
        Some(path) if learned_now => path.to_owned(),
        _ => scratch.path().join("pack"),
    };
    // This trace does not change an existing pack.
    let traced = if learned_now { path.clone() } else { scratch.path().join("traced") };
    if let Some(pack) = &known {
        for copy in [&path, &traced] {
            store::lock(copy)?.write(pack)?;
        }
        know(bench, pack)?;
    }
    let training = match (learned_now, ahead) {
        (true, true) => &TRAINING[..],
        (true, false) => &TRAINING[..2],
        (false, true) if is_root => &TRAINING[3..],
        (false, _) => &[],
    };
    if learned_now && !begins_cold {
        bench.cooler.cooling.announcement().into_iter().for_each(output::message);
    }
    let mut accuracy = None;
    for (i, state) in training.iter().enumerate() {
        rounds::progress(&format!("traced start {} of {}", i + 1, training.len()));
        match learn::traced_start(bench, &traced, *state) {
            Ok(Some(found)) => {
                accuracy = Some(found).filter(|_| *state == CacheState::Prefetched);
            }
            Ok(None) => bail!("Interrupted before anything was measured"),
            // A pack that is known can be measured without this figure.
            Err(error) if !learned_now => {
                output::message(format_args!(
                    "it is not known how much of the pack is used: {error:#}"
                ));
            }
            Err(error) => return Err(error),
        }
        if learned_now {
            know(bench, &read(&traced)?)?;
        }
        know_device(&traced, &Models::here());
    }
    rounds::progress("");
    let pack = read(&path)?;
    bench.pack = Some(path);
    let figures = PackFigures {
        path: named.map(JsonPath::from),
        learned_now,
        starts: pack.origin.starts,
        files: pack.files.len(),
        data_bytes: pack.data_bytes(),
        metadata_bytes: pack.metadata_bytes(),
        accuracy,
    };
    Ok(Some(Prepared { figures, _scratch: scratch }))
}

/// When a start needs what of the pack: by hot starts, which don't wait for a disk. Where they can't be traced,
/// by the last start that was learned. Also how many hot starts that were.
pub fn start_progress(bench: &Bench) -> anyhow::Result<(Vec<Progress>, usize)> {
    let pack = bench.known_pack()?;
    let is_root = rustix::process::geteuid().is_root();
    let hot = if is_root { hot_starts(bench) } else { Ok(Vec::new()) };
    let hot = hot.unwrap_or_else(|error| {
        output::message(format_args!(
            "the lower bound in touch order is that of the last learned start: {error:#}"
        ));
        Vec::new()
    });
    Ok((progress(&pack, &hot), hot.len()))
}

/// The packs of some hot starts; none after an interrupt.
fn hot_starts(bench: &Bench) -> anyhow::Result<Vec<Pack>> {
    let scratch = Scratch::new("bench-hot")?;
    let mut packs = Vec::new();
    for i in 0..HOT {
        rounds::progress(&format!("traced hot start {} of {HOT}", i + 1));
        let path = scratch.path().join(i.to_string());
        if bench.starter.interrupt.came()
            || learn::traced_start(bench, &path, CacheState::Hot)?.is_none()
        {
            return Ok(Vec::new());
        }
        let pack = read(&path)?;
        if !pack.origin.has_access_events {
            bail!("this kernel does not report accesses to pages in memory");
        }
        packs.push(pack);
    }
    rounds::progress("");
    Ok(packs.split_off(1))
}

/// The pack that was named, or the program's own.
fn known(bench: &Bench, named: Option<&Path>) -> anyhow::Result<Option<Pack>> {
    let Some(path) = named else {
        let key = Key::of_command(&bench.words, locate);
        let User { uid, variable } = User::own();
        let (_, pack) = store::find(&key.file_names(), uid, variable).map_err(|found| found.1)?;
        return Ok(pack);
    };
    match read(path) {
        Ok(pack) => Ok(Some(pack)),
        Err(StoreError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read(path: &Path) -> Result<Pack, StoreError> {
    store::read(path, rustix::process::geteuid().as_raw())
}

/// Lets a benchmark know the program's files.
fn know(bench: &mut Bench, pack: &Pack) -> anyhow::Result<()> {
    bench.cooler.know(pack);
    bench.disks = Disks::of_pack(pack)?;
    Ok(())
}
