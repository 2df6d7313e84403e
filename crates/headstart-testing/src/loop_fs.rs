//! A file system for one test: an image, loop-mounted on a directory of its own, which is removed
//! with its value.

use super::fuse::Fuse;
use super::{disk_dir, must, root_or_skip, run, skip, wait_until};
use headstart::host::fsid;
use headstart::host::id::Dev;
use headstart::host::mounts::{Mount, MountTable};
use headstart::pack::FileSystem;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// More than mkfs.xfs wants at least, which is 300 MB; the image is sparse.
const BYTES: u64 = 512 << 20;

/// A mounted file system in an image.
#[derive(Debug)]
pub struct LoopFs {
    directory: TempDir,
    mount: PathBuf,
    kind: String,
    /// What serves the image as a slow disk.
    server: Option<Fuse>,
}

impl LoopFs {
    /// A new one of a kind (ext4, xfs, btrfs, …); `None`, with the reason said, where this
    /// machine can't make or mount one.
    pub fn new(kind: &str) -> Option<Self> {
        Self::sized(kind, BYTES)
    }

    /// Like [`LoopFs::new`], in an image of so many bytes.
    pub fn sized(kind: &str, bytes: u64) -> Option<Self> {
        Self::with(kind, bytes, &[])
    }

    /// Like [`LoopFs::sized`], with more arguments to mkfs.
    pub fn with(kind: &str, bytes: u64, mkfs: &[&str]) -> Option<Self> {
        Self::inside(disk_dir(), kind, bytes, mkfs)
    }

    /// A read-only EROFS with the files that are made in the directory that is handed over.
    pub fn erofs(make: impl FnOnce(&Path)) -> Option<Self> {
        let fs = Self::unmade(disk_dir(), "erofs")?;
        let tree = fs.beside("tree");
        fs::create_dir(&tree).unwrap();
        make(&tree);
        let (image, tree) = (fs.image(), tree.to_str().unwrap().to_owned());
        fs.made_by(&["--quiet", image.to_str().unwrap(), &tree])
    }

