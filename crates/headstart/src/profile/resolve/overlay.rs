//! Files of an overlay whose layers are on a file system that is not mounted here, as in a
//! container.
//!
//! Events name the inode of the layer. Overlayfs keeps its number (with `xino`, below bits of its
//! own), so a file of the overlay with that number and with resident pages is taken for it. Only
//! for layers on a block device: on an unnamed device a number alone says too little.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::driver::Run;
use super::near;
use super::resolution::{FileKind, Method, ResolvedFile, Unnamed};
use super::verify::{Check, check_by, kind_of, resident_pages};
use super::walk::{WalkTarget, Walker};
use crate::host::id::InodeId;
use crate::host::identity::LAYER_INO;
use crate::host::mounts::Mount;

struct Layers {
    wanted: HashMap<u64, InodeId>,
    found: Vec<(InodeId, ResolvedFile)>,
}

impl WalkTarget for Layers {
    fn left(&self) -> u64 {
        self.wanted.len() as u64
    }

    fn wants(&self, ino: u64) -> bool {
        self.wanted.contains_key(&(ino & LAYER_INO))
    }

    fn offer(&mut self, ino: u64, path: PathBuf) {
        let ino = ino & LAYER_INO;
        let check = check_by(&path, |stat| {
            let is_it = stat.stx_ino & LAYER_INO == ino && kind_of(stat) == FileKind::Regular;
            is_it && stat.stx_size > 0 && is_resident(&path, stat.stx_size)
        });
        if let Check::Same(file) = check
            && let Some(id) = self.wanted.remove(&ino)
        {
            self.found.push((id, file));
        }
    }
}

/// cachestat sees no pages of an overlay's file; a mapping leads to them.
fn is_resident(path: &Path, size: u64) -> bool {
    resident_pages(path, size).is_some_and(|pages| pages > 0)
}

/// Tries inodes that no other method could name.
pub(super) fn resolve_rest(run: &mut Run<'_>, walker: &mut Walker<'_>) {
    let options = run.options;
    let table = options.mounts;
    let overlays: Vec<&Mount> = table
        .mounts()
        .iter()
        .filter(|mount| mount.fstype == "overlay")
        .map(|mount| mount.dev)
        .collect::<HashSet<_>>()
        .into_iter()
        .filter(|dev| table.answers(*dev))
        .filter_map(|dev| table.visible_of(dev).first().copied())
        .collect();
    let eligible = |(id, reason): &(InodeId, Unnamed)| {
        let unseen = matches!(
            reason,
            Unnamed::Unreachable | Unnamed::NotFound | Unnamed::WalkSkipped | Unnamed::NoPermission
        );
        let whole = || table.visible_of(id.dev).iter().any(|mount| mount.is_whole());
        unseen && id.dev.major() != 0 && !whole()
    };
    let wanted: HashMap<u64, InodeId> =
        run.out.unnamed.iter().filter(|left| eligible(left)).map(|(id, _)| (id.ino, *id)).collect();
    if overlays.is_empty() || wanted.is_empty() || run.is_late() {
        return;
    }
    let tried: HashSet<InodeId> = wanted.values().copied().collect();
    let mut layers = Layers { wanted, found: Vec::new() };
    for mount in &overlays {
        let live = options.live.into_iter();
        for (live, id) in live.flat_map(|live| live.inodes_of(mount.dev).map(move |id| (live, id)))
        {
            if layers.wants(id.ino) {
                live.paths(table, id).into_iter().for_each(|path| layers.offer(id.ino, path));
            }
        }
    }
    if let Some(earlier) = options.earlier {
        for id in &tried {
            let paths = earlier.get(&id.ino).into_iter().flatten();
            paths.for_each(|path| layers.offer(id.ino, path.clone()));
        }
    }
    let mut reason = Unnamed::WalkSkipped;
    if !options.walk {
        let named: Vec<PathBuf> = layers.found.iter().map(|(_, file)| file.path.clone()).collect();
        near::offer_beside(options, &mut layers, named.iter().map(PathBuf::as_path));
    } else {
        for mount in overlays {
            walker.mount(mount, &mut layers);
        }
        reason = run.after_walk(walker);
    }
    let found: HashSet<InodeId> = layers.found.iter().map(|(id, _)| *id).collect();
    run.out.unnamed.retain(|(id, _)| !found.contains(id));
    for (id, why) in &mut run.out.unnamed {
        // What stays unseen stays unreachable, unless a walk could still tell.
        if tried.contains(id) && reason != Unnamed::NotFound {
            *why = reason;
        }
    }
    for (id, file) in layers.found {
        run.found(id, file, Method::Overlay);
    }
}
