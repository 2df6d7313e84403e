//! Where a layout goes: the donor is allocated, and where it lies in pieces other files are moved aside, with
//! `--make-room`; on btrfs by block groups.

use super::plan::Planned;
use super::which::in_words;
use super::work::Work;
use crate::output::{self, counted, size};
use crate::packs::search_path;
use headstart::cache::residency::page_size;
use headstart::host::mounts::MountTable;
use headstart::pack::{Pack, store};
use headstart_layout::LayoutError;
use headstart_layout::apply::{Direction, Go, standing, swap_all};
use headstart_layout::block_groups::{block_groups, relocate};
use headstart_layout::extents::as_one_file;
use headstart_layout::gain::Gain;
use headstart_layout::journal::{Donor, LaidFile};
use headstart_layout::kind::Kind;
use headstart_layout::others::{Others, free_space, others};
use headstart_layout::plan::{Piece, Plan, exchanged};
use headstart_layout::prepare::prepare;
use headstart_layout::room::{Room, closest, room};
use headstart_layout::volume::{Store, Volume};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// To make room, the donor gets one part in so many more, the first of these that helps: the extents of other files
/// do not fill its pieces exactly.
const SLACK_PARTS: [u64; 3] = [8, 4, 2];

/// xfs takes the largest free parts first, wherever they lie. So it allocates one part in so many more than a layout needs,
/// which gets those that lie closest together.
const XFS_SLACK_PART: u64 = 2;

/// On btrfs, once so many times the bytes of the layout were moved to make room, no other block group is.
const MOST_RELOCATED: u64 = 8;

/// A layout with its place.
pub struct Placed {
    /// What was allocated.
    pub donor: Donor,
    /// The ranges in their places, and what is moved aside before.
    pub plan: Plan,
    /// What is gained there.
    pub gain: Gain,
    /// Bytes that were moved to make room and stay there: block groups of btrfs, other files on xfs.
    pub relocated: u64,
}

impl Placed {
    /// In the best places of a donor.
    pub fn allocate(
        store: &Store,
        volume: &Volume,
        planned: &Planned,
    ) -> Result<Self, LayoutError> {
        let bytes = match volume.kind {
            Kind::Xfs => {
                // What an earlier donor has is room for this one.
                store.clear()?;
                planned.donor_with_slack(XFS_SLACK_PART, volume.room()?)
            }
            Kind::Ext4 | Kind::Btrfs => planned.donor_bytes,
        };
        let allocated = |bytes| store.allocate(bytes, volume, &planned.plan);
        let donor = match allocated(bytes) {
            // The file system may have less room than it says.
            Err(_) if bytes > planned.donor_bytes => allocated(planned.donor_bytes)?,
            donor => donor?,
        };
        let need = planned.plan.donor_bytes;
        let places = match volume.kind {
            Kind::Ext4 => [planned.plan.places(&donor.extents), None],
            Kind::Xfs => [planned.plan.places(&donor.extents), closest(&donor.extents, need)],
            // Copies lie where they are made.
            Kind::Btrfs => [None, None],
        };
        let in_order = |places: Option<_>| planned.plan.in_order_of(places?, page_size());
        let with_gain = |plan: Plan| (planned.gain_with(&plan, &donor.extents), plan);
        let cost = |(gain, _): &(Gain, Plan)| (gain.after.replay_us, gain.after.requests);
        let found = places.into_iter().filter_map(in_order).map(with_gain).min_by_key(cost);
        let (gain, plan) = found.unwrap_or_else(|| with_gain(planned.plan.clone()));
        if bytes > planned.donor_bytes {
            store.trim(&donor, &plan)?;
        }
        Ok(Self { donor, plan, gain, relocated: 0 })
    }

    /// In one area, from which other files are moved aside, where that is expected to be faster; on xfs and btrfs they
    /// are moved here already, and `again` makes the plan that holds then. `None` after a stop.
    pub fn make_room(
        self,
        store: &Store,
        volume: &Volume,
        (planned, mounts): (&mut Planned, &MountTable),
        known: &[Pack],
        again: impl FnOnce() -> Result<Planned, LayoutError>,
        work: &Work,
    ) -> Result<Option<Self>, LayoutError> {
        if !planned.gain.betters(&self.gain) {
            return Ok(Some(self));
        }
        match volume.kind {
            Kind::Btrfs => Self::relocated(store, volume, planned, again, work),
            Kind::Ext4 => self.aside(store, volume, (planned, mounts), known, work),
            Kind::Xfs => match self.aside(store, volume, (planned, mounts), known, work)? {
                Some(found) if !found.plan.aside.is_empty() => {
                    found.vacated(store, volume, planned, again, work)
                }
                found => Ok(found),
            },
        }
    }

