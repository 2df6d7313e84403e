//! A file system whose free space is in pieces, with files between them that can be moved aside.

use super::laid_out::{check, command, fragmented, made, pack};
use headstart_testing::{LoopFs, must, noise};
use rustix::fs::{FallocateFlags, fallocate};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of each other file, and of each free piece between two of them.
const PIECE: usize = 96 << 10;

const BLOCK: u64 = 4096;

/// Bytes of xfs that are enough, with its log.
const XFS_NEEDS: u64 = 112 << 20;

/// Blocks that xfs keeps for itself while files are written: when it has none for the extent trees of preallocated files,
/// it loses what is written back (`xfs_iomap_write_unwritten` of `fs/xfs/xfs_iomap.c`).
const XFS_SPARE: u64 = 128;

/// A file system whose free space is in pieces.
pub struct Perforated {
    pub fs: LoopFs,
    /// Files in many extents, which are laid out, and their pack.
    pub paths: Vec<PathBuf>,
    pub pack: PathBuf,
    /// Files between the pieces.
    pub others: Vec<PathBuf>,
}

impl Perforated {
    pub fn of(kind: &str, size: u64) -> Option<Self> {
        Self::made(kind, size, &[])
    }

    /// Like [`Perforated::of`], with more arguments to mkfs.
    pub fn made(kind: &str, size: u64, mkfs: &[&str]) -> Option<Self> {
        let fs = made(kind, size, mkfs)?;
        let paths = fragmented(&fs, 12, 10);
        reserve(&fs, XFS_SPARE);
        if kind == "xfs" {
            // It can't be smaller than this, and has more than is needed.
            let most = File::create_new(fs.path().join("most")).unwrap();
            fallocate(&most, FallocateFlags::empty(), 0, size - XFS_NEEDS).unwrap();
        }
        let rest = File::create_new(fs.path().join("rest")).unwrap();
        let folder = fs.path().join("others");
        fs::create_dir(&folder).unwrap();
        let (bytes, mut others) = (noise(PIECE), Vec::new());
        let path = |number: usize| folder.join(format!("{number:04}"));
        loop {
            let number = others.len();
            // xfs may have no room for more inodes.
            let Ok(file) = File::create_new(path(number)) else { break };
            // In as few pieces as there are.
            if fallocate(&file, FallocateFlags::empty(), 0, PIECE as u64).is_err() {
                break fs::remove_file(path(number)).unwrap();
            }
            let own: Vec<u8> = bytes.iter().map(|byte| byte ^ number as u8).collect();
            file.write_all_at(&own, 0).unwrap();
            // The last block of most files is not full.
            file.set_len(PIECE as u64 - 100).unwrap();
            others.push(path(number));
        }
        let sync = || must("sync", &["-f", fs.path().to_str().unwrap()]);
        sync();
        reserve_nothing(&fs);
        // What was kept would be one large piece.
        let mut taken = 0;
        while fallocate(&rest, FallocateFlags::empty(), taken, BLOCK).is_ok() {
            taken += BLOCK;
        }
        others.iter().skip(1).step_by(2).for_each(|path| fs::remove_file(path).unwrap());
        sync();
        let others = others.into_iter().step_by(2).collect();
        Some(Self { pack: pack(&fs, &paths), fs, paths, others })
    }

    /// Checks it, and mounts it again.
    #[track_caller]
    pub fn check(&self) {
        check(&self.fs);
        reserve_nothing(&self.fs);
    }

    pub fn all(&self) -> Vec<PathBuf> {
        [&self.paths[..], &self.others[..]].concat()
    }

    pub fn apply(&self) -> Command {
        let words = ["apply", "--force", "--make-room"].map(OsStr::new);
        command(&[&words[..], &[self.pack.as_os_str()]].concat())
    }
}

/// What a file system reserves for itself would be one large piece. Each mount reserves it again.
fn reserve_nothing(fs: &LoopFs) {
    // xfs takes no less.
    reserve(fs, 1);
}

/// Lets xfs reserve these blocks for itself, and ext4 none.
fn reserve(fs: &LoopFs, blocks: u64) {
    match fs.kind() {
        "ext4" => {
            let device = fs.device();
            let name = Path::new(&device).file_name().unwrap();
            let settings = Path::new("/sys/fs/ext4").join(name);
            fs::write(settings.join("reserved_clusters"), "0").unwrap();
        }
        "xfs" => {
            let command = format!("resblks {blocks}");
            must("xfs_io", &["-x", "-c", &command, fs.path().to_str().unwrap()]);
        }
        _ => {}
    }
}
