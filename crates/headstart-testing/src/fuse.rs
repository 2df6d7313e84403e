//! A FUSE file system with one file. Its server answers until it is told to go silent: then it takes
//! requests and answers none, and the callers wait unkillably. Or it takes its time for each read, as a
//! slow disk does ([`LoopFs::slow`](crate::LoopFs::slow)).

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
use std::thread;
use std::time::{Duration, SystemTime};

/// The name of the file.
pub const FILE: &str = "file";
const FILE_NODE: INodeNo = INodeNo(2);
/// Names and attributes are requested again each time.
const NOT_KEPT: Duration = Duration::ZERO;

/// A mounted file system.
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
    /// the calling thread mounts of its own, so that only it and what it starts see the file system.
    pub fn at(path: &Path, content: Vec<u8>) -> Option<Self> {
        if is_missing() {
            return None;
        }
        headstart_sys::namespace::private_mounts().unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        Some(Self::mount(path, content, None))
    }

    /// Like [`Fuse::at`], seen by all. Each read takes this time, several at once; nothing is kept in the page
    /// cache.
    pub(crate) fn slow(path: &Path, content: Vec<u8>, latency: Duration) -> Option<Self> {
        (!is_missing()).then(|| Self::mount(path, content, Some(latency)))
    }

    fn mount(path: &Path, content: Vec<u8>, latency: Option<Duration>) -> Self {
        let state = Arc::<State>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("test".into())];
        let server = Server { content: content.into(), latency, state: state.clone() };
        let session = Session::new(server, path, &config).unwrap().spawn().unwrap();
        Self { path: path.into(), state, _session: session }
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

fn is_missing() -> bool {
    !Path::new("/dev/fuse").exists()
}

struct Server {
    content: Arc<[u8]>,
    latency: Option<Duration>,
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
        let flags = match self.latency {
            None => FopenFlags::FOPEN_KEEP_CACHE,
            Some(_) => FopenFlags::FOPEN_DIRECT_IO,
        };
        self.answer(reply, |reply| reply.opened(FileHandle(0), flags));
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
        let content = Arc::clone(&self.content);
        let data = move |reply: ReplyData| reply.data(&content[from..to]);
        self.answer(reply, |reply| match self.latency {
            None => data(reply),
            Some(latency) => drop(thread::spawn(move || {
                thread::sleep(latency);
                data(reply);
            })),
        });
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