    /// With block groups emptied, the emptiest first, until the layout is about as good as in one piece. A group for whose
    /// extents there is no room elsewhere stays.
    fn relocated(
        store: &Store,
        volume: &Volume,
        planned: &mut Planned,
        again: impl FnOnce() -> Result<Planned, LayoutError>,
        work: &Work,
    ) -> Result<Option<Self>, LayoutError> {
        // What was allocated would be moved, too.
        store.clear()?;
        let most = planned.donor_bytes.saturating_mul(MOST_RELOCATED);
        // Each trial takes space for itself, some for metadata for good, so there are few.
        let (mut trial, mut bytes, mut is_stopped) = (planned.donor_bytes, 0, false);
        let mut part = work.part("moving block groups", volume, 0);
        for group in block_groups(store, volume)? {
            if bytes >= most {
                break;
            }
            is_stopped = part.go(bytes)? == Go::Stop;
            if is_stopped {
                break;
            }
            if relocate(store, volume, group)? {
                bytes += group.used;
            }
            if bytes >= trial {
                let found = Self::allocate(store, volume, planned)?;
                store.clear()?;
                if !planned.gain.betters(&found.gain) {
                    break;
                }
                trial = trial.saturating_mul(2);
            }
        }
        drop(part);
        if bytes > 0 {
            let (place, moved) = (output::shown(&volume.mount_point), size(bytes));
            output::message(format_args!("{place}: {moved} in block groups were moved first"));
        }
        if is_stopped {
            return Ok(None);
        }
        if bytes > 0 {
            // Files of the packs may lie elsewhere now.
            *planned = again()?;
        }
        Ok(Some(Self { relocated: bytes, ..Self::allocate(store, volume, planned)? }))
    }

    /// In the best area from which other files can be moved to a donor elsewhere. These are added to the files that were
    /// found.
    fn aside(
        self,
        store: &Store,
        volume: &Volume,
        (planned, mounts): (&mut Planned, &MountTable),
        known: &[Pack],
        work: &Work,
    ) -> Result<Option<Self>, LayoutError> {
        let mut part = work.part("looking at other files", volume, 0);
        let mut kept = inodes(known, volume, mounts);
        kept.extend(planned.found.files.iter().map(|file| file.identity.ino));
        let Some(others) = others(store, (volume, mounts), kept, |done| part.go(done))? else {
            return Ok(None);
        };
        drop(part);
        // What the first donor has is free for these.
        store.clear()?;
        let free = volume.room()?;
        let mut sizes = SLACK_PARTS.map(|part| planned.donor_with_slack(part, free)).to_vec();
        // With little free they are all the same.
        sizes.dedup();
        let with_room = |bytes| {
            // Somebody may have taken what was free.
            let donor = store.allocate(bytes, volume, &planned.plan).ok()?;
            // Where a layout is allocated once more, it gets this, too.
            let free = volume.kind.shares().then(|| free_space(store));
            let found = Self::with_room(donor, free, bytes, planned, &others)?;
            found.gain.betters(&self.gain).then_some(found)
        };
        match sizes.into_iter().find_map(with_room) {
            Some(mut found) => {
                number(&mut found.plan.aside, &mut planned.found.files, &others.files);
                Ok(Some(found))
            }
            None => Self::allocate(store, volume, planned).map(Some),
        }
    }

    /// In the best area of a donor of so many bytes, with what else is `free` there if it is allocated once more; `None`
    /// if there is none.
    fn with_room(
        donor: Donor,
        free: Option<Vec<(u64, u64)>>,
        bytes: u64,
        planned: &Planned,
        others: &Others,
    ) -> Option<Self> {
        let need = planned.plan.donor_bytes;
        let mut tail = planned.donor_bytes - need;
        let made = |tail: u64| {
            let usable = Plan { donor_bytes: bytes.checked_sub(tail)?, ..Plan::default() };
            let donor = usable.places(&donor.extents)?;
            room(&donor, free.as_deref().unwrap_or_default(), need, &others.extents)
        };
        // The extents of what is moved aside may need blocks, too, as may those of the donor.
        tail += others.tree_blocks(&made(tail)?.aside) * page_size();
        let Room { aside, mut places } = made(tail)?;
        let (plan, then) = match free {
            Some(_) => {
                places.sort_unstable_by_key(|place| place.physical);
                (Plan { aside, ..planned.plan.clone() }, as_one_file(&places))
            }
            None => {
                let plan = Plan { aside, ..planned.plan.in_order_of(places, page_size())? };
                let then = exchanged(&donor.extents, &plan.aside.iter().collect::<Vec<_>>())?;
                (plan, then)
            }
        };
        let gain = planned.gain_with(&plan, &then);
        Some(Self { donor, plan, gain, relocated: 0 })
    }

