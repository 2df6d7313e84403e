//! A FUSE file system with one file, whose server answers until it is told to go silent. Then it
//! takes requests and answers none, and the callers wait unkillably.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEntry, ReplyOpen, Request, Session,
};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

/// The name of the file.
pub const FILE: &str = "file";
const FILE_NODE: INodeNo = INodeNo(2);
/// Names and attributes are requested again each time.
const NOT_KEPT: Duration = Duration::ZERO;

/// A mounted file system, seen by the calling thread and what it starts.
#[derive(Debug)]
pub struct Fuse {
    path: PathBuf,
    state: Arc<State>,
    _session: BackgroundSession,
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // By force, which ends whoever waits for an answer.
        let _ = unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

#[derive(Debug, Default)]
struct State {
    is_silent: AtomicBool,
    unanswered: AtomicU64,
}

impl Fuse {
    /// Mounts one at `path` with a file of this content; `None` where there is no FUSE. Gives
    /// the calling thread mounts of its own.
    pub fn at(path: &Path, content: Vec<u8>) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            return None;
        }
        headstart_sys::namespace::private_mounts().unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let state = Arc::<State>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("test".into())];
        let server = Server { content, state: state.clone() };
        let session = Session::new(server, path, &config).unwrap().spawn().unwrap();
        Some(Self { path: path.into(), state, _session: session })
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// Answers no request from now on.
    pub fn go_silent(&self) {
        self.state.is_silent.store(true, SeqCst);
    }

    /// Requests that were taken and not answered.
    pub fn unanswered(&self) -> u64 {
        self.state.unanswered.load(SeqCst)
    }
}

struct Server {
    content: Vec<u8>,
    state: Arc<State>,
}

impl Server {
    /// Answers, unless the server is silent: a reply that is dropped would be an error.
    fn answer<R>(&self, reply: R, answer: impl FnOnce(R)) {
        if self.state.is_silent.load(SeqCst) {
            self.state.unanswered.fetch_add(1, SeqCst);
            std::mem::forget(reply);
        } else {
            answer(reply);
        }
    }

    fn attributes(&self, node: INodeNo) -> FileAttr {
        let is_file = node == FILE_NODE;
        let size = if is_file { self.content.len() as u64 } else { 0 };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        FileAttr {
            ino: node,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o644 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer(reply, |reply| match name == FILE {
            true => reply.entry(&NOT_KEPT, &self.attributes(FILE_NODE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer(reply, |reply| reply.attr(&NOT_KEPT, &self.attributes(node)));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The page cache stays.
        self.answer(reply, |reply| reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let from = (offset as usize).min(self.content.len());
        let to = (from + size as usize).min(self.content.len());
        self.answer(reply, |reply| reply.data(&self.content[from..to]));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            // libfuse gives this number unless a server has numbers of its own.
            let unknown = INodeNo(0xffff_ffff);
            let _ = reply.add(unknown, 1, FileType::RegularFile, FILE);
        }
        self.answer(reply, ReplyDirectory::ok);
    }
}
