//! Finds what replays of packs read from a file system, and where that lies now. A driver; [`super::reads`]
//! says what a layout changes.

use super::examine::Found;
use super::extents::{placed, within};
use super::reads::{ReadStep, Replayed};
use super::volume::Volume;
use headstart::host::identity::{Identity, identity_of};
use headstart::host::mounts::MountTable;
use headstart::host::open::open_again;
use headstart::host::range::ByteRange;
use headstart::pack::Pack;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::{Model, read_strategy};
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::step::Target;
use headstart_sys::fiemap::{self, Extent, Stored};
use std::collections::HashMap;
use std::path::Path;

/// What a replay of each pack reads from `volume`. Files that changed, or can't be opened, are not read.
pub fn replays(
    packs: &[Pack],
    model: Option<Model>,
    (volume, mounts): (&Volume, &MountTable),
    found: &Found,
) -> Vec<Replayed> {
    let moved = found.files.iter().enumerate().map(|(number, file)| (file.identity.ino, number));
    let moved: HashMap<u64, usize> = moved.collect();
    packs.iter().map(|pack| replay(pack, model, (volume, mounts), &moved)).collect()
}

fn replay(
    pack: &Pack,
    model: Option<Model>,
    (volume, mounts): (&Volume, &MountTable),
    moved: &HashMap<u64, usize>,
) -> Replayed {
    let strategy = read_strategy(model, pack);
    let limits = Limits { budget: u64::MAX, metadata: true };
    let plan = Plan::of_pack(pack, &Frequency::HALF.choice(pack), limits, strategy);
    let mut out = Replayed { strategy, steps: Vec::new(), metadata: Vec::new() };
    // By target: all of the file, if it is read.
    let mut known: HashMap<u32, Option<ReadStep>> = HashMap::new();
    for step in &plan.steps {
        match plan.targets.get(step.target as usize) {
            Some(Target::Device(system)) if volume.uuid.is_some() && system.uuid == volume.uuid => {
                out.metadata.push(step.bytes);
            }
            Some(Target::File { node, identity, changing }) => {
                let file = known.entry(step.target).or_insert_with(|| {
                    let path = plan.paths.path(*node);
                    let (ino, is_same, extents) = look(&path, (volume, mounts), *identity)?;
                    let file = moved.get(&ino).copied();
                    (is_same || *changing).then_some(ReadStep { file, extents })
                });
                if let Some(ReadStep { file, extents }) = file {
                    let extents = parts(extents, step.bytes);
                    out.steps.push(ReadStep { file: *file, extents });
                }
            }
            _ => {}
        }
    }
    out
}

/// The inode number and the extents of a file on a volume, and whether it has this identity.
fn look(
    path: &Path,
    (volume, mounts): (&Volume, &MountTable),
    learned: Option<Identity>,
) -> Option<(u64, bool, Vec<Extent>)> {
    volume.below(path, mounts)?;
    let file = open_again(path).ok()?;
    let now = identity_of(&rustix::fs::fstat(&file).ok()?);
    let is_on_disk = |(_, stored): &&(Extent, Stored)| {
        matches!(stored, Stored::Written | Stored::Shared | Stored::Encoded)
    };
    let pieces = fiemap::pieces(&file).ok()?;
    let extents = pieces.iter().filter(is_on_disk).map(placed).collect();
    Some((now.ino, learned.is_none_or(|learned| learned.is_still(&now)), extents))
}

/// The parts of extents in a range, which may have holes.
fn parts(extents: &[Extent], range: ByteRange) -> Vec<Extent> {
    let part = |extent: &Extent| {
        let begin = extent.logical.max(range.offset);
        let end = extent.logical.saturating_add(extent.length).min(range.end);
        within(&[*extent], (begin..end).into()).filter(|_| begin < end)
    };
    extents.iter().filter_map(part).flatten().collect()
}
