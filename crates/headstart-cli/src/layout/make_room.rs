//! Makes room for a layout (`--make-room`): moves other files aside, or block groups on btrfs, where `placed` finds only
//! pieces.

use super::placed::Placed;
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
use headstart_layout::journal::{Donor, LaidFile};
use headstart_layout::kind::Kind;
use headstart_layout::others::{Others, free_space, others};
use headstart_layout::plan::{Piece, Plan, exchanged};
use headstart_layout::prepare::prepare;
use headstart_layout::room::{Room, room};
use headstart_layout::volume::{Store, Volume};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// To make room, the donor gets one part in so many more, the first of these that helps: the extents of other files
/// do not fill its pieces exactly.
const SLACK_PARTS: [u64; 3] = [8, 4, 2];

/// On btrfs, once so many times the bytes of the layout were moved to make room, no other block group is.
const MOST_RELOCATED: u64 = 8;

/// What makes room for one layout.
pub struct MakeRoom<'a> {
    /// Where the layout is kept.
    pub store: &'a Store,
    /// The file system.
    pub volume: &'a Volume,
    /// Those of this machine.
    pub mounts: &'a MountTable,
    /// Packs whose files stay where they are.
    pub known: &'a [Pack],
    /// Shows the progress, and says when to stop.
    pub work: &'a Work,
    /// Makes the plan that holds once files were moved.
    pub again: &'a dyn Fn() -> Result<Planned, LayoutError>,
    /// Bytes that were moved and stay there: block groups of btrfs, other files on xfs.
    pub relocated_bytes: u64,
}

impl MakeRoom<'_> {
    /// A layout in one area, from which other files are moved aside, where that is expected to be faster than `placed`;
    /// on xfs and btrfs they are moved here already, and `planned` is what holds then. `None` after a stop.
    ///
    /// # Errors
    /// What the kernel said. What was moved for good by then is counted.
    pub fn place(
        &mut self,
        placed: Placed,
        planned: &mut Planned,
    ) -> Result<Option<Placed>, LayoutError> {
        if !planned.gain.betters(&placed.gain) {
            return Ok(Some(placed));
        }
        match self.volume.kind {
            Kind::Btrfs => self.relocate(planned),
            Kind::Ext4 => self.aside(placed, planned),
            Kind::Xfs => match self.aside(placed, planned)? {
                Some(found) if !found.plan.aside.is_empty() => self.vacate(found, planned),
                found => Ok(found),
            },
        }
    }

    /// With block groups emptied, the emptiest first, until the layout is about as good as in one piece. A group for whose
    /// extents there is no room elsewhere stays.
    fn relocate(&mut self, planned: &mut Planned) -> Result<Option<Placed>, LayoutError> {
        let (store, volume) = (self.store, self.volume);
        // What was allocated would be moved, too.
        store.clear()?;
        let most = planned.donor_bytes.saturating_mul(MOST_RELOCATED);
        // Each trial takes space for itself, some for metadata for good, so there are few.
        let (mut trial, mut is_stopped) = (planned.donor_bytes, false);
        let mut part = self.work.part("moving block groups", volume, 0);
        for group in block_groups(store, volume)? {
            if self.relocated_bytes >= most {
                break;
            }
            is_stopped = part.go(self.relocated_bytes)? == Go::Stop;
            if is_stopped {
                break;
            }
            if relocate(store, volume, group)? {
                self.relocated_bytes += group.used;
            }
            if self.relocated_bytes >= trial {
                let found = Placed::allocate(store, volume, planned)?;
                store.clear()?;
                if !planned.gain.betters(&found.gain) {
                    break;
                }
                trial = trial.saturating_mul(2);
            }
        }
        drop(part);
        if self.relocated_bytes > 0 {
            let (place, moved) = (output::shown(&volume.mount_point), size(self.relocated_bytes));
            output::message(format_args!("{place}: {moved} in block groups were moved first"));
        }
        if is_stopped {
            return Ok(None);
        }
        if self.relocated_bytes > 0 {
            // Files of the packs may lie elsewhere now.
            *planned = (self.again)()?;
        }
        Placed::allocate(store, volume, planned).map(Some)
    }

    /// In the best area from which other files can be moved to a donor elsewhere. These are added to the files that were
    /// found.
    fn aside(&self, placed: Placed, planned: &mut Planned) -> Result<Option<Placed>, LayoutError> {
        let (store, volume) = (self.store, self.volume);
        let mut part = self.work.part("looking at other files", volume, 0);
        let mut kept = inodes(self.known, volume, self.mounts);
        kept.extend(planned.found.files.iter().map(|file| file.identity.ino));
        let found = others(store, (volume, self.mounts), kept, |done| part.go(done))?;
        let Some(others) = found else { return Ok(None) };
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
            let found = with_room(donor, free, bytes, planned, &others)?;
            found.gain.betters(&placed.gain).then_some(found)
        };
        match sizes.into_iter().find_map(with_room) {
            Some(mut found) => {
                number(&mut found.plan.aside, &mut planned.found.files, &others.files);
                Ok(Some(found))
            }
            None => Placed::allocate(store, volume, planned).map(Some),
        }
    }

    /// On xfs: moves the other files first, as a layout of their own, and releases it at once. Old copies would keep the
    /// blocks that are needed.
    fn vacate(
        &mut self,
        placed: Placed,
        planned: &mut Planned,
    ) -> Result<Option<Placed>, LayoutError> {
        let (store, volume) = (self.store, self.volume);
        let Placed { donor, plan, .. } = placed;
        let others = Plan { pieces: Vec::new(), ..plan };
        let mut part = self.work.part("reading other files", volume, others.aside_bytes());
        let prepared =
            prepare(store, volume, &planned.found, &others, donor, None, |done| part.go(done))?;
        drop(part);
        let Some((journal, mut skipped)) = prepared else { return Ok(None) };
        store.write_journal(&journal)?;
        let mut part = self.work.part("moving other files", volume, journal.bytes());
        let done = swap_all(store, &journal, Direction::Apply, true, |done| part.go(done))?;
        drop(part);
        // Also after a stop: the old blocks are freed then.
        let found = standing(store, &journal, true, |_| Ok(Go::On))?;
        if let Some(path) = found.damaged.first() {
            return Err(LayoutError::Content { path: path.clone() });
        }
        store.clear()?;
        self.relocated_bytes += done.aside;
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
        *planned = (self.again)()?;
        Placed::allocate(store, volume, planned).map(Some)
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
) -> Option<Placed> {
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
    Some(Placed { donor, plan, gain })
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
