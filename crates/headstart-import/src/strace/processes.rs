//! Processes of a log: their descriptors, positions in files and current directories. What is kept is
//! bounded by the length of the log.

use super::call::Descriptor;
use crate::accesses::MOST_TIMES;
use crate::error::ImportError;
use std::cell::{RefCell, RefMut};
use std::collections::HashMap;
use std::rc::Rc;

/// What an entry of a table takes in memory, and what a process does, in bytes.
const ENTRY_BYTES: usize = 64;
const PROCESS_BYTES: usize = 256;
/// What all of it may take for each byte of the log, and in any case.
const TIMES: usize = 3;
const SMALL: usize = 64 << 10;
/// `PATH_MAX`: no path that a call took is longer.
const LONGEST_PATH: usize = 4096;

/// What open(2) made: a file, and where in it the next read begins. Several descriptors may share it.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub path: Vec<u8>,
    pub position: u64,
    /// Whether it was read or mapped, or need not be.
    pub was_read: bool,
    /// Whether reads pass by the page cache (`O_DIRECT`).
    pub is_direct: bool,
}

/// A descriptor.
#[derive(Clone, Debug)]
struct Slot {
    opened: Rc<RefCell<Opened>>,
    closes_on_exec: bool,
}

type Table = HashMap<i64, Slot>;

/// A thread: what it shares with others.
#[derive(Clone, Debug, Default)]
struct Process {
    table: Rc<RefCell<Table>>,
    /// Its current directory; empty where the log does not tell.
    directory: Rc<RefCell<Vec<u8>>>,
}

/// All that the log tells of.
#[derive(Debug)]
pub(super) struct Processes {
    all: HashMap<i32, Process>,
    /// Files that were opened and not read yet.
    pub unread: u64,
    kept: usize,
    most: usize,
}

