//! Resolves the inodes of each file system by its methods, cheapest first.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::io::Errno;

use super::btrfs::Btrfs;
use super::handle::{ByInode, Handles, NameLookup, Wildcard, first_match};
use super::open::{Opened, open_mounts};
use super::options::ResolveOptions;
use super::resolution::{Method, Problem, Replaced, Resolution, ResolvedFile, Unnamed};
use super::search::Search;
use super::verify::successor;
use super::walk::{WalkTarget, Walker};
use super::xfs::Xfs;
use super::{near, overlay};
use crate::host::id::{Dev, InodeId};

/// Finds a path for each inode, which are ascending, on the calling thread.
pub(super) fn resolve_here(ids: &[InodeId], options: &ResolveOptions<'_>) -> Resolution {
    let mut run = Run { options, out: Resolution::default() };
    let mut walker = Walker::new(options);
    for group in ids.chunk_by(|a, b| a.dev == b.dev) {
        run.file_system(group, &mut walker);
    }
    overlay::resolve_rest(&mut run, &mut walker);
    Resolution { walked_entries: walker.entries, ..run.out }
}

/// The state of resolving.
pub(super) struct Run<'a> {
    pub options: &'a ResolveOptions<'a>,
    pub out: Resolution,
}

impl<'a> Run<'a> {
    /// `group` is ascending and of one device.
    fn file_system(&mut self, group: &[InodeId], walker: &mut Walker<'_>) {
        let [InodeId { dev, .. }, ..] = *group else { return };
        let mut left = group.to_vec();
        left.retain(|id| !self.by_live_name(*id));
        if self.options.mounts.visible_of(dev).is_empty() {
            self.give_up(&left, Unnamed::Unreachable);
            return;
        }
        if self.options.calls {
            left = self.by_calls(dev, left);
        }
        left.retain(|id| !self.by_earlier_name(*id));
        let left = self.by_place(dev, left);
        if left.is_empty() {
            return;
        }
        let without_result = self.options.walked_without_result.contains(&dev);
        self.out.walked_without_result.extend(without_result.then_some(dev));
        if !self.options.walk || without_result {
            self.give_up(&left, Unnamed::WalkSkipped);
            return;
        }
        self.by_walk(dev, &left, walker);
    }

