//! Follows the calls of a log: which parts of which files they read or map.

use super::call::{Call, Descriptor, descriptor};
use super::processes::{Opened, Processes};
use crate::accesses::{Accesses, Name};
use crate::error::ImportError;
use headstart::host::range::ByteRange;
use headstart::host::usage::How;

/// What is known at a place of the log.
#[derive(Debug)]
pub(super) struct Follow {
    accesses: Accesses,
    processes: Processes,
    time: u64,
}

impl Follow {
    /// At the start of a log of so many bytes.
    pub(super) fn new(accesses: Accesses, bytes: usize) -> Self {
        Self { accesses, processes: Processes::new(bytes), time: 0 }
    }

    /// Whether the log has told of a thread.
    pub(super) fn knows(&self, tid: i32) -> bool {
        self.processes.knows(tid)
    }

    /// A thread has a line, and the call that starts it, in another, has not returned yet.
    ///
    /// # Errors
    /// There is more than fits.
    pub(super) fn is_started(
        &mut self,
        tid: i32,
        parent: i32,
        call: &[u8],
    ) -> Result<(), ImportError> {
        let has = |flag: &[u8]| call.windows(flag.len()).any(|window| window == flag);
        self.processes.start(parent, tid, has(b"CLONE_FILES"), has(b"CLONE_FS"))
    }

    /// A thread has a line that the log has not told of: perhaps it has told of it under another number.
    pub(super) fn appears(&mut self, tid: i32) {
        self.processes.appears(tid);
    }

    /// A thread has ended.
    pub(super) fn end(&mut self, tid: i32) {
        self.processes.end(tid);
    }

    /// A line that is none of strace.
    pub(super) fn not_understood(&mut self) {
        self.accesses.lacks.not_understood += 1;
    }

