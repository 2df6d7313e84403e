//! Whether the loader of a system knows `DT_RELR`: glibc from 2.36 on, which defines the version
//! `GLIBC_ABI_DT_RELR`, and musl from 1.2.4 on, which has its version in a string.

use super::read::read;
use crate::image::{Image, Machine, dynamic};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is known of the loader that a file will have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Loader {
    /// It knows `DT_RELR`.
    New,
    /// It does not.
    Old(PathBuf),
    /// There is none, or it is none that is known; where it was looked for.
    Unknown(PathBuf),
}

/// The loaders of a system, each of which is looked at once.
#[derive(Debug, Default)]
pub struct Loaders(RefCell<HashMap<PathBuf, Loader>>);

impl Loaders {
    /// The loader of a file in a system whose root is `root`, always the same.
    pub fn of(&self, image: &Image, root: &Path) -> Loader {
        let Some(path) = path_of(image) else { return Loader::Unknown(PathBuf::new()) };
        let mut known = self.0.borrow_mut();
        known.entry(path).or_insert_with_key(|path| look_at(path, root)).clone()
    }
}

/// The loader that a file names, or that of its machine.
fn path_of(image: &Image) -> Option<PathBuf> {
    let arch = match image.machine {
        Machine::X86_64 => "x86_64",
        Machine::Aarch64 => "aarch64",
        _ => return None,
    };
    let glibc = match image.machine {
        Machine::X86_64 => "/lib64/ld-linux-x86-64.so.2",
        _ => "/lib/ld-linux-aarch64.so.1",
    };
    let musl = format!("/lib/ld-musl-{arch}.so.1");
    let needs_musl =
        image.needed().iter().any(|name| *name == b"libc.so" || name.starts_with(b"libc.musl-"));
    let interpreter = image.interpreter().map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
    Some(match interpreter {
        Some(path) => path.to_owned(),
        None if needs_musl => musl.into(),
        None => glibc.into(),
    })
}

fn look_at(path: &Path, root: &Path) -> Loader {
    let Some(found) = resolve(root, path) else { return Loader::Unknown(path.to_owned()) };
    let is_musl = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl-"));
    let knows = if is_musl {
        read(&found).ok().and_then(|file| is_new_musl(&file.bytes))
    } else {
        // It is in the directory of the loader, wherever links lead to that.
        let libc = found.with_file_name("libc.so.6");
        read(&libc).ok().and_then(|file| Some(is_new_glibc(&Image::parse(&file.bytes).ok()?)))
    };
    match knows {
        Some(true) => Loader::New,
        Some(false) => Loader::Old(path.to_owned()),
        None => Loader::Unknown(path.to_owned()),
    }
}

/// Where a path of another root leads to.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let found =
        rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}

/// Whether a libc.so.6 defines the version that says so.
fn is_new_glibc(libc: &Image) -> bool {
    let name = b"GLIBC_ABI_DT_RELR\0";
    let strings = libc.tag(dynamic::STRTAB).zip(libc.tag(dynamic::STRSZ));
    let strings = strings.and_then(|(address, size)| libc.at(address, size)).unwrap_or(&[]);
    libc.tag(dynamic::VERDEF).is_some() && strings.windows(name.len()).any(|part| part == name)
}

/// Whether a musl is 1.2.4 or later; nothing where it does not tell.
fn is_new_musl(bytes: &[u8]) -> Option<bool> {
    bytes.split(|byte| *byte == 0).find_map(|text| {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= 12)?;
        let mut numbers = text.split('.').map(|part| part.parse::<u32>().ok());
        let version = [numbers.next()??, numbers.next()??, numbers.next()??];
        (numbers.next().is_none() && version[0] == 1).then(|| version >= [1, 2, 4])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_musl_is_found_among_its_strings() {
        for (bytes, expected) in [
            (&b"a\x001.2.4\0b"[..], Some(true)),
            (b"a\x001.2.3\0b", Some(false)),
            (b"\x001.10.0\0", Some(true)),
            (b"\x001.2\0", None),
            (b"", None),
        ] {
            assert_eq!(is_new_musl(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_system_without_a_loader_tells_nothing() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = Image::parse(&bytes).unwrap();
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(Loaders::default().of(&image, empty.path()), Loader::Unknown(_)));
    }
}
