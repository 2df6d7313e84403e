//! Where a layout goes: the donor is allocated, and where it lies in pieces other files are moved aside, with
//! `--make-room`.

use super::plan::Planned;
use super::which::wanted_of;
use super::work::Work;
use crate::output::{self, counted, size};
use crate::packs::search_path;
use headstart::cache::residency::page_size;
use headstart::host::mounts::MountTable;
use headstart::pack::{Pack, store};
use headstart_layout::LayoutError;
use headstart_layout::gain::Gain;
use headstart_layout::journal::Donor;
use headstart_layout::others::others;
use headstart_layout::plan::{Plan, exchanged};
use headstart_layout::room::room;
use headstart_layout::volume::{Store, Volume};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// To make room, the donor gets one part in this many more: the extents of other files do not fill its pieces exactly.
const SLACK_PART: u64 = 8;

/// A layout with its place.
pub struct Placed {
    /// What was allocated.
    pub donor: Donor,
    /// The ranges in their places, and what is moved aside before.
    pub plan: Plan,
    /// What is gained there.
    pub gain: Gain,
}

impl Placed {
    /// In the places of the donor as it is.
    pub fn allocate(
        store: &Store,
        volume: &Volume,
        planned: &Planned,
    ) -> Result<Self, LayoutError> {
        let donor = store.allocate(planned.donor_bytes, volume, &planned.plan)?;
        // Copies of the others lie where they are made.
        let places = planned.plan.places(&donor.extents).filter(|_| !volume.kind.shares());
        let plan = places.and_then(|places| planned.plan.in_order_of(places, page_size()));
        let plan = plan.unwrap_or_else(|| planned.plan.clone());
        let gain = planned.gain_with(&plan, &donor.extents);
        Ok(Self { donor, plan, gain })
    }

    /// In one area, from which other files are moved aside, where that is expected to be faster. The files
    /// are added to those that were found. `None` after a stop.
    pub fn make_room(
        self,
        store: &Store,
        volume: &Volume,
        (planned, kept): (&mut Planned, &HashSet<PathBuf>),
        work: &Work,
    ) -> Result<Option<Self>, LayoutError> {
        // Places of the donor are whole pages.
        if !planned.gain.betters(&self.gain) || volume.block()? != page_size() {
            return Ok(Some(self));
        }
        let mut part = work.part("looking at other files", volume, 0);
        let Some(others) = others(store, volume, kept, |done| part.go(done))? else {
            return Ok(None);
        };
        drop(part);
        let Plan { donor_bytes: need, .. } = planned.plan;
        let free = volume.room()?.saturating_add(planned.donor_bytes);
        let bytes = planned.donor_bytes.saturating_add(need / SLACK_PART).min(free);
        let bytes = bytes / page_size() * page_size();
        let donor = store.allocate(bytes, volume, &planned.plan)?;
        let tail = planned.donor_bytes - need;
        let usable = Plan { donor_bytes: bytes - tail, ..Plan::default() };
        let usable = usable.places(&donor.extents).unwrap_or_default();
        let room = room(&usable, need, &others.extents).unwrap_or_default();
        let Some(mut plan) = planned.plan.in_order_of(room.places, page_size()) else {
            return Self::allocate(store, volume, planned).map(Some);
        };
        let aside: Vec<_> = room.aside.iter().collect();
        let then = exchanged(&donor.extents, &aside).unwrap_or_default();
        let gain = planned.gain_with(&plan, &then);
        if !gain.betters(&self.gain) {
            return Self::allocate(store, volume, planned).map(Some);
        }
        let mut numbers = HashMap::new();
        plan.aside = room.aside;
        for piece in &mut plan.aside {
            let files = &mut planned.found.files;
            piece.file = *numbers.entry(piece.file).or_insert_with(|| {
                files.extend(others.files.get(piece.file).cloned());
                files.len() - 1
            });
        }
        Ok(Some(Self { donor, plan, gain }))
    }

    /// What its user should know of the place, in words; `was_tried` says that room was to be made.
    pub fn remarks(&self, volume: &Volume, planned: &Planned, was_tried: bool) -> Option<String> {
        let place = output::shown(&volume.mount_point);
        if !self.plan.aside.is_empty() {
            let files: HashSet<_> = self.plan.aside.iter().map(|piece| piece.file).collect();
            let (bytes, files) = (size(self.plan.aside_bytes()), files.len() as u64);
            let files = counted(files, "other file");
            return Some(format!("{place}: {bytes} of {files} are moved aside first"));
        }
        // Copies of the others lie where they are made.
        if volume.kind.shares() || !planned.gain.betters(&self.gain) {
            return None;
        }
        let pieces = counted(self.donor.extents.len() as u64, "piece");
        let seconds = |gain: &Gain| gain.after.replay_us.map(|us| us as f64 / 1e6);
        let times = seconds(&self.gain).zip(seconds(&planned.gain));
        let times = times.map_or_else(String::new, |(here, ideal)| {
            format!(" (a replay takes {here:.2} s with it, and {ideal:.2} s in one piece)")
        });
        let then = if was_tried { NO_ROOM } else { MAKE_ROOM };
        Some(format!("{place}: the layout lies in {pieces}{times}; {then}"))
    }
}

/// What helps where the free space is in pieces.
pub const MAKE_ROOM: &str = "with --make-room other files are moved aside first";
/// What is said where that does not.
pub const NO_ROOM: &str = "moving other files aside does not make it faster";

/// The packs whose files stay where they are, for the sake of starts: those that are laid out, and all where packs are
/// looked for.
pub fn known(packs: &[Pack]) -> anyhow::Result<Vec<Pack>> {
    let uid = rustix::process::geteuid().as_raw();
    let mut all = packs.to_vec();
    for dir in search_path()? {
        for path in store::packs_in(&dir, uid)? {
            match store::read(&path, uid) {
                Ok(pack) => all.push(pack),
                Err(error) => {
                    output::message(format_args!("its files may be moved aside: {error}"));
                }
            }
        }
    }
    Ok(all)
}

/// The files of packs on a volume, by their paths below its root.
pub fn files_on(packs: &[Pack], volume: &Volume, mounts: &MountTable) -> HashSet<PathBuf> {
    let wanted = wanted_of(packs, None, 0).files;
    wanted.iter().filter_map(|file| volume.below(&file.path, mounts)).collect()
}
