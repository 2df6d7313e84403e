//! What the verbs of `headstart layout` are about: packs, file systems, and who may.

use crate::exit::ExitStatus;
use crate::output;
use crate::packs;
use crate::replay::named_pack;
use headstart::cache::residency::page_size;
use headstart::host::mounts::MountTable;
use headstart::outcome::last_run::file as last_run;
use headstart::pack::Pack;
use headstart::replay::model::Model;
use headstart::replay::pack_strategy::read_strategy;
use headstart::replay::strategy::ReadStrategy;
use headstart_layout::LayoutError;
use headstart_layout::skip::Skipped;
use headstart_layout::volume::Volume;
use headstart_layout::wanted::{Wanted, wanted};
use headstart_layout::zstd::Zstd;
use serde::Serialize;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// What is moved.
#[derive(clap::Args, Debug)]
pub struct WhatArgs {
    /// Packs, or the names of programs; what weighs most, by starts and ranges, comes first
    #[arg(value_name = "PACK", required = true)]
    packs: Vec<PathBuf>,

    /// Move at most so much (512M, 2G); it is taken twice until the layout is undone or released
    #[arg(long, value_name = "SIZE", value_parser = crate::args::bytes)]
    pub budget: Option<u64>,

    /// Also move gaps of up to so much (1M) between what is read, for programs that are started without
    /// headstart, too; a replay then takes longer
    #[arg(long, value_name = "SIZE", value_parser = crate::args::bytes, default_value = "0", hide_default_value = true)]
    pub gaps: u64,

    /// Only files on the file system of this path; apply needs it if packs name files on several
    #[arg(long, value_name = "PATH")]
    on: Option<PathBuf>,

    /// Compress what is moved, on btrfs (zstd, zstd:9); where the bandwidth of a disk is the limit, a start
    /// then reads less
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "zstd")]
    pub compress: Option<Zstd>,

    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl WhatArgs {
    /// The file systems on which files are moved, and why others can't be laid out.
    pub fn volumes(
        &self,
        wanted: &Wanted,
        mounts: &MountTable,
    ) -> anyhow::Result<(Vec<Volume>, Vec<LayoutError>)> {
        let (volumes, mut refused) = match &self.on {
            Some(path) => (vec![at(path, mounts)?], Vec::new()),
            None => Volume::of_wanted(wanted, mounts),
        };
        let mut fit = Vec::new();
        for volume in volumes {
            if self.compress.is_some() && !volume.kind.compresses() {
                refused.push(LayoutError::NoCompression { path: volume.mount_point });
                continue;
            }
            // Who can't move blocks need not be able to read the superblock.
            match if is_root() { volume.fit(mounts) } else { Ok(()) } {
                Ok(()) => fit.push(volume),
                Err(error) => refused.push(error),
            }
        }
        Ok((fit, refused))
    }

    /// The packs of what is moved.
    pub fn packs(&self) -> anyhow::Result<Vec<Pack>> {
        packs_of(&self.packs)
    }

    /// How long the last learned start of each of these packs took, in µs, if its files were in memory.
    pub fn in_memory_us(&self, packs: &[Pack]) -> Vec<Option<u64>> {
        let uid = rustix::process::geteuid().as_raw();
        let of = |(name, pack): (&PathBuf, &Pack)| {
            last_run::read(&packs::by_name(name).ok()?, pack, uid).ok()?.in_memory_us()
        };
        self.packs.iter().zip(packs).map(of).collect()
    }

    /// The absolute paths of the packs of what is moved.
    pub fn paths(&self) -> anyhow::Result<Vec<PathBuf>> {
        let path = |name: &PathBuf| Ok(std::path::absolute(packs::by_name(name)?)?);
        self.packs.iter().map(path).collect()
    }
}

/// The JSON document of a verb.
#[derive(Serialize)]
pub struct Document<T> {
    /// Its schema, with the version.
    pub schema: &'static str,
    /// The file systems that it did something with.
    pub file_systems: Vec<T>,
}