    /// On xfs: moves the other files first, as a layout of their own, and releases it at once. Old copies would keep the
    /// blocks that are needed.
    fn vacated(
        self,
        store: &Store,
        volume: &Volume,
        planned: &mut Planned,
        again: impl FnOnce() -> Result<Planned, LayoutError>,
        work: &Work,
    ) -> Result<Option<Self>, LayoutError> {
        let Self { donor, plan, .. } = self;
        let others = Plan { pieces: Vec::new(), ..plan };
        let mut part = work.part("reading other files", volume, others.aside_bytes());
        let prepared =
            prepare(store, volume, &planned.found, &others, donor, None, |done| part.go(done))?;
        drop(part);
        let Some((journal, mut skipped)) = prepared else { return Ok(None) };
        store.write_journal(&journal)?;
        let mut part = work.part("moving other files", volume, journal.bytes());
        let done = swap_all(store, &journal, Direction::Apply, true, |done| part.go(done))?;
        drop(part);
        // Also after a stop: the old blocks are freed then.
        let found = standing(store, &journal, true, |_| Ok(Go::On))?;
        if let Some(path) = found.damaged.first() {
            return Err(LayoutError::Content { path: path.clone() });
        }
        store.clear()?;
        for (skip, count) in done.skipped {
            *skipped.entry(skip).or_default() += count;
        }
        if !skipped.is_empty() {
            let files = counted(skipped.values().sum(), "other file");
            output::message(format_args!("{files} stayed: {}", in_words(&skipped)));
        }
        if done.aside > 0 {
            let (place, moved) = (output::shown(&volume.mount_point), size(done.aside));
            output::message(format_args!("{place}: {moved} of other files were moved aside first"));
        }
        if done.stopped {
            return Ok(None);
        }
        *planned = again()?;
        Ok(Some(Self { relocated: done.aside, ..Self::allocate(store, volume, planned)? }))
    }

    /// What its user should know of the place, in words; `was_tried` says that room was to be made.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn remarks(
        &self,
        volume: &Volume,
        planned: &Planned,
        was_tried: bool,
    ) -> Result<Option<String>, LayoutError> {
        let place = output::shown(&volume.mount_point);
        if !self.plan.aside.is_empty() {
            let files: HashSet<_> = self.plan.aside.iter().map(|piece| piece.file).collect();
            let (bytes, files) = (size(self.plan.aside_bytes()), files.len() as u64);
            let files = counted(files, "other file");
            return Ok(Some(format!("{place}: moves {bytes} of {files} aside first")));
        }
        let Some(advice) = self.advice(volume, planned, was_tried)? else { return Ok(None) };
        let pieces = self.plan.places_in(&self.donor.extents, page_size());
        let pieces = counted(pieces as u64, "piece");
        let seconds = |gain: &Gain| gain.after.replay_us.map(|us| us as f64 / 1e6);
        let times = seconds(&self.gain).zip(seconds(&planned.gain));
        let times = times.map_or_else(String::new, |(here, ideal)| {
            format!(" (a replay takes {here:.2} s with it, and {ideal:.2} s in one piece)")
        });
        Ok(Some(format!("{place}: the layout lies in {pieces}{times}; {advice}")))
    }

    /// What helps where one piece would be faster than those of the donor, if anything may.
    ///
    /// # Errors
    /// The file system does not answer.
    pub fn advice(
        &self,
        volume: &Volume,
        planned: &Planned,
        was_tried: bool,
    ) -> Result<Option<&'static str>, LayoutError> {
        let may_help = planned.gain.betters(&self.gain) && volume.makes_room()?;
        Ok(may_help.then_some(match was_tried {
            true if self.relocated > 0 => "what else lies between them can't be moved",
            true => "moving other files aside does not make it faster",
            false => "with --make-room other files are moved aside first",
        }))
    }
}

/// Adds the files of pieces to those that were found, and gives the pieces their numbers there.
fn number(pieces: &mut [Piece], found: &mut Vec<LaidFile>, files: &[LaidFile]) {
    let mut numbers = HashMap::new();
    for piece in pieces {
        piece.file = *numbers.entry(piece.file).or_insert_with(|| {
            found.extend(files.get(piece.file).cloned());
            found.len() - 1
        });
    }
}

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
                    let what = "can't read a pack, so its files may be moved aside";
                    output::message(format_args!("{what}: {error}"));
                }
            }
        }
    }
    Ok(all)
}

/// The inode numbers of all files of packs on a volume. A file has one, whatever name a pack has for it.
fn inodes(packs: &[Pack], volume: &Volume, mounts: &MountTable) -> HashSet<u64> {
    let paths =
        packs.iter().flat_map(|pack| pack.files.iter().map(|file| pack.paths.path(file.node)));
    let is_here = |path: &PathBuf| volume.below(path, mounts).is_some();
    // What is gone can't be moved either.
    let inode = |path: PathBuf| rustix::fs::stat(&path).ok().map(|stat| stat.st_ino);
    paths.filter(is_here).filter_map(inode).collect()
}
