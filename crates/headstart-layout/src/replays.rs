//! Finds what replays of packs read from a file system, and where that lies now. A driver; [`super::reads`]
//! says what a layout changes.

use super::examine::Found;
use super::extents::{is_encoded, parts, placed};
use super::reads::{MetadataStep, ReadStep, Replayed};
use super::volume::Volume;
use headstart::host::identity::{Identity, identity_of};
use headstart::host::mounts::MountTable;
use headstart::host::open::open_again;
use headstart::pack::Pack;
use headstart::replay::frequency::Frequency;
use headstart::replay::model::Model;
use headstart::replay::pack_strategy::read_strategy;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::step::Target;
use headstart_sys::fiemap::{self, Extent, Stored};
use std::collections::HashMap;
use std::path::Path;

/// What a replay of each pack reads from `volume`. Files that changed, or can't be opened, are not read.
/// `computing_us` has for each pack [`Replayed::computing_us`].
pub fn replays(
    packs: &[Pack],
    computing_us: &[Option<u64>],
    model: Option<Model>,
    (volume, mounts): (&Volume, &MountTable),
    found: &Found,
) -> Vec<Replayed> {
    let moved = found.files.iter().enumerate().map(|(number, file)| (file.identity.ino, number));
    let moved: HashMap<u64, usize> = moved.collect();
    let replay = |(pack, computing_us): (&Pack, &Option<u64>)| Replayed {
        computing_us: *computing_us,
        ..replay(pack, model, (volume, mounts), &moved)
    };
    packs.iter().zip(computing_us).map(replay).collect()
}

fn replay(
    pack: &Pack,
    model: Option<Model>,
    (volume, mounts): (&Volume, &MountTable),
    moved: &HashMap<u64, usize>,
) -> Replayed {
    let strategy = read_strategy(model, pack);
    let limits = Limits { budget: u64::MAX, metadata: true };
    let plan =
        Plan::of_pack(pack, &Frequency::HALF.choice(pack).without_growth(), limits, strategy);
    let mut out = Replayed { strategy, ..Replayed::default() };
    let mut known: HashMap<u32, Option<Seen>> = HashMap::new();
    for step in &plan.steps {
        match plan.targets.get(step.target as usize) {
            Some(Target::Device(system)) if volume.uuid.is_some() && system.uuid == volume.uuid => {
                let files_before = out.steps.len();
                out.metadata.push(MetadataStep { files_before, bytes: step.bytes });
            }
            Some(Target::File { node, identity, changing }) => {
                let seen = known.entry(step.target).or_insert_with(|| {
                    let path = plan.paths.path(*node);
                    let seen = look(&path, (volume, mounts))?;
                    let is_same = identity.is_none_or(|learned| learned.is_still(&seen.identity));
                    (is_same || *changing).then_some(seen)
                });
                if let Some(Seen { identity, extents }) = seen {
                    let file = moved.get(&identity.ino).copied();
                    let extents = parts(extents, step.bytes);
                    // Of what is compressed it is not known what lies beside what.
                    let divides = strategy.joins_by_place() && !extents.iter().any(is_encoded);
                    let gaps = plan.gaps.of(step).filter(|_| divides).collect();
                    let (bytes, touched_us) = (step.bytes, step.touched_us);
                    out.steps.push(ReadStep { file, bytes, gaps, extents, touched_us });
                }
            }
            _ => {}
        }
    }
    out
}

/// A file as it is.
struct Seen {
    identity: Identity,
    extents: Vec<Extent>,
}

/// Looks at a file on a volume.
fn look(path: &Path, (volume, mounts): (&Volume, &MountTable)) -> Option<Seen> {
    volume.below(path, mounts)?;
    let file = open_again(path).ok()?;
    let identity = identity_of(&rustix::fs::fstat(&file).ok()?);
    let is_on_disk = |(_, stored): &&(Extent, Stored)| {
        matches!(stored, Stored::Written | Stored::Shared | Stored::Encoded)
    };
    let pieces = fiemap::pieces(&file).ok()?;
    let extents = pieces.iter().filter(is_on_disk).map(placed).collect();
    Some(Seen { identity, extents })
}