    /// Like [`LoopFs::with`], with the image in a given directory.
    pub fn inside(directory: TempDir, kind: &str, bytes: u64, mkfs: &[&str]) -> Option<Self> {
        let fs = Self::unmade(directory, kind)?;
        let image = fs.image();
        File::create(&image).unwrap().set_len(bytes).unwrap();
        // On a small image mkfs.ext4 takes blocks of 1 KiB, and leaves a part of its work to
        // the kernel, which then reads and writes during the test.
        let own: &[&str] = match kind {
            "ext4" => &["-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            _ if kind.starts_with("ext") => &["-F"],
            _ => &["-f"],
        };
        fs.made_by(&[own, mkfs, &["-q", image.to_str().unwrap()]].concat())
    }

    fn unmade(directory: TempDir, kind: &str) -> Option<Self> {
        if !root_or_skip() || !kernel_has(kind) {
            return None;
        }
        let mount = directory.path().join("mount");
        fs::create_dir(&mount).unwrap();
        Some(Self { directory, mount, kind: kind.to_owned(), server: None })
    }

    fn made_by(self, mkfs: &[&str]) -> Option<Self> {
        let made = run(&format!("mkfs.{}", self.kind), mkfs).and_then(|_| self.try_mount());
        match made {
            Ok(()) => Some(self),
            Err(error) => {
                skip(&error);
                None
            }
        }
    }

    /// The same on a slow disk: each read takes this time, several at once, and nothing is written. `None`,
    /// with the reason said, where there is no FUSE. The image is kept in memory.
    pub fn slow(mut self, latency: Duration) -> Option<Self> {
        self.unmount_everywhere();
        let (content, served) = (fs::read(self.image()).unwrap(), self.beside("served"));
        fs::create_dir(&served).unwrap();
        self.server = Fuse::slow(&served, content, latency);
        if self.server.is_none() {
            skip("there is no /dev/fuse");
            return None;
        }
        self.mount();
        Some(self)
    }

    fn image(&self) -> PathBuf {
        self.server.as_ref().map_or_else(|| self.beside("image"), Fuse::file)
    }

    /// The directory that it is mounted on.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// A path in the directory around it, which is not on it. `image` is its image.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What it is: ext4, xfs, btrfs, …
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn entry(&self) -> Mount {
        let table = MountTable::read().unwrap();
        let mount = table.at(self.path()).unwrap();
        assert_eq!(mount.mount_point, self.path(), "not mounted");
        mount.clone()
    }

    /// The super block's device, as trace events have it.
    pub fn dev(&self) -> Dev {
        self.entry().dev
    }

    /// What packs know it by.
    pub fn identity(&self) -> FileSystem {
        let mount = self.entry();
        FileSystem {
            uuid: fsid::uuid(&mount).unwrap().map(|uuid| uuid.0),
            kind: mount.fstype.to_string_lossy().into_owned(),
            source: mount.source.as_bytes().to_vec(),
        }
    }

    /// The node of its loop device.
    pub fn device(&self) -> String {
        self.entry().source.into_string().unwrap()
    }

    /// The directory of its loop device in sysfs.
    pub fn sysfs(&self) -> PathBuf {
        Path::new("/sys/block").join(self.device().trim_start_matches("/dev/"))
    }

    /// How many reads its device has served since it was attached.
    pub fn reads(&self) -> u64 {
        let text = fs::read_to_string(self.sysfs().join("stat")).unwrap();
        text.split_ascii_whitespace().next().unwrap().parse().unwrap()
    }

    fn try_mount(&self) -> Result<(), String> {
        let (image, mount) = (self.image(), self.path());
        let paths = [image.to_str().unwrap(), mount.to_str().unwrap()];
        if self.server.is_some() {
            // Else one read at a time is requested of the server.
            let attach = ["--find", "--show", "--read-only", "--direct-io=on", paths[0]];
            let device = run("losetup", &attach)?;
            let mounted = run("mount", &["-o", "ro", "-t", &self.kind, device.trim(), paths[1]]);
            // It is, when it is unmounted.
            return run("losetup", &["--detach", device.trim()]).and(mounted).map(drop);
        }
        // Else a thread of the kernel reads the block bitmaps of an ext4 a while after the
        // mount, and a test counts its requests (ext4lazyinit, fs/ext4/super.c).
        let options = match self.kind.as_str() {
            "ext4" => "loop,no_prefetch_block_bitmaps",
            _ => "loop",
        };
        run("mount", &["-o", options, "-t", &self.kind, paths[0], paths[1]]).map(drop)
    }

    /// Mounts it again after [`LoopFs::unmount`].
    #[track_caller]
    pub fn mount(&self) {
        self.try_mount().unwrap();
    }

    /// Unmounts it, and its loop device goes with it. What a test started in the
    /// background may look at it for a moment longer, so this waits while it is in use.
    #[track_caller]
    pub fn unmount(&self) {
        wait_until("end of the file system's use", || {
            match rustix::mount::unmount(self.path(), UnmountFlags::empty()) {
                Err(Errno::BUSY) => None,
                Err(error) => panic!("can't unmount {}: {error}", self.path().display()),
                Ok(()) => Some(()),
            }
        });
    }

    /// Mounts it again: the kernel has nothing of it cached. Its device may have another
    /// number afterwards.
    #[track_caller]
    pub fn remount(&self) {
        self.unmount_everywhere();
        self.mount();
    }

    /// Unmounts it; its image is then as the file system leaves it.
    ///
    /// A mount namespace holds a copy of every mount, and so the cache; this waits until
    /// those that tests made have ended.
    #[track_caller]
    pub fn unmount_everywhere(&self) {
        self.unmount();
        let image = self.image();
        wait_until("end of all mounts of the image", || {
            let attached = must("losetup", &["--associated", image.to_str().unwrap()]);
            attached.is_empty().then_some(())
        });
    }
}

impl Drop for LoopFs {
    /// Also unmounts whatever a test mounted in the directory around it.
    fn drop(&mut self) {
        let Ok(table) = MountTable::read() else { return };
        let mut inside: Vec<&Path> = table
            .mounts()
            .iter()
            .map(|mount| mount.mount_point.as_path())
            .filter(|path| path.starts_with(self.directory.path()))
            .collect();
        // Later mounts may lie on earlier ones.
        inside.reverse();
        for path in inside {
            if let Err(error) = rustix::mount::unmount(path, UnmountFlags::DETACH) {
                eprintln!("can't unmount {}: {error}", path.display());
            }
        }
    }
}

/// Whether the kernel knows a file system, as a part of it or as a module.
/// One that it lacks is no reason to fail, not even in CI.
fn kernel_has(kind: &str) -> bool {
    let known = || {
        let text = fs::read_to_string("/proc/filesystems").unwrap();
        text.lines().any(|line| line.split_whitespace().next_back() == Some(kind))
    };
    let known = known() || run("modprobe", &[kind]).is_ok() && known();
    if !known {
        eprintln!("skipped: this kernel has no {kind}");
    }
    known
}

/// Mounts `source`, a directory or file, also at `target`, which is made.
pub fn bind(source: &Path, target: &Path) {
    if source.is_dir() {
        fs::create_dir_all(target).unwrap();
    } else {
        File::create(target).unwrap();
    }
    rustix::mount::mount_bind(source, target).unwrap();
}