impl Processes {
    /// At the start of a log of so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let most = SMALL + bytes.saturating_mul(TIMES);
        Self { all: HashMap::new(), unread: 0, kept: 0, most }
    }

    /// Whether the log has told of a thread.
    pub(super) fn knows(&self, tid: i32) -> bool {
        self.all.contains_key(&tid)
    }

    /// A thread that is not known has a line. On a terminal strace writes no number (0 here) of a single
    /// process: that gets one when there are two, and loses it when it is the only one again.
    pub(super) fn appears(&mut self, tid: i32) {
        let same = if tid != 0 {
            0
        } else if let (1, Some(only)) = (self.all.len(), self.all.keys().next()) {
            *only
        } else {
            return;
        };
        if let Some(process) = self.all.remove(&same) {
            self.all.insert(tid, process);
        }
    }

    /// A descriptor of a thread is this file from now on.
    pub(super) fn open(
        &mut self,
        tid: i32,
        number: i64,
        opened: Opened,
        closes_on_exec: bool,
    ) -> Result<(), ImportError> {
        self.unread += u64::from(!opened.was_read);
        self.keep(ENTRY_BYTES + opened.path.len())?;
        self.set(tid, number, Slot { opened: Rc::new(RefCell::new(opened)), closes_on_exec })
    }

    /// What a descriptor is: as the line says, or as the log told before.
    pub(super) fn opened(
        &mut self,
        tid: i32,
        descriptor: &Descriptor,
    ) -> Result<Option<Rc<RefCell<Opened>>>, ImportError> {
        if descriptor.is_other {
            return Ok(None);
        }
        let known = self.slot(tid, descriptor.number)?.map(|slot| slot.opened);
        let Some(path) = &descriptor.path else { return Ok(known) };
        if known.as_ref().is_some_and(|known| known.borrow().path == *path) {
            return Ok(known);
        }
        let opened = Opened { path: path.clone(), position: 0, was_read: true, is_direct: false };
        self.open(tid, descriptor.number, opened, true)?;
        Ok(self.slot(tid, descriptor.number)?.map(|slot| slot.opened))
    }

    /// A file is read or mapped.
    pub(super) fn reads(&mut self, opened: &mut RefMut<Opened>) {
        self.unread -= u64::from(!std::mem::replace(&mut opened.was_read, true));
    }

    /// A descriptor is the same as another from now on; something else if that is not known.
    pub(super) fn duplicate(
        &mut self,
        tid: i32,
        old: i64,
        new: i64,
        closes_on_exec: bool,
    ) -> Result<(), ImportError> {
        match self.slot(tid, old)? {
            Some(slot) => self.set(tid, new, Slot { closes_on_exec, ..slot }),
            None => self.close(tid, new),
        }
    }

    /// Whether execve(2) closes a descriptor has changed.
    pub(super) fn closes_on_exec(&mut self, tid: i32, number: i64, closes: bool) {
        let table = self.all.get(&tid).map(|process| process.table.clone());
        if let Some(slot) = table.as_ref().map(|table| table.borrow_mut()).as_mut()
            && let Some(slot) = slot.get_mut(&number)
        {
            slot.closes_on_exec = closes;
        }
    }

    /// It was closed, or is nothing that has pages.
    pub(super) fn close(&mut self, tid: i32, number: i64) -> Result<(), ImportError> {
        let table = self.process(tid)?.table.clone();
        self.release(table.borrow_mut().remove(&number));
        Ok(())
    }

    /// Descriptors from one to another were closed.
    pub(super) fn close_range(
        &mut self,
        tid: i32,
        first: i64,
        last: i64,
    ) -> Result<(), ImportError> {
        let table = self.process(tid)?.table.clone();
        let closed: Vec<_> =
            table.borrow_mut().extract_if(|number, _| (first..=last).contains(number)).collect();
        self.release(closed.into_iter().map(|(_, slot)| slot));
        Ok(())
    }

    /// A thread was started by another; which of its things it shares.
    pub(super) fn start(
        &mut self,
        parent: i32,
        child: i32,
        shares_files: bool,
        shares_directory: bool,
    ) -> Result<(), ImportError> {
        let mut process = self.process(parent)?.clone();
        self.keep(PROCESS_BYTES)?;
        if !shares_files {
            process.table = self.copy(&process.table)?;
        }
        if !shares_directory {
            let directory = process.directory.borrow().clone();
            self.keep(directory.len())?;
            process.directory = Rc::new(RefCell::new(directory));
        }
        self.all.insert(child, process);
        Ok(())
    }

    /// A process executes a program: it shares its descriptors with no other, and some are closed.
    pub(super) fn execute(&mut self, tid: i32) -> Result<(), ImportError> {
        let table = self.process(tid)?.table.clone();
        let own = if Rc::strong_count(&table) > 2 { self.copy(&table)? } else { table };
        let closed: Vec<_> = own.borrow_mut().extract_if(|_, slot| slot.closes_on_exec).collect();
        self.release(closed.into_iter().map(|(_, slot)| slot));
        self.process(tid)?.table = own;
        Ok(())
    }

    /// A thread has ended: its number may be another's later.
    pub(super) fn end(&mut self, tid: i32) {
        let Some(Process { table, directory }) = self.all.remove(&tid) else { return };
        self.kept = self.kept.saturating_sub(PROCESS_BYTES);
        if let Some(table) = Rc::into_inner(table) {
            self.release(table.into_inner().into_values());
        }
        if let Some(directory) = Rc::into_inner(directory) {
            self.kept = self.kept.saturating_sub(directory.into_inner().len());
        }
    }

    /// The current directory of a thread, and of those that share it, has changed.
    pub(super) fn enter(&mut self, tid: i32, path: Vec<u8>) -> Result<(), ImportError> {
        self.keep(path.len())?;
        let old = self.process(tid)?.directory.replace(path);
        self.kept = self.kept.saturating_sub(old.len());
        Ok(())
    }

    /// The path of a descriptor.
    pub(super) fn path_of(
        &mut self,
        tid: i32,
        descriptor: &Descriptor,
    ) -> Result<Option<Vec<u8>>, ImportError> {
        if descriptor.path.is_some() {
            return Ok(descriptor.path.clone());
        }
        let slot = self.slot(tid, descriptor.number)?;
        Ok(slot.map(|slot| slot.opened.borrow().path.clone()))
    }

    /// A path from the root, or from the directory where the log began; `at` is the directory that the
    /// call names. None if that is not known, or the path is too long to be one.
    pub(super) fn absolute(
        &mut self,
        tid: i32,
        at: Option<&Descriptor>,
        path: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, ImportError> {
        if path.starts_with(b"/") {
            return Ok(Some(path));
        }
        let from = match at {
            Some(at) if !at.is_current() || at.path.is_some() => match self.path_of(tid, at)? {
                Some(from) => from,
                None => return Ok(None),
            },
            _ => self.process(tid)?.directory.borrow().clone(),
        };
        let whole = if from.is_empty() { path } else { [&from[..], b"/", &path].concat() };
        Ok(Some(whole).filter(|path| path.len() < LONGEST_PATH))
    }

    fn set(&mut self, tid: i32, number: i64, slot: Slot) -> Result<(), ImportError> {
        self.keep(ENTRY_BYTES)?;
        let table = self.process(tid)?.table.clone();
        let old = table.borrow_mut().insert(number, slot);
        self.release(old);
        Ok(())
    }

    fn slot(&mut self, tid: i32, number: i64) -> Result<Option<Slot>, ImportError> {
        Ok(self.process(tid)?.table.borrow().get(&number).cloned())
    }

    fn copy(&mut self, table: &RefCell<Table>) -> Result<Rc<RefCell<Table>>, ImportError> {
        self.keep(table.borrow().len() * ENTRY_BYTES)?;
        Ok(Rc::new(RefCell::new(table.borrow().clone())))
    }

    fn process(&mut self, tid: i32) -> Result<&mut Process, ImportError> {
        if !self.knows(tid) {
            self.keep(PROCESS_BYTES)?;
        }
        Ok(self.all.entry(tid).or_default())
    }

    /// So much more is kept.
    fn keep(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.kept += bytes;
        if self.kept > self.most { Err(ImportError::TooMuch(MOST_TIMES)) } else { Ok(()) }
    }

    /// Descriptors that are not kept any more.
    fn release(&mut self, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            let opened = Rc::into_inner(slot.opened).map(RefCell::into_inner);
            let opened = opened.map_or(0, |opened| ENTRY_BYTES + opened.path.len());
            self.kept = self.kept.saturating_sub(ENTRY_BYTES + opened);
        }
    }
}
