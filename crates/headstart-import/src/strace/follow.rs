//! Follows processes through a log: descriptors, positions in files, current directories.

use super::call::{Call, Descriptor};
use crate::accesses::{Accesses, MOST_TIMES, Name};
use crate::error::ImportError;
use headstart::host::range::ByteRange;
use headstart::host::usage::How;
use std::collections::HashMap;

/// What an entry of a table takes in memory.
const ENTRY_BYTES: usize = 64;

/// What open(2) made: a file, and where in it the next read begins. Several descriptors may share it.
#[derive(Clone, Debug)]
struct Opened {
    path: Vec<u8>,
    position: u64,
    was_read: bool,
}

/// The descriptors of processes that share them, with indices of [`Opened`].
type Table = HashMap<i64, usize>;

/// A process that the log tells of.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its table.
    table: usize,
    /// Its current directory; empty where the log does not tell.
    directory: Vec<u8>,
}

/// What is known at a place of the log.
#[derive(Debug)]
pub(super) struct Follow {
    accesses: Accesses,
    processes: HashMap<i32, Process>,
    tables: Vec<Table>,
    opened: Vec<Opened>,
    entries: usize,
    most_entries: usize,
    time: u64,
}

impl Follow {
    /// At the start of a log of so many bytes.
    pub(super) fn new(accesses: Accesses, bytes: usize) -> Self {
        let most_entries = 1024 + bytes * 2 / ENTRY_BYTES;
        Self {
            accesses,
            processes: HashMap::new(),
            tables: Vec::new(),
            opened: Vec::new(),
            entries: 0,
            most_entries,
            time: 0,
        }
    }

    /// A line that is none of strace.
    pub(super) fn not_understood(&mut self) {
        self.accesses.lacks.not_understood += 1;
    }

    /// What was found.
    pub(super) fn finish(mut self) -> Accesses {
        let unread = self.opened.iter().filter(|opened| !opened.was_read).count();
        self.accesses.lacks.only_opened = unread as u64;
        self.accesses
    }