    /// What was found.
    pub(super) fn finish(mut self) -> Accesses {
        self.accesses.lacks.only_opened = self.processes.unread;
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
            b"lseek" | b"_llseek" => self.seek(tid, call, result),
            b"close" => match call.descriptor(0) {
                Some(Descriptor { number, .. }) => self.processes.close(tid, number),
                None => Ok(()),
            },
            b"close_range" if !call.has(2, "CLOSE_RANGE_CLOEXEC") => {
                let number = |at| call.number(at).and_then(|number| i64::try_from(number).ok());
                let (first, last) = (number(0).unwrap_or(0), number(1).unwrap_or(i64::MAX));
                self.processes.close_range(tid, first, last)
            }
            b"dup" | b"dup2" | b"dup3" => {
                self.duplicate(tid, call, result, call.has(2, "O_CLOEXEC"))
            }
            b"fcntl" | b"fcntl64" => match call.argument(1) {
                b"F_DUPFD" => self.duplicate(tid, call, result, false),
                b"F_DUPFD_CLOEXEC" => self.duplicate(tid, call, result, true),
                b"F_SETFD" => {
                    if let Some(Descriptor { number, .. }) = call.descriptor(0) {
                        let closes = call.has(2, "FD_CLOEXEC");
                        self.processes.closes_on_exec(tid, number, closes);
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
            b"pipe" | b"pipe2" => self.others(tid, call.argument(0)),
            b"socketpair" => self.others(tid, call.argument(3)),
            b"socket" | b"accept" | b"accept4" | b"epoll_create" | b"epoll_create1"
            | b"eventfd" | b"eventfd2" | b"inotify_init" | b"inotify_init1" | b"timerfd_create"
            | b"signalfd" | b"signalfd4" | b"pidfd_open" | b"memfd_create" | b"userfaultfd"
            | b"io_uring_setup" => self.processes.close(tid, result),
            b"chdir" => match call.text(0) {
                Some(path) => {
                    let path = self.processes.absolute(tid, None, path)?;
                    self.processes.enter(tid, path.unwrap_or_default())
                }
                None => Ok(()),
            },
            b"fchdir" => match call.descriptor(0) {
                Some(at) => {
                    let path = self.processes.path_of(tid, &at)?;
                    self.processes.enter(tid, path.unwrap_or_default())
                }
                None => Ok(()),
            },
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
            (Some(path), _) => Some(path.clone()),
            (None, Some(path)) => self.processes.absolute(tid, at.as_ref(), path)?,
            (None, None) => None,
        };
        let Some(path) = path else {
            self.accesses.lacks.of_unknown_files += 1;
            return self.processes.close(tid, result);
        };
        let is_direct = call.has(flags, "O_DIRECT");
        let opened = Opened { path, position: 0, was_read: !is_file || is_direct, is_direct };
        self.processes.open(tid, result, opened, call.has(flags, "O_CLOEXEC"))
    }

    fn execute(
        &mut self,
        tid: i32,
        at: Option<Descriptor>,
        path: Option<Vec<u8>>,
    ) -> Result<(), ImportError> {
        let path = match (path, &at) {
            // By a descriptor alone, as fexecve(3) does.
            (Some(path), Some(at)) if path.is_empty() => self.processes.path_of(tid, at)?,
            (Some(path), _) => self.processes.absolute(tid, at.as_ref(), path)?,
            (None, _) => None,
        };
        self.processes.execute(tid)?;
        match path {
            Some(path) => self.accesses.add_whole(Name::Path(path), self.time, How::MAPPED),
            None => Ok(()),
        }
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
        let Some(opened) = self.processes.opened(tid, &descriptor)? else {
            self.accesses.lacks.of_unknown_files += u64::from(!descriptor.is_other);
            return Ok(());
        };
        let mut opened = opened.borrow_mut();
        let bytes = ByteRange::of(from.unwrap_or(opened.position), length);
        if from.is_none() {
            opened.position = bytes.end;
        }
        self.processes.reads(&mut opened);
        if opened.is_direct {
            return Ok(());
        }
        let name = Name::Path(opened.path.clone());
        self.accesses.add_bytes(name, bytes, self.time, How::READ)
    }

    fn map(&mut self, tid: i32, call: &Call) -> Result<(), ImportError> {
        let (Some(length), Some(descriptor)) = (call.number(1), call.descriptor(4)) else {
            return Ok(());
        };
        if call.has(3, "MAP_ANONYMOUS") || descriptor.number < 0 || call.has(2, "PROT_NONE") {
            return Ok(());
        }
        // mmap2(2) counts in pages; strace shows bytes.
        let offset = call.number(5).unwrap_or(0);
        let Some(opened) = self.processes.opened(tid, &descriptor)? else {
            self.accesses.lacks.of_unknown_files += u64::from(!descriptor.is_other);
            return Ok(());
        };
        let mut opened = opened.borrow_mut();
        self.processes.reads(&mut opened);
        let name = Name::Path(opened.path.clone());
        let how = if call.has(2, "PROT_EXEC") { How::MAPPED | How::EXECUTED } else { How::MAPPED };
        self.accesses.add_bytes(name, ByteRange::of(offset, length), self.time, how)
    }

    fn seek(&mut self, tid: i32, call: &Call, result: i64) -> Result<(), ImportError> {
        // _llseek(2) returns the position in an argument.
        let position =
            if call.name == b"lseek" { u64::try_from(result).ok() } else { call.number(2) };
        if let (Some(position), Some(descriptor)) = (position, call.descriptor(0))
            && let Some(opened) = self.processes.opened(tid, &descriptor)?
        {
            opened.borrow_mut().position = position;
        }
        Ok(())
    }

    fn duplicate(
        &mut self,
        tid: i32,
        call: &Call,
        result: i64,
        closes_on_exec: bool,
    ) -> Result<(), ImportError> {
        let Some(descriptor) = call.descriptor(0) else { return Ok(()) };
        self.processes.duplicate(tid, descriptor.number, result, closes_on_exec)
    }

    /// Descriptors of something without pages, as `[3, 4]`, also with what they are.
    fn others(&mut self, tid: i32, list: &[u8]) -> Result<(), ImportError> {
        let list = list.strip_prefix(b"[").unwrap_or_default();
        for number in list.split(|byte| *byte == b',').filter_map(descriptor) {
            self.processes.close(tid, number.number)?;
        }
        Ok(())
    }

    fn start(&mut self, tid: i32, call: &Call, child: i64) -> Result<(), ImportError> {
        match i32::try_from(child) {
            // A line of the child may come before its parent's.
            Ok(child) if child > 0 && !self.knows(child) => {
                let flags = [0, 1, 2].map(|number| call.argument(number)).concat();
                self.is_started(child, tid, &flags)
            }
            _ => Ok(()),
        }
    }
}
