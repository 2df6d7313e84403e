//! Drops the dense parts of a pack's files from the page cache and reads each as one large folio.
//! It skips parts that are large already, and those that a process has mapped, which can't be
//! dropped.

use super::dense::{Part, dense_parts};
use crate::cache::holders::{Holders, holders, identity};
use crate::cache::residency::{page_size, resident_count};
use crate::host::id::InodeId;
use crate::host::memory::huge_page_size;
use crate::host::open::open_learned;
use crate::host::range::{ByteRange, PageRange};
use crate::pack::Pack;
use headstart_sys::huge::{Folio, bring_in};
use rustix::fs::Advice;
use serde::Serialize;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::AddAssign;

/// The result for the parts of a pack that benefit from a huge page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Refilled {
    /// Parts that are in one large folio now and were not before.
    pub made: u64,
    /// Parts that were already.
    pub already: u64,
    /// Parts that stay as they are because a process uses pages of them.
    pub in_use: u64,
    /// Parts for which the kernel gave no large folio: the file system has none, or no
    /// memory of that size was free.
    pub refused: u64,
    /// Parts of files that are gone, changed or not permitted.
    pub skipped: u64,
    /// Parts that were not looked at because the budget was used up.
    pub over_budget: u64,
    /// Bytes of a part: the size of a huge page.
    pub part_bytes: u64,
}

impl AddAssign for Refilled {
    fn add_assign(&mut self, other: Self) {
        self.made += other.made;
        self.already += other.already;
        self.in_use += other.in_use;
        self.refused += other.refused;
        self.skipped += other.skipped;
        self.over_budget += other.over_budget;
        self.part_bytes = other.part_bytes;
    }
}

/// A file with parts to be dropped and brought back.
struct Todo {
    file: File,
    dev: u64,
    id: InodeId,
    parts: Vec<u64>,
}

/// Puts the dense parts of a pack's files into large folios, at most `budget` bytes.
///
/// # Errors
/// When the kernel has no huge pages, or the processes that use files can't be listed.
pub fn refill(pack: &Pack, budget: u64) -> io::Result<Refilled> {
    let size = huge_page_size()?;
    let mut parts = dense_parts(pack, size as u64);
    let fitting = usize::try_from(budget / size as u64).unwrap_or(usize::MAX);
    let mut refilling = Refilling::new(size);
    refilling.done.over_budget = parts.len().saturating_sub(fitting) as u64;
    parts.truncate(fitting);
    let todo: Vec<Todo> =
        parts.chunk_by(|a, b| a.file == b.file).filter_map(|p| refilling.look(pack, p)).collect();
    if todo.is_empty() {
        return Ok(refilling.done);
    }
    let wanted = todo.iter().map(|todo| (todo.id, refilling.pages(&todo.parts))).collect();
    let used = holders(&wanted)?;
    for todo in todo {
        refilling.renew(&todo, &used);
    }
    Ok(refilling.done)
}

struct Refilling {
    size: usize,
    uid: u32,
    done: Refilled,
    /// Devices whose file system gave no large folio.
    refusing: HashSet<u64>,
}

impl Refilling {
    fn new(size: usize) -> Self {
        Self {
            size,
            uid: rustix::process::geteuid().as_raw(),
            done: Refilled { part_bytes: size as u64, ..Refilled::default() },
            refusing: HashSet::new(),
        }
    }

    /// Counts the parts of one file that are large, brings in those of which nothing is
    /// in memory, and returns the others.
    fn look(&mut self, pack: &Pack, parts: &[Part]) -> Option<Todo> {
        let learned = pack.files.get(parts.first()?.file as usize)?;
        let path = pack.paths.path(learned.node);
        let opened = open_learned(&path, Some(&learned.identity), self.uid)
            .ok()
            .and_then(|(file, _, dev)| Some((identity(&file).ok()?, file, dev)));
        let Some((id, file, dev)) = opened else {
            self.done.skipped += parts.len() as u64;
            return None;
        };
        let mut small = Vec::new();
        for part in parts {
            match self.resident(&file, part.offset) {
                Ok(0) => self.bring_in(&file, dev, part.offset),
                Ok(pages) if pages == self.pages_of(part.offset).count() => {
                    // All of it is there: this maps it and reads nothing.
                    match bring_in(&file, part.offset, self.size) {
                        Ok(Folio::Large) => self.done.already += 1,
                        Ok(Folio::Small) => small.push(part.offset),
                        Err(_) => self.done.skipped += 1,
                    }
                }
                Ok(_) => small.push(part.offset),
                Err(_) => self.done.skipped += 1,
            }
        }
        (!small.is_empty()).then_some(Todo { file, dev, id, parts: small })
    }

    /// Drops parts that nobody uses and brings them in again.
    fn renew(&mut self, todo: &Todo, used: &Holders) {
        if used.by_file.get(&todo.id).is_some_and(|by| by.iter().any(|holder| holder.pages > 0)) {
            self.done.in_use += todo.parts.len() as u64;
            return;
        }
        for &offset in &todo.parts {
            if self.refusing.contains(&todo.dev) {
                self.done.refused += 1;
                continue;
            }
            let length = NonZeroU64::new(self.size as u64);
            let _ = rustix::fs::fadvise(&todo.file, offset, length, Advice::DontNeed);
            match self.resident(&todo.file, offset) {
                Ok(0) => self.bring_in(&todo.file, todo.dev, offset),
                _ => {
                    // Somebody has part of it; the rest must not be missed.
                    let _ = rustix::fs::fadvise(&todo.file, offset, length, Advice::WillNeed);
                    self.done.in_use += 1;
                }
            }
        }
    }

    /// Reads a part of which nothing is in memory.
    fn bring_in(&mut self, file: &File, dev: u64, offset: u64) {
        if self.refusing.contains(&dev) {
            self.done.refused += 1;
            return;
        }
        match bring_in(file, offset, self.size) {
            Ok(Folio::Large) => self.done.made += 1,
            Ok(Folio::Small) => {
                self.done.refused += 1;
                self.refusing.insert(dev);
                let length = NonZeroU64::new(self.size as u64);
                let _ = rustix::fs::fadvise(file, offset, length, Advice::WillNeed);
            }
            Err(_) => self.done.skipped += 1,
        }
    }

    fn resident(&self, file: &File, offset: u64) -> io::Result<u64> {
        resident_count(file, self.pages_of(offset))
    }

    fn pages(&self, offsets: &[u64]) -> Vec<PageRange> {
        offsets.iter().map(|offset| self.pages_of(*offset)).collect()
    }

    fn pages_of(&self, offset: u64) -> PageRange {
        ByteRange::of(offset, self.size as u64).pages(page_size())
    }
}
