//! Takes the inodes of each file system through the methods, cheapest first.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Instant;

use rustix::io::Errno;

use super::btrfs::Btrfs;
use super::handle::{ByInode, Handles, Outcome, Wildcard, first_match};
use super::open::{Opened, open_mounts};
use super::options::ResolveOptions;
use super::resolution::{Method, Problem, Replaced, Resolution, ResolvedFile, Unnamed};
use super::verify::{Check, check, resident_pages, successor};
use super::walk::{Walker, Wanted};
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

/// The work and what has come out of it.
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

    /// Whether the time is up. Then every method finds nothing, and the reason is that.
    pub(super) fn is_late(&self) -> bool {
        self.options.deadline.is_some_and(|end| Instant::now() >= end)
    }

    pub(super) fn found(&mut self, id: InodeId, file: ResolvedFile, method: Method) {
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

    /// What is now at one of the earlier names of an inode that has none any more.
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
        let mut found = near::beside(self.options, dev, &left, paths);
        left.retain(|id| !found.contains_key(id));
        for (id, file) in found.drain() {
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
            Ok(Some(mut calls)) => self.ask(calls.as_mut(), &ids, &mut lost).err(),
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

    fn ask(
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
                Ok(Outcome::Found { file, method, ambiguous }) => {
                    self.found(*id, file, method);
                    self.out.ambiguous += u64::from(ambiguous);
                }
                Ok(Outcome::Never(reason)) => self.give_up(&[*id], reason),
                Ok(Outcome::Lost) => lost.push(*id),
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
        let mut search = Search {
            options: self.options,
            several: mounts.iter().any(|mount| mount.fstype == "btrfs"),
            wanted: ids.iter().map(|id| (id.ino, None)).collect(),
            dev,
            found: Vec::new(),
        };
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

/// The calls that suit a file system; `None` for those without a block device,
/// for which none is worth a try.
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

/// What a walk looks for in one file system.
struct Search<'a> {
    options: &'a ResolveOptions<'a>,
    dev: Dev,
    /// An inode number may be several files.
    several: bool,
    /// With a file that would do if no better one comes.
    wanted: HashMap<u64, Option<ResolvedFile>>,
    found: Vec<(InodeId, ResolvedFile)>,
}

impl Wanted for Search<'_> {
    fn left(&self) -> u64 {
        self.wanted.len() as u64
    }

    fn wants(&self, ino: u64) -> bool {
        self.wanted.contains_key(&ino)
    }

    fn offer(&mut self, ino: u64, path: PathBuf) {
        let id = InodeId { dev: self.dev, ino };
        let Check::Same(file) = check(self.options.mounts, id, &path) else { return };
        if self.several && resident_pages(&file.path, file.size).unwrap_or(0) == 0 {
            self.wanted.entry(ino).and_modify(|spare| *spare = spare.take().or(Some(file)));
        } else {
            self.wanted.remove(&ino);
            self.found.push((id, file));
        }
    }
}
