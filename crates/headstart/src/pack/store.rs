//! Where packs are, which are trusted, and how one is replaced.
//!
//! The driver: it reads and writes files. A pack tells root which files to
//! open, so root believes only what root wrote. Replacing is atomic, and what
//! a killed writer left behind is removed by the next.

use super::codec::{PackError, decode};
use super::{Pack, codec, key};
use crate::host::proc::start_time;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Packs that this machine learned.
pub const LOCAL_DIR: &str = "/var/lib/headstart/packs";
/// Packs that came with an image or a package.
pub const SHIPPED_DIR: &str = "/usr/lib/headstart/packs";
/// Overrides all directories.
pub const DIR_VARIABLE: &str = "HEADSTART_PACKS";
/// A pack beyond this is refused unread.
const MAX_PACK_BYTES: u64 = 256 << 20;
/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// A pack file that can't be used or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// There is none.
    #[error("There is no pack {0}")]
    Missing(PathBuf),
    /// It can't be opened or read.
    #[error("Can't read the pack {path}")]
    Read {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else could have written it.
    #[error("The pack {path} is not used: {why}")]
    Untrusted {
        /// The pack.
        path: PathBuf,
        /// What is wrong, and the cure.
        why: String,
    },
    /// Its content is no good.
    #[error("The pack {path} is not used")]
    Content {
        /// The pack.
        path: PathBuf,
        /// What is wrong with it.
        source: PackError,
    },
    /// A name is that of several.
    #[error("Several packs are of {name}; name one of them: {paths}")]
    Several {
        /// The name.
        name: String,
        /// The packs.
        paths: String,
    },
    /// It can't be written.
    #[error("Can't write the pack {path}")]
    Write {
        /// The pack.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The directories that are searched, the first that has a pack wins; the
/// first is also where packs are written.
pub fn search_path(is_root: bool, var: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let set = |name| var(name).filter(|v: &PathBuf| v.is_absolute());
    if let Some(dir) = set(DIR_VARIABLE) {
        return vec![dir];
    }
    let state = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    let own = if is_root { None } else { state().map(|dir| dir.join("headstart/packs")) };
    own.into_iter().chain([LOCAL_DIR.into(), SHIPPED_DIR.into()]).collect()
}

/// Looks a pack up by its file name. Returns it with the path where it is
/// learned, which is in the first directory, wherever it was found. A pack
/// that can't be used ends the search: a worse one further on would hide that.
///
/// # Errors
/// The path where it is learned, and what is wrong with the pack found.
#[allow(clippy::type_complexity)] // A path in either case.
pub fn find(
    file_name: &str,
    uid: u32,
    var: impl Fn(&str) -> Option<PathBuf>,
) -> Result<(PathBuf, Option<Pack>), Box<(PathBuf, StoreError)>> {
    let dirs = search_path(uid == 0, var);
    let home = dirs.first().map(|dir| dir.join(file_name)).unwrap_or_default();
    for dir in dirs {
        match read(&dir.join(file_name), uid) {
            Ok(pack) => return Ok((home, Some(pack))),
            Err(StoreError::Missing(_)) => {}
            Err(error) => return Err(Box::new((home, error))),
        }
    }
    Ok((home, None))
}

/// The path of a pack that a user named: that of a file, or the name of a program
/// that has one in the first of the directories that knows it. What is neither
/// stays as it is.
///
/// # Errors
/// [`StoreError::Several`].
pub fn by_name(wanted: &Path, dirs: Vec<PathBuf>) -> Result<PathBuf, StoreError> {
    let Some(name) = wanted.to_str().filter(|name| !name.contains('/') && !wanted.exists()) else {
        return Ok(wanted.into());
    };
    for dir in dirs {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let is_it = |path: &PathBuf| {
            let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            file == name || key::program_of(file) == Some(name)
        };
        let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(is_it).collect();
        found.sort();
        match &found[..] {
            [] => {}
            [one] => return Ok(one.clone()),
            several => {
                let paths: Vec<_> = several.iter().map(|p| p.display().to_string()).collect();
                return Err(StoreError::Several { name: name.into(), paths: paths.join(", ") });
            }
        }
    }
    Ok(wanted.into())
}

/// Reads a pack if it can be trusted by the user `uid`.
pub fn read(path: &Path, uid: u32) -> Result<Pack, StoreError> {
    let bytes = read_bytes(path, uid)?;
    decode(&bytes).map_err(|source| StoreError::Content { path: path.into(), source })
}

/// Whether a regular file begins like a pack. Of a pipe nothing is read: it may
/// bring a list.
pub fn is_pack(path: &Path) -> bool {
    let mut magic = [0; codec::MAGIC.len()];
    path.metadata().is_ok_and(|m| m.is_file())
        && File::open(path).and_then(|mut f| f.read_exact(&mut magic)).is_ok()
        && magic == *codec::MAGIC
}

/// Reads a file if the user `uid` can trust it.
pub(crate) fn read_bytes(path: &Path, uid: u32) -> Result<Vec<u8>, StoreError> {
    let failed = |source| StoreError::Read { path: path.into(), source };
    let untrusted = |why: String| StoreError::Untrusted { path: path.into(), why };
    // Not blocking: a fifo in its place must not hang a start.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Err(StoreError::Missing(path.into())),
        Err(rustix::io::Errno::LOOP) => {
            return Err(untrusted("it is a symbolic link; name the file itself".into()));
        }
        Err(e) => return Err(failed(e.into())),
    };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(untrusted("it is no regular file".into()));
    }
    if meta.uid() != uid && meta.uid() != 0 {
        let owner = meta.uid();
        return Err(untrusted(format!("it belongs to user {owner}; `chown` it if you trust it")));
    }
    if meta.mode() & OTHERS_WRITE != 0 {
        return Err(untrusted("others may write it; `chmod go-w` it if you trust it".into()));
    }
    if meta.size() > MAX_PACK_BYTES {
        let most = MAX_PACK_BYTES >> 20;
        return Err(untrusted(format!("it is larger than {most} MiB; remove it to learn anew")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.size()).unwrap_or(0));
    file.take(MAX_PACK_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Keeps other writers of the same directory out while a pack is read,
/// changed and replaced.
#[derive(Debug)]
pub struct Locked {
    dir: File,
    path: PathBuf,
}

/// Writers have a directory locked while they read, merge and sync one file: milliseconds,
/// but on a busy disk with an arm, when several starts end together, it may be seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Locks the directory of `path`, which is made if it is missing, and removes
/// what killed writers left in it. Fails when somebody else keeps it locked: whoever may look
/// into a directory may lock it, for ever.
///
/// # Errors
/// That, or the directory can't be made or opened.
pub fn lock(path: &Path) -> Result<Locked, StoreError> {
    lock_until(path, Instant::now() + PATIENCE)
}

/// The same, but waits until then.
///
/// # Errors
/// As [`lock`].
pub fn lock_until(path: &Path, until: Instant) -> Result<Locked, StoreError> {
    const AGAIN_AFTER: Duration = Duration::from_millis(5);
    let failed = |source| StoreError::Write { path: path.into(), source };
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed)?;
    let file = File::open(dir).map_err(failed)?;
    // File systems without locks (some network ones) lose a merge at worst.
    let is_locked = || {
        let tried = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        tried.is_err_and(|errno| errno == Errno::WOULDBLOCK)
    };
    while is_locked() {
        if Instant::now() >= until {
            let why = "another process keeps its directory locked; see lslocks";
            return Err(failed(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        thread::sleep(AGAIN_AFTER);
    }
    remove_orphans(dir);
    Ok(Locked { dir: file, path: path.into() })
}

impl Locked {
    /// Replaces the pack in one step: it is old or new, never half.
    pub fn write(&self, pack: &Pack) -> Result<u64, StoreError> {
        let failed = |source| StoreError::Write { path: self.path.clone(), source };
        let bytes = codec::encode(pack);
        if bytes.len() as u64 > MAX_PACK_BYTES {
            let why = "it would be too large to be read again; record less at a time";
            return Err(failed(io::Error::other(why)));
        }
        self.write_bytes(&bytes).map_err(failed)?;
        Ok(bytes.len() as u64)
    }

    /// The file that it was locked for.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file in one step.
    pub(crate) fn write_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.replace(&self.path, bytes, true)
    }

    /// Replaces another file of the directory in one step.
    pub(crate) fn write_beside(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(path, bytes, true)
    }

    /// The same without waiting until the disk has it: after a power cut it may be
    /// empty.
    pub(crate) fn write_beside_lazily(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace(path, bytes, false)
    }

    fn replace(&self, path: &Path, bytes: &[u8], for_good: bool) -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let temporary = path.with_file_name(temporary_name(name));
        let write = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            // The user's umask decides who may read it: it names files.
            let mode = Mode::from_raw_mode(0o644);
            let mut file = File::from(rustix::fs::open(&temporary, flags, mode)?);
            file.write_all(bytes)?;
            if for_good {
                file.sync_all()?;
            }
            fs::rename(&temporary, path)?;
            if for_good { self.dir.sync_all() } else { Ok(()) }
        };
        write().inspect_err(|_| {
            // The error at hand says more than one of the removal.
            let _ = fs::remove_file(&temporary);
        })
    }
}

const TEMPORARY_SUFFIX: &str = ".headstart-tmp";

/// `.NAME.PID-STARTTIME.headstart-tmp`, which tells whether its writer lives.
fn temporary_name(name: &OsStr) -> std::ffi::OsString {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let mut out = std::ffi::OsString::from(".");
    out.push(name);
    out.push(format!(".{pid}-{}{TEMPORARY_SUFFIX}", start_time(pid).unwrap_or(0)));
    out
}

fn writer(name: &str) -> Option<(i32, u64)> {
    let (_, id) = name.strip_suffix(TEMPORARY_SUFFIX)?.rsplit_once('.')?;
    let (pid, start) = id.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// Removes temporary files whose writers are gone. Called under the lock.
fn remove_orphans(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = writer(&name.to_string_lossy());
        if owner.is_some_and(|(pid, start)| start_time(pid) != Some(start)) {
            // The next writer tries again.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn pack(starts: u32) -> Pack {
        Pack { origin: Origin { page_shift: 12, starts, ..Origin::default() }, ..Pack::default() }
    }

    fn me() -> u32 {
        rustix::process::getuid().as_raw()
    }

    #[test]
    fn a_pack_is_replaced_as_a_whole_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/a.pack");
        for starts in [1, 2] {
            lock(&path).unwrap().write(&pack(starts)).unwrap();
            assert_eq!(read(&path, me()).unwrap(), pack(starts));
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(is_pack(&path));
    }

    #[test]
    fn leftovers_of_dead_writers_go_and_those_of_live_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let live = dir.path().join(temporary_name(OsStr::new("a.pack")));
        let dead = dir.path().join(format!(".a.pack.1-999999999{TEMPORARY_SUFFIX}"));
        let other = dir.path().join("notes.txt");
        for file in [&live, &dead, &other] {
            fs::write(file, "x").unwrap();
        }
        lock(&dir.path().join("b.pack")).unwrap();
        assert!(live.exists() && other.exists());
        assert!(!dead.exists());
    }

    #[test]
    fn packs_that_others_could_have_made_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["writable", "target", "corrupt"] {
            lock(&at(name)).unwrap().write(&pack(1)).unwrap();
        }
        fs::set_permissions(at("writable"), fs::Permissions::from_mode(0o666)).unwrap();
        symlink(at("target"), at("link")).unwrap();
        fs::write(at("corrupt"), "HEADSTRTxxxx").unwrap();
        fs::create_dir(at("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for (name, why) in [
            ("writable", "others may write it"),
            ("link", "it is a symbolic link"),
            ("corrupt", "it is cut off"),
            ("directory", "it is no regular file"),
            ("fifo", "it is no regular file"),
            ("absent", "There is no pack"),
        ] {
            let error = read(&at(name), me()).unwrap_err();
            let message = format!(
                "{error}: {:?}",
                std::error::Error::source(&error).map(ToString::to_string)
            );
            assert!(message.contains(why), "{name}: {message}");
        }
        assert!(read(&at("target"), me()).is_ok());
    }

    #[test]
    fn a_foreign_pack_is_refused_and_one_of_root_is_not() {
        if me() != 0 {
            println!("skipped: only root can give a file away");
            assert!(std::env::var_os("CI").is_none(), "CI must run as root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pack");
        lock(&path).unwrap().write(&pack(1)).unwrap();
        assert!(read(&path, 1000).is_ok());
        std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
        assert!(read(&path, 1000).is_ok());
        let message = read(&path, 0).unwrap_err().to_string();
        assert!(message.contains("belongs to user 1000"), "{message}");
    }

    #[test]
    fn a_pack_is_found_by_the_name_of_its_program_unless_there_are_several() {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pack = |dir: &tempfile::TempDir, name: &str| {
            let path = dir.path().join(name);
            lock(&path).unwrap().write(&pack(1)).unwrap();
            path
        };
        let sh = pack(&far, "sh-0123456789abcdef.pack");
        let python = pack(&near, "python3-app.py-0123456789abcdef.pack");
        pack(&far, "python3-app.py-ffffffffffffffff.pack");
        for digit in [1, 2] {
            pack(&far, &format!("cat-000000000000000{digit}.pack"));
        }
        pack(&far, "odd-0123.pack");
        let find = |name: &str| {
            by_name(Path::new(name), vec![near.path().into(), "/none".into(), far.path().into()])
        };
        for (name, expected) in [
            ("sh", sh.as_path()),
            ("python3-app.py", &python),
            ("sh-0123456789abcdef.pack", &sh),
            ("odd", Path::new("odd")),
            ("absent", Path::new("absent")),
            ("./sh", Path::new("./sh")),
        ] {
            assert_eq!(find(name).unwrap(), expected, "{name}");
        }
        let message = find("cat").unwrap_err().to_string();
        assert!(message.contains("cat-0000000000000001.pack, /"), "{message}");
    }

    #[test]
    fn users_look_at_their_own_packs_first_and_root_never_does() {
        let var = |name: &str| match name {
            "HOME" => Some(PathBuf::from("/home/u")),
            _ => None,
        };
        let own = PathBuf::from("/home/u/.local/state/headstart/packs");
        assert_eq!(search_path(false, var), [own, LOCAL_DIR.into(), SHIPPED_DIR.into()]);
        assert_eq!(search_path(true, var), [PathBuf::from(LOCAL_DIR), SHIPPED_DIR.into()]);
        let forced = |name: &str| (name == DIR_VARIABLE).then(|| PathBuf::from("/p"));
        assert_eq!(search_path(true, forced), [PathBuf::from("/p")]);
        let relative = |name: &str| (name == DIR_VARIABLE).then(|| PathBuf::from("p"));
        assert_eq!(search_path(true, relative).len(), 2, "a relative directory is ignored");
    }
}
