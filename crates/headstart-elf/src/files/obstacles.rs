//! What forbids to change a file: signatures, checksums next to it, and processes that run it.

use super::dpkg::is_original;
use super::loader::{Loader, Loaders};
use super::read::Read;
use crate::image::Image;
use crate::repack::refuse::Refusal;
use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file stays as it is.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Its form.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// IMA or EVM.
    #[error("it is signed or measured ({0}); relink it before it is signed")]
    Signed(&'static str),
    /// fs-verity.
    #[error("it is protected by fs-verity; relink it before that is enabled")]
    Verity,
    /// A file with its checksum.
    #[error("{} has a checksum of it, which is checked at each start (FIPS)", .0.display())]
    Checksum(PathBuf),
    /// A module whose checksum is in a configuration.
    #[error("it is a module that checks itself (FIPS)")]
    FipsModule,
    /// A process runs it.
    #[error("a process runs it; end that first, or repack it in a system that is not running")]
    Running,
    /// glibc or musl.
    #[error("the loader {} knows no packed relocations (glibc 2.36 and musl 1.2.4 do)", .0.display())]
    OldLoader(PathBuf),
    /// Nothing that could be looked at.
    #[error("no loader {} was found that tells whether it knows packed relocations; name the \
             system with --root, or give --any-loader", .0.display())]
    UnknownLoader(PathBuf),
    /// Of a package.
    #[error("it belongs to a package; give --packaged or --divert")]
    Packaged,
    /// Of a package without which an upgrade fails.
    #[error(
        "it belongs to {0}, which upgrades run, and a diverted file is the old version until an \
             upgrade ends; give --packaged"
    )]
    UpgradesNeedIt(String),
    /// The packaged file of a diverted one.
    #[error("it is the packaged file of a repacked one; elf undo of that makes it the only one")]
    Original,
    /// More names than are known.
    #[error(
        "it has {links} names (hard links) and only {known} of them were given; give all, \
             or a directory that has them"
    )]
    MoreNames {
        /// How many there are.
        links: u64,
        /// How many are known.
        known: u64,
    },
}

/// Executables that processes run, by device and inode.
#[derive(Clone, Debug, Default)]
pub struct Running(HashSet<(u64, u64)>);

impl Running {
    /// Those of now, as far as this user may know.
    pub fn now() -> Self {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let programs = processes.filter_map(|entry| entry.path().join("exe").metadata().ok());
        Self(programs.map(|meta| (meta.dev(), meta.ino())).collect())
    }

    /// Whether it is one of them.
    pub fn has(&self, read: &Read) -> bool {
        self.0.contains(&(read.stat.st_dev, read.stat.st_ino))
    }
}

/// Looks for what forbids to change a file that stays where it is.
///
/// # Errors
/// The obstacle.
pub fn check_file(path: &Path, read: &Read, running: &Running) -> Result<(), Obstacle> {
    if is_original(path) {
        return Err(Obstacle::Original);
    }
    for (name, shown) in [("security.ima", "IMA"), ("security.evm", "EVM")] {
        if rustix::fs::fgetxattr(&read.file, name, &mut [0u8; 0][..]).is_ok() {
            return Err(Obstacle::Signed(shown));
        }
    }
    let statx = rustix::fs::statx(&read.file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    if statx.is_ok_and(|statx| statx.stx_attributes.contains(StatxAttributes::VERITY)) {
        return Err(Obstacle::Verity);
    }
    if let Some(file) = checksum_files(path).into_iter().find(|file| file.exists()) {
        return Err(Obstacle::Checksum(file));
    }
    if path.file_name() == Some(OsStr::new("fips.so")) {
        return Err(Obstacle::FipsModule);
    }
    if running.has(read) {
        return Err(Obstacle::Running);
    }
    Ok(())
}

/// Looks at the loader of the system where the file will run.
///
/// # Errors
/// It is too old, or none was found.
pub fn check_loader(loaders: &Loaders, image: &Image, root: &Path) -> Result<(), Obstacle> {
    match loaders.of(image, root) {
        Loader::New => Ok(()),
        Loader::Old(path) => Err(Obstacle::OldLoader(path)),
        Loader::Unknown(path) => Err(Obstacle::UnknownLoader(path)),
    }
}

/// Where the checksum of a file may be: of fipscheck and libkcapi (`.NAME.hmac`, `NAME.hmac`,
/// `fipscheck/NAME.hmac`), and of NSS (`libNAME.chk`).
fn checksum_files(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name() else { return Vec::new() };
    let joined = |before: &str, after: &str| {
        let mut text = OsString::from(before);
        text.push(name);
        text.push(after);
        text
    };
    let mut out = vec![
        path.with_file_name(joined(".", ".hmac")),
        path.with_file_name(joined("", ".hmac")),
        path.with_file_name("fipscheck").join(joined("", ".hmac")),
        path.with_file_name("hmaccalc").join(joined("", ".hmac")),
        path.with_file_name(joined(".", ".checksum")),
    ];
    if let Some(stem) = name.as_bytes().strip_suffix(b".so") {
        out.push(path.with_file_name(OsStr::from_bytes(stem)).with_extension("chk"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::read::read;
    use super::*;

    #[test]
    fn a_checksum_beside_a_file_and_a_process_that_runs_it_are_obstacles() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (checksum, of) in
            [(".libz.so.hmac", "libz.so"), ("libfree.chk", "libfree.so"), ("prog.hmac", "prog")]
        {
            std::fs::write(at(of), "x").unwrap();
            let file = read(&at(of)).unwrap();
            assert_eq!(check_file(&at(of), &file, &Running::default()), Ok(()));
            std::fs::write(at(checksum), "x").unwrap();
            let found = check_file(&at(of), &file, &Running::default());
            assert_eq!(found, Err(Obstacle::Checksum(at(checksum))));
        }
        let me = std::env::current_exe().unwrap();
        let found = check_file(&me, &read(&me).unwrap(), &Running::now());
        assert_eq!(found, Err(Obstacle::Running));
    }
}
