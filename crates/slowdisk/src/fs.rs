//! The FUSE side: a file system whose root is one regular file, the disk.
//! Takes requests and passes them to the engine; answers them when told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite,
    Request as Caller, WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::engine::Engine;
use crate::log::{Log, Number};
use crate::model::Device;
use crate::sched::{Done, Op, Request};
use crate::store::Store;

/// Requests the kernel may have under way; more than any model's depth.
const BACKGROUND: u16 = 1024;
/// Largest read or write; the kernel's limit of 256 pages.
const LARGEST: u32 = 1 << 20;
/// The attributes never change.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// What is needed to answer a request.
#[derive(Debug)]
pub enum Ticket {
    /// Bytes are read at the time of the answer.
    Read(ReplyData),
    /// The bytes have been written.
    Write(ReplyWrite, Option<Number>),
    /// It has been done.
    Done(ReplyEmpty, Option<Number>),
}

/// A disk's bytes and its engine, which the two threads share.
#[derive(Debug)]
pub struct Disk {
    /// Where requests go.
    pub engine: Engine<Ticket>,
    /// Where bytes are.
    pub store: Store,
    /// Where requests are logged, if they are.
    log: Option<Log>,
    /// Whether all requests fail.
    is_cut: AtomicBool,
}

impl Disk {
    /// A disk that works.
    pub fn new(device: Device, store: Store, log: Option<Log>) -> Self {
        let engine = Engine::new(device, store.size());
        Self { engine, store, log, is_cut: AtomicBool::new(false) }
    }

    /// Lets all requests fail from now on.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    /// Carries out what changes the disk, and logs it, unless the disk is dead.
    fn change(
        &self,
        log: impl FnOnce(&Log) -> io::Result<Number>,
        act: impl FnOnce(&Store) -> io::Result<()>,
    ) -> Result<Option<Number>, Errno> {
        let change = || {
            self.is_alive()?;
            let number = self.log.as_ref().map(log).transpose()?;
            act(&self.store)?;
            Ok(number)
        };
        change().map_err(|error| self.failed(&error))
    }

    /// Whether it was not cut; logs that a change is answered.
    fn answered(&self, number: Option<Number>) -> Result<(), Errno> {
        let answer = || {
            self.is_alive()?;
            self.log.as_ref().zip(number).map_or(Ok(()), |(log, number)| log.answer(number))
        };
        answer().map_err(|error: io::Error| self.failed(&error))
    }

    fn is_alive(&self) -> io::Result<()> {
        let is_cut = self.is_cut.load(Ordering::SeqCst);
        if is_cut { Err(io::Error::from_raw_os_error(Errno::EIO.code())) } else { Ok(()) }
    }

    /// Answers requests when they are due, until the engine is closed.
    pub fn answer(&self) {
        let mut buffer = vec![0; LARGEST as usize];
        self.engine.run(|done| self.answer_one(done, &mut buffer));
    }

    fn answer_one(&self, done: Done<Ticket>, buffer: &mut Vec<u8>) {
        let Request { offset, len, .. } = done.request;
        match done.tag {
            Ticket::Read(reply) => {
                let len = len as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                let mut read =
                    || self.is_alive().and_then(|()| self.store.read(offset, &mut buffer[..len]));
                match read() {
                    Ok(()) => reply.data(&buffer[..len]),
                    Err(error) => reply.error(self.failed(&error)),
                }
            }
            Ticket::Write(reply, number) => match self.answered(number) {
                Ok(()) => reply.written(len as u32),
                Err(error) => reply.error(error),
            },
            Ticket::Done(reply, number) => match self.answered(number) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            },
        }
    }

    fn failed(&self, error: &io::Error) -> Errno {
        self.engine.count_error();
        Errno::from_i32(error.raw_os_error().unwrap_or_else(|| Errno::EIO.code()))
    }
}

/// The file system.
#[derive(Debug)]
pub struct DiskFile(pub Arc<Disk>);

impl Filesystem for DiskFile {
    fn init(&mut self, _: &Caller, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_background(BACKGROUND).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_congestion_threshold(BACKGROUND).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_max_write(LARGEST).map_err(|_| io::ErrorKind::Unsupported)?;
        // Without it the loop device has one request under way.
        let wanted = InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_MAX_PAGES;
        config.add_capabilities(wanted).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn getattr(&self, _: &Caller, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let never = SystemTime::UNIX_EPOCH;
        let attr = FileAttr {
            ino,
            size: self.0.store.size(),
            blocks: self.0.store.size() / 512,
            atime: never,
            mtime: never,
            ctime: never,
            crtime: never,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&FOREVER, &attr);
    }

    fn open(&self, _: &Caller, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Caller,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.0.store.size().saturating_sub(offset).min(size.into());
        if let Some(Err(error)) = self.0.log.as_ref().map(|log| log.read(offset, len)) {
            return reply.error(error.into());
        }
        self.0.engine.submit(Request::read(offset, len), Ticket::Read(reply));
    }

    fn write(
        &self,
        _: &Caller,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.change(|log| log.write(offset, data), |store| store.write(offset, data)) {
            Ok(number) => {
                let request = Request { op: Op::Write, offset, len: data.len() as u64 };
                self.0.engine.submit(request, Ticket::Write(reply, number));
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _: &Caller, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.0.change(Log::flush, |_| Ok(())) {
            Ok(number) => {
                let request = Request { op: Op::Flush, offset: 0, len: 0 };
                self.0.engine.submit(request, Ticket::Done(reply, number));
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Caller, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // A file descriptor was closed, nothing that a disk would see.
        reply.ok();
    }

    fn fallocate(
        &self,
        _: &Caller,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // The loop device sends these two for discards and for zeroes.
        let mode = FallocateFlags::from_bits_retain(mode as u32) - FallocateFlags::KEEP_SIZE;
        if mode != FallocateFlags::PUNCH_HOLE && mode != FallocateFlags::ZERO_RANGE {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let changed =
            self.0.change(|log| log.discard(offset, length), |store| store.discard(offset, length));
        match changed {
            Ok(number) => {
                let request = Request { op: Op::Discard, offset, len: length };
                self.0.engine.submit(request, Ticket::Done(reply, number));
            }
            Err(error) => reply.error(error),
        }
    }
}