    /// Whether the deadline has passed. Then every method finds nothing, for that reason.
    pub(super) fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|end| Instant::now() >= end)
    }

    pub(super) fn found(&mut self, id: InodeId, file: ResolvedFile, method: Method) {
        let earlier = self.options.earlier.and_then(|earlier| earlier.get(&id.ino)?.first());
        let answers = |path: &PathBuf| self.options.mounts.path_answers(path);
        if earlier.is_some_and(|path| *path != file.path && answers(path)) {
            self.out.reused.extend(self.successor(id));
        }
        self.out.files.push((id, file));
        *self.out.how.entry(method).or_default() += 1;
    }

    fn give_up(&mut self, ids: &[InodeId], reason: Unnamed) {
        let deleted = |id| self.options.live.is_some_and(|live| live.saw_deleted(id));
        for id in ids {
            let reason = if self.is_late() { Unnamed::OutOfTime } else { reason };
            match self.successor(*id) {
                Some(replaced) => self.out.replaced.push(replaced),
                None if deleted(*id) => self.out.unnamed.push((*id, Unnamed::Deleted)),
                None => self.out.unnamed.push((*id, reason)),
            }
        }
    }

    /// The file that is now at an earlier name of an inode without a name.
    fn successor(&self, id: InodeId) -> Option<Replaced> {
        let paths = self.options.earlier.filter(|_| !self.is_late())?.get(&id.ino)?;
        paths.iter().find_map(|path| successor(self.options.mounts, id, path))
    }

    fn by_live_name(&mut self, id: InodeId) -> bool {
        if self.is_late() {
            return false;
        }
        let table = self.options.mounts;
        let paths = self.options.live.map(|live| live.paths(table, id)).unwrap_or_default();
        let file = first_match(table, id, paths);
        file.map(|file| self.found(id, file, Method::LiveName)).is_some()
    }

    fn by_earlier_name(&mut self, id: InodeId) -> bool {
        if self.is_late() {
            return false;
        }
        let paths = self.options.earlier.and_then(|earlier| earlier.get(&id.ino));
        let file = first_match(self.options.mounts, id, paths.into_iter().flatten().cloned());
        file.map(|file| self.found(id, file, Method::EarlierName)).is_some()
    }

    /// Returns those that do not lie beside files that were found.
    fn by_place(&mut self, dev: Dev, mut left: Vec<InodeId>) -> Vec<InodeId> {
        let of_device = self.out.files.iter().filter(|(id, _)| id.dev == dev);
        let paths = of_device.map(|(_, file)| file.path.as_path());
        let mut search = Search::of(self.options.mounts, dev, &left, false);
        near::offer_beside(self.options, &mut search, paths);
        left.retain(|id| search.wants(id.ino));
        for (id, file) in search.found {
            self.found(id, file, Method::Beside);
        }
        left
    }

    /// Returns those that only a walk can find, or an earlier start knows.
    fn by_calls(&mut self, dev: Dev, ids: Vec<InodeId>) -> Vec<InodeId> {
        let opened = open_mounts(self.options.mounts, dev, &mut self.out.problems);
        let Some(first) = opened.first() else { return ids };
        let mut lost = Vec::new();
        let refusal = match calls_of(self.options, &opened, &ids) {
            Ok(None) => return ids,
            Ok(Some(mut calls)) => self.query(calls.as_mut(), &ids, &mut lost).err(),
            Err(error) => {
                lost = ids;
                Some(error)
            }
        };
        // A file system without such calls is no problem.
        if let Some(source) = refusal
            && !matches!(Errno::from_io_error(&source), Some(Errno::OPNOTSUPP | Errno::NOTTY))
        {
            let path = first.mount.mount_point.clone();
            self.out.problems.push(Problem::Calls { path, source });
        }
        lost
    }

    fn query(
        &mut self,
        calls: &mut dyn ByInode,
        ids: &[InodeId],
        lost: &mut Vec<InodeId>,
    ) -> std::io::Result<()> {
        for (index, id) in ids.iter().enumerate() {
            if self.is_late() {
                lost.extend(&ids[index..]);
                break;
            }
            match calls.name(*id) {
                Ok(NameLookup::Found { file, method, ambiguous }) => {
                    self.found(*id, file, method);
                    self.out.ambiguous += u64::from(ambiguous);
                }
                Ok(NameLookup::Never(reason)) => self.give_up(&[*id], reason),
                Ok(NameLookup::Lost) => lost.push(*id),
                Err(error) => {
                    lost.extend(&ids[index..]);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn by_walk(&mut self, dev: Dev, ids: &[InodeId], walker: &mut Walker<'_>) {
        let mounts = self.options.mounts.visible_of(dev);
        let several = mounts.iter().any(|mount| mount.fstype == "btrfs");
        let mut search = Search::of(self.options.mounts, dev, ids, several);
        let before = walker.entries;
        for mount in mounts {
            walker.mount(mount, &mut search);
        }
        let walked = walker.entries > before;
        let reason = self.after_walk(walker);
        let found_none = search.found.is_empty() && search.wanted.values().all(Option::is_none);
        if found_none && walked {
            self.out.walked_without_result.push(dev);
        }
        for (ino, spare) in search.wanted {
            let id = InodeId { dev, ino };
            match spare {
                Some(file) => {
                    self.found(id, file, Method::Walk);
                    self.out.ambiguous += 1;
                }
                None => self.give_up(&[id], reason),
            }
        }
        for (id, file) in search.found {
            self.found(id, file, Method::Walk);
        }
    }

    /// Ends the account of a walk, and says why it has not found an inode.
    pub(super) fn after_walk(&mut self, walker: &mut Walker<'_>) -> Unnamed {
        let problem = walker.forget();
        let reason = match &problem {
            _ if walker.out_of_time => Unnamed::OutOfTime,
            Some(_) => Unnamed::NoPermission,
            None => Unnamed::NotFound,
        };
        self.out.problems.extend(problem);
        reason
    }
}

/// The method of a file system; `None` without a block device.
fn calls_of<'a>(
    options: &ResolveOptions<'a>,
    opened: &'a [Opened<'a>],
    ids: &[InodeId],
) -> std::io::Result<Option<Box<dyn ByInode + 'a>>> {
    let [first, ..] = opened else { return Ok(None) };
    let table = options.mounts;
    let fstype = &first.mount.fstype;
    if fstype == "btrfs" {
        return Ok(Some(Box::new(Btrfs::new(table, opened)?)));
    }
    if first.mount.dev.major() == 0 {
        return Ok(None);
    }
    let handles = Handles::new(table, opened)?;
    if fstype == "xfs" {
        return Ok(Some(Box::new(Xfs::new(handles, first.fd.as_fd(), ids)?)));
    }
    Ok(Some(Box::new(Wildcard::new(handles, fstype))))
}