/// The packs with these names.
pub fn packs_of(packs: &[PathBuf]) -> anyhow::Result<Vec<Pack>> {
    let named = |path: &PathBuf| named_pack(&packs::by_name(path)?);
    packs.iter().map(named).collect()
}

/// What replays of these packs read from a device of this model, with gaps up to `gaps`.
pub fn wanted_of(
    packs: &[Pack],
    model: Option<Model>,
    gaps: u64,
    compress: Option<Zstd>,
) -> Wanted {
    wanted(packs, page_size(), moved_gaps(model, gaps, compress), |pack| {
        let strategy = read_strategy(model, pack);
        ReadStrategy { gap_bytes: strategy.gap_bytes.max(gaps), ..strategy }
    })
}

/// How large gaps are at most that are moved with what is read around them. On a rotational disk, or one that was not
/// measured, all that a replay reads: what a start touches there for the first time would be behind the head, and
/// wait for the rest of the pass. On others that costs a request, and gaps cost more in each start, unless what is
/// moved is compressed: in parts of less than the 128 KiB of a compressed extent there are more of these, each with a
/// request of its own.
fn moved_gaps(model: Option<Model>, gaps: u64, compress: Option<Zstd>) -> u64 {
    let stay = compress.is_none() && model.is_some_and(|model| model.seek().is_none());
    if stay { gaps } else { u64::MAX }
}

/// The mounts of this machine.
pub fn mounts() -> anyhow::Result<MountTable> {
    Ok(MountTable::read()?)
}

fn at(path: &Path, mounts: &MountTable) -> anyhow::Result<Volume> {
    let full = path.canonicalize();
    let full = full.with_context(|| format!("Can't look at {}", output::shown(path)))?;
    Ok(Volume::of(&full, mounts)?)
}

/// The file system at a path, or all that have a layout.
pub fn chosen(path: Option<&Path>) -> anyhow::Result<Vec<Volume>> {
    let mounts = mounts()?;
    match path {
        Some(path) => Ok(vec![at(path, &mounts)?]),
        None => Ok(Volume::laid_out(&mounts)),
    }
}

/// Whether this user may move files; says so if not.
pub fn may_move() -> bool {
    if !is_root() {
        output::message("layouts need root: they move blocks of files that belong to others");
    }
    is_root()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Does something with each file system; a failure of one is reported, and the others follow. The
/// worst status is that of all.
pub fn each(
    volumes: &[Volume],
    mut act: impl FnMut(&Volume) -> Result<ExitStatus, LayoutError>,
) -> ExitStatus {
    let mut all = ExitStatus::Done;
    for volume in volumes {
        let status = act(volume).unwrap_or_else(|error| {
            output::error(&error);
            ExitStatus::Failed
        });
        all = match (all, status) {
            (ExitStatus::Failed, _) | (_, ExitStatus::Done) => all,
            (_, status) => status,
        };
    }
    all
}

/// Skipped files in words: `2 immutable, 1 sparse`.
pub fn in_words(skipped: &Skipped) -> String {
    let word =
        |(skip, count): (&headstart_layout::skip::Skip, &u64)| format!("{count} {}", skip.words());
    skipped.iter().map(word).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_stay_on_measured_devices_that_do_not_seek_unless_what_is_moved_is_compressed() {
        let disk = Some(Model::of(8340, 140, 100, 1, 119));
        let emmc = Some(Model::of(330, 330, 150, 1, 3000));
        let zstd = Some(Zstd { level: None });
        for (model, compress, moved) in [
            (emmc, None, 4096),
            (emmc, zstd, u64::MAX),
            (disk, None, u64::MAX),
            (disk, zstd, u64::MAX),
            (None, None, u64::MAX),
        ] {
            assert_eq!(moved_gaps(model, 4096, compress), moved, "{model:?} {compress:?}");
        }
    }
}