    /// A call of a thread, in the order of the log.
    ///
    /// # Errors
    /// There is more than fits.
    pub(super) fn call(
        &mut self,
        tid: i32,
        time: Option<u64>,
        call: &Call,
    ) -> Result<(), ImportError> {
        self.time = time.unwrap_or_else(|| self.accesses.next_step());
        // What failed changes nothing.
        let Some(result) = call.result else { return Ok(()) };
        match call.name {
            b"open" => self.open(tid, None, call, 0, result),
            b"openat" | b"openat2" => {
                let at = call.descriptor(0);
                self.open(tid, at, call, 1, result)
            }
            b"execve" => self.execute(tid, None, call.text(0)),
            b"execveat" => self.execute(tid, call.descriptor(0), call.text(1)),
            b"read" | b"readv" => self.read(tid, call.descriptor(0), None, result),
            b"pread64" | b"preadv" | b"preadv2" => {
                self.read(tid, call.descriptor(0), call.number(3), result)
            }
            b"readahead" => {
                let (from, length) = (call.number(1).unwrap_or(0), call.number(2).unwrap_or(0));
                self.read(tid, call.descriptor(0), Some(from), length.cast_signed())
            }
            b"sendfile" | b"sendfile64" => {
                self.read(tid, call.descriptor(1), call.number(2), result)
            }
            b"copy_file_range" | b"splice" => {
                self.read(tid, call.descriptor(0), call.number(1), result)
            }
            b"mmap" | b"mmap2" => self.map(tid, call),
            b"lseek" | b"_llseek" => {
                self.seek(tid, call, result);
                Ok(())
            }
            b"close" => {
                if let Some(Descriptor { number, .. }) = call.descriptor(0) {
                    self.table(tid).remove(&number);
                }
                Ok(())
            }
            b"dup" | b"dup2" | b"dup3" => self.duplicate(tid, call, result),
            b"fcntl" | b"fcntl64" if call.argument(1).starts_with(b"F_DUPFD") => {
                self.duplicate(tid, call, result)
            }
            b"chdir" => {
                if let Some(path) = call.text(0) {
                    let path = self.absolute(tid, None, path);
                    self.process(tid).directory = path;
                }
                Ok(())
            }
            b"fchdir" => {
                if let Some(path) = call.descriptor(0).and_then(|at| self.path_of(tid, &at)) {
                    self.process(tid).directory = path;
                }
                Ok(())
            }
            b"fork" | b"vfork" | b"clone" | b"clone3" => self.start(tid, call, result),
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        tid: i32,
        at: Option<Descriptor>,
        call: &Call,
        argument: usize,
        result: i64,
    ) -> Result<(), ImportError> {
        let flags = argument + 1;
        let is_file =
            !["O_DIRECTORY", "O_PATH", "O_WRONLY"].iter().any(|flag| call.has(flags, flag));
        let path = match (&call.result_path, call.text(argument)) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) => self.absolute(tid, at, path),
            (None, None) => return Ok(()),
        };
        let opened = self.opened.len();
        self.opened.push(Opened { path, position: 0, was_read: !is_file });
        self.describe(tid, result, opened)
    }

    /// A descriptor of a process gets this meaning.
    fn describe(&mut self, tid: i32, number: i64, opened: usize) -> Result<(), ImportError> {
        if self.table(tid).insert(number, opened).is_none() {
            self.account(1)?;
        }
        Ok(())
    }

    fn account(&mut self, entries: usize) -> Result<(), ImportError> {
        self.entries += entries;
        if self.entries > self.most_entries {
            return Err(ImportError::TooMuch(MOST_TIMES));
        }
        Ok(())
    }

    fn execute(
        &mut self,
        tid: i32,
        at: Option<Descriptor>,
        path: Option<Vec<u8>>,
    ) -> Result<(), ImportError> {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(()) };
        let path = self.absolute(tid, at, path);
        self.accesses.add_whole(Name::Path(path), self.time, How::MAPPED)
    }

    /// A read of so many bytes, `from` there or the position of the file.
    fn read(
        &mut self,
        tid: i32,
        descriptor: Option<Descriptor>,
        from: Option<u64>,
        length: i64,
    ) -> Result<(), ImportError> {
        let (Some(descriptor), Ok(length)) = (descriptor, u64::try_from(length)) else {
            return Ok(());
        };
        let time = self.time;
        let Some(opened) = self.opened(tid, &descriptor)? else {
            self.accesses.lacks.of_unknown_files += u64::from(!descriptor.is_other);
            return Ok(());
        };
        let bytes = ByteRange::of(from.unwrap_or(opened.position), length);
        if from.is_none() {
            opened.position = bytes.end;
        }
        opened.was_read = true;
        let name = Name::Path(opened.path.clone());
        self.accesses.add_bytes(name, bytes, time, How::READ)
    }

    fn map(&mut self, tid: i32, call: &Call) -> Result<(), ImportError> {
        let time = self.time;
        let (Some(length), Some(descriptor)) = (call.number(1), call.descriptor(4)) else {
            return Ok(());
        };
        if call.has(3, "MAP_ANONYMOUS") || descriptor.number < 0 || call.has(2, "PROT_NONE") {
            return Ok(());
        }
        // mmap2(2) counts in pages; strace shows bytes.
        let offset = call.number(5).unwrap_or(0);
        let Some(opened) = self.opened(tid, &descriptor)? else {
            self.accesses.lacks.of_unknown_files += u64::from(!descriptor.is_other);
            return Ok(());
        };
        opened.was_read = true;
        let name = Name::Path(opened.path.clone());
        let how = if call.has(2, "PROT_EXEC") { How::MAPPED | How::EXECUTED } else { How::MAPPED };
        self.accesses.add_bytes(name, ByteRange::of(offset, length), time, how)
    }

    fn seek(&mut self, tid: i32, call: &Call, result: i64) {
        // _llseek(2) returns the position in an argument.
        let position =
            if call.name == b"lseek" { u64::try_from(result).ok() } else { call.number(2) };
        let found = call.descriptor(0).and_then(|at| self.table(tid).get(&at.number).copied());
        if let (Some(position), Some(opened)) =
            (position, found.and_then(|at| self.opened.get_mut(at)))
        {
            opened.position = position;
        }
    }

    fn duplicate(&mut self, tid: i32, call: &Call, result: i64) -> Result<(), ImportError> {
        let Some(descriptor) = call.descriptor(0) else { return Ok(()) };
        match self.table(tid).get(&descriptor.number).copied() {
            Some(opened) => self.describe(tid, result, opened),
            None => {
                self.table(tid).remove(&result);
                Ok(())
            }
        }
    }

    fn start(&mut self, tid: i32, call: &Call, child: i64) -> Result<(), ImportError> {
        let Ok(child) = i32::try_from(child) else { return Ok(()) };
        let flags: Vec<&[u8]> = (0..3).map(|number| call.argument(number)).collect();
        let shares = flags.iter().any(|flags| {
            flags.windows(b"CLONE_FILES".len()).any(|window| window == b"CLONE_FILES")
        });
        // A line of the child may come before its parent's.
        if child == 0 || self.processes.contains_key(&child) {
            return Ok(());
        }
        let mut process = self.process(tid).clone();
        if !shares {
            let table = self.table(tid).clone();
            self.account(table.len() + 1)?;
            process.table = self.tables.len();
            self.tables.push(table);
        }
        self.processes.insert(child, process);
        Ok(())
    }

    fn process(&mut self, tid: i32) -> &mut Process {
        let tables = &mut self.tables;
        self.processes.entry(tid).or_insert_with(|| {
            tables.push(Table::new());
            Process { table: tables.len() - 1, directory: Vec::new() }
        })
    }

    fn table(&mut self, tid: i32) -> &mut Table {
        let table = self.process(tid).table;
        &mut self.tables[table]
    }

    /// What a descriptor is: as the line says, or as the log told before.
    fn opened(
        &mut self,
        tid: i32,
        descriptor: &Descriptor,
    ) -> Result<Option<&mut Opened>, ImportError> {
        let known = self.table(tid).get(&descriptor.number).copied();
        let at = match (&descriptor.path, known) {
            (Some(path), Some(at)) if self.opened[at].path == *path => at,
            (Some(path), _) => {
                let opened = self.opened.len();
                let path = path.clone();
                self.opened.push(Opened { path, position: 0, was_read: true });
                self.describe(tid, descriptor.number, opened)?;
                opened
            }
            (None, Some(at)) => at,
            (None, None) => return Ok(None),
        };
        Ok(self.opened.get_mut(at))
    }

    fn path_of(&mut self, tid: i32, descriptor: &Descriptor) -> Option<Vec<u8>> {
        if descriptor.path.is_some() {
            return descriptor.path.clone();
        }
        let at = self.table(tid).get(&descriptor.number).copied()?;
        self.opened.get(at).map(|opened| opened.path.clone())
    }

    /// A path from the root, or from the directory where the log began.
    fn absolute(&mut self, tid: i32, at: Option<Descriptor>, path: Vec<u8>) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path;
        }
        let from = at.and_then(|at| self.path_of(tid, &at));
        let from = from.unwrap_or_else(|| self.process(tid).directory.clone());
        if from.is_empty() { path } else { [&from[..], b"/", &path].concat() }
    }
}
