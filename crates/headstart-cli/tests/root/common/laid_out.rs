//! Files on a loop-mounted file system that `headstart layout` moves.

use super::packs;
use crate::command::headstart;
use headstart_sys::fiemap::{Extent, extents};
use headstart_testing::{LoopFs, must, noise, skip, wait_until};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes that are written to a file at once.
pub const CHUNK: usize = 16 << 10;

/// An ext4 in memory, where what is synced often takes no time.
pub fn in_memory() -> Option<LoopFs> {
    of_kind("ext4", 256 << 20)
}

/// The same of another kind.
pub fn of_kind(kind: &str, bytes: u64) -> Option<LoopFs> {
    made(kind, bytes, &[])
}

/// Like [`of_kind`], with more arguments to mkfs.
pub fn made(kind: &str, bytes: u64, mkfs: &[&str]) -> Option<LoopFs> {
    let dir = Path::new("/dev/shm");
    if !dir.is_dir() {
        skip("/dev/shm is missing");
        return None;
    }
    LoopFs::inside(tempfile::tempdir_in(dir).unwrap(), kind, bytes, mkfs)
}

/// Files that lie in many extents each, named so that their order is not that of their names.
pub fn fragmented(fs: &LoopFs, count: usize, chunks: usize) -> Vec<PathBuf> {
    let names = (0..count).map(|n| fs.path().join(format!("f{:03}", (n * 7 + 3) % count)));
    let paths: Vec<PathBuf> = names.collect();
    let files: Vec<File> = paths.iter().map(|path| File::create_new(path).unwrap()).collect();
    let bytes = noise(CHUNK * chunks + 100);
    for at in 0..=chunks {
        for (n, file) in files.iter().enumerate() {
            let (begin, end) = (at * CHUNK, bytes.len().min((at + 1) * CHUNK));
            // Each file has other bytes.
            let own: Vec<u8> = bytes[begin..end].iter().map(|byte| byte ^ n as u8).collect();
            file.write_all_at(&own, begin as u64).unwrap();
            file.sync_data().unwrap();
        }
    }
    paths
}

/// All of a file that must stay: a hash of its bytes, and what stat(2) says of it but for its access
/// time and for blocks, of which an extent tree may be one.
pub fn state(path: &Path) -> (u64, [i64; 8]) {
    let meta = path.metadata().unwrap();
    let mut hash = DefaultHasher::new();
    fs::read(path).unwrap().hash(&mut hash);
    let [size, links, inode] = [meta.size(), meta.nlink(), meta.ino()].map(u64::cast_signed);
    let (mtime, ctime) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    let mode = meta.mode().into();
    (hash.finish(), [mtime.0, mtime.1, ctime.0, ctime.1, mode, size, links, inode])
}

pub fn states(paths: &[PathBuf]) -> Vec<(u64, [i64; 8])> {
    paths.iter().map(|path| state(path)).collect()
}

pub fn places(paths: &[PathBuf]) -> Vec<Vec<Extent>> {
    paths.iter().map(|path| extents(File::open(path).unwrap()).unwrap()).collect()
}

/// A pack that touches all of these files, in this order.
pub fn pack(fs: &LoopFs, paths: &[PathBuf]) -> PathBuf {
    let pages = |path: &PathBuf| path.metadata().unwrap().len().div_ceil(4096);
    let files: Vec<_> =
        paths.iter().map(|path| (path.as_path(), path.as_path(), pages(path))).collect();
    let pack = fs.beside("files.pack");
    packs::write(fs, &pack, &files);
    pack
}

pub fn layout(words: &[&dyn AsRef<OsStr>]) -> Output {
    let words: Vec<&OsStr> = words.iter().map(|word| word.as_ref()).collect();
    headstart(&[&[OsStr::new("layout")], &words[..]].concat())
}

#[track_caller]
pub fn done(words: &[&dyn AsRef<OsStr>]) -> String {
    let output = layout(words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// What a failure says, with its exit status.
#[track_caller]
pub fn fails(words: &[&dyn AsRef<OsStr>], status: i32) -> String {
    let output = layout(words);
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

pub fn json(words: &[&dyn AsRef<OsStr>]) -> serde_json::Value {
    let output = layout(words);
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    document["file_systems"][0].clone()
}

/// Unmounts it and checks it.
#[track_caller]
pub fn check(fs: &LoopFs) {
    fs.unmount_everywhere();
    let image = fs.beside("image");
    let words: &[&str] = match fs.kind() {
        "xfs" => &["xfs_repair", "-n", "-f"],
        "btrfs" => &["btrfs", "check", "--check-data-csum"],
        _ => &["e2fsck", "-fn"],
    };
    must(words[0], &[&words[1..], &[image.to_str().unwrap()]].concat());
    fs.mount();
}

pub fn dir(fs: &LoopFs) -> PathBuf {
    fs.path().join(".headstart-layout")
}

/// `headstart layout` with these words.
pub fn command(words: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.arg("layout").args(words).stdout(Stdio::null());
    command
}

/// How long a command takes, undisturbed.
pub fn took(command: &mut Command) -> Duration {
    let began = Instant::now();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    began.elapsed()
}

/// Starts a command, and does something when it is due after so much time, or at the end. How it ended.
pub fn run_until(
    command: &mut Command,
    is_due: impl Fn(Duration) -> bool,
    act: impl FnOnce(&mut Child),
) -> Option<i32> {
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    // A busy wait hits the moment.
    while !is_due(began.elapsed()) && child.try_wait().unwrap().is_none() {}
    act(&mut child);
    child.wait().unwrap().code()
}

/// Cuts a file system off its device, as a power cut does: EXT4_IOC_SHUTDOWN without a flush.
pub fn cut_power(fs: &LoopFs) {
    let cut = "import fcntl, os, struct, sys; \
               fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
    must("python3", &["-c", cut, fs.path().to_str().unwrap()]);
}

/// Runs a verb, which moves something.
#[track_caller]
fn was_moved(words: &[&dyn AsRef<OsStr>]) {
    let moved = json(words)["moved_bytes"].as_u64();
    assert!(moved > Some(0), "{moved:?}");
}

/// Lays it out, back and out again while another thread writes into the files: no byte is lost.
pub fn written_meanwhile(fs: &LoopFs) {
    const STILL: usize = 4;
    let paths = fragmented(fs, 12, 40);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut expected: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut places = noise(1 << 20).into_iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                let mut next = || usize::from(places.next().unwrap());
                // Some files stay as they are, so that they can be moved.
                let n = next() % (expected.len() - STILL);
                let (at, byte) = (next() * 2000, next() as u8);
                // It is closed most of the time, so that the file is not skipped for that.
                let file = OpenOptions::new().write(true).open(&paths[n]).unwrap();
                file.write_all_at(&[byte; 3000], at as u64).unwrap();
                expected[n][at..at + 3000].fill(byte);
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let writes = || written.load(Ordering::Relaxed);
        for verb in ["apply", "undo", "apply", "release"] {
            let before = writes();
            wait_until("writes", || (writes() > before + 10).then_some(()));
            match verb {
                "release" => drop(done(&[&verb, &fs.path()])),
                "apply" => was_moved(&[&verb, &"--json", &"--force", &pack(fs, &paths)]),
                _ => was_moved(&[&verb, &"--json", &fs.path()]),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let now: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(now == expected);
    check(fs);
    let now: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(now == expected, "on the disk");
}
