//! Opens the files in which faults were, and reads their sections. A path may lead to another file by now, or
//! elsewhere for the recorded process: what is read is only the very file that was mapped.

use crate::recording::{Mapping, Object, Recording};
use crate::sections::Sections;
use crate::tables::SectionsOf;
use headstart::host::id::{Dev, InodeId};
use headstart_elf::files::sections;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where the paths of a process begin, kept open: of one that ended, the number may be another's.
///
/// # Errors
/// There is no such directory, or this user may not.
pub fn root(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

/// The sections of all ELF files with faults, by paths from `root`, and how many files with code have
/// none: they can't be read, or another file is there now. None is opened on a file system that is
/// `silent`: that would wait for its server.
pub fn sections_of(
    recording: &Recording,
    root: impl AsFd,
    silent: &HashSet<Dev>,
) -> (SectionsOf, u64) {
    let is_file = |mapping: &&Mapping| mapping.object == Object::File;
    let files = recording.mappings.iter().filter(is_file);
    let code: HashSet<_> =
        files.filter(|mapping| mapping.is_executable()).map(Mapping::key).collect();
    let places = recording.faults.iter().flat_map(|fault| [fault.mapping, fault.behind]);
    let with_faults: HashSet<_> = places
        .filter_map(|mapping| recording.mapping(mapping))
        .filter(is_file)
        .map(Mapping::key)
        .collect();
    let (mut found, mut unread) = (SectionsOf::new(), 0);
    for key in with_faults {
        let read = || match silent.contains(&key.1.dev) {
            true => Err(ErrorKind::TimedOut.into()),
            false => read(&root, recording.name(key.0), key.1),
        };
        match read() {
            Ok(sections) => {
                found.insert(key, sections);
            }
            Err(_) if code.contains(&key) => unread += 1,
            Err(_) => {}
        }
    }
    (found, unread)
}

/// Opens a file that was mapped, by its path from `root`.
///
/// # Errors
/// It can't be read, or another file is there now.
pub fn open_mapped(root: impl AsFd, path: &[u8], mapped: InodeId) -> io::Result<File> {
    let file = File::from(open(root, path)?);
    if is_same(&file, mapped)? { Ok(file) } else { Err(ErrorKind::NotFound.into()) }
}

fn read(root: impl AsFd, path: &[u8], mapped: InodeId) -> io::Result<Sections> {
    match sections::read(&open_mapped(root, path, mapped)?) {
        Ok(headers) => Ok(Sections::new(&headers)),
        // Code of something else, as of a just-in-time compiler.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            Ok(Sections::default())
        }
        Err(error) => Err(error),
    }
}

/// Opens a file by its path in a root directory, without waiting for a pipe or a device.
fn open(root: impl AsFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(path));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Before Linux 5.6, or in a sandbox. Links may lead outside, to another file.
        Err(Errno::NOSYS | Errno::PERM) => {
            let below = path.strip_prefix("/").unwrap_or(path);
            rustix::fs::openat(&root, below, flags, Mode::empty())
        }
        opened => opened,
    }
}

/// `BTRFS_SUPER_MAGIC` and `OVERLAYFS_SUPER_MAGIC` of `include/uapi/linux/magic.h`: for these, stat(2)
/// has another device than the kernel says of a mapping.
const OTHER_DEVICES: [u32; 2] = [0x9123_683e, 0x794c_7630];

/// Whether an open file is the one that the kernel says was mapped.
fn is_same(file: &File, mapped: InodeId) -> io::Result<bool> {
    let stat = fstat(file)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() || stat.st_ino != mapped.ino {
        return Ok(false);
    }
    let is_same = Dev::from_stat(stat.st_dev) == mapped.dev;
    Ok(is_same || OTHER_DEVICES.contains(&(fstatfs(file)?.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{EXECUTE, End, Fault, READ};
    use std::os::unix::fs::{MetadataExt, symlink};

    fn recording(path: &Path, file: InodeId) -> Recording {
        let fault = Fault {
            time: 0,
            latency: 1,
            end: End::Minor,
            cause: crate::recording::Cause::NotMapped,
            is_huge: false,
            thread: 0,
            ip: 0,
            address: 0x7000,
            mapping: Some(0),
            behind: None,
        };
        let mapping = Mapping {
            object: Object::File,
            name: 0,
            start: 0x7000,
            offset: 0,
            protection: READ | EXECUTE,
            is_shared: false,
            file,
        };
        Recording {
            faults: vec![fault],
            mappings: vec![mapping],
            names: vec![path.as_os_str().as_bytes().to_vec()],
            ..Recording::default()
        }
    }

    fn id(path: &Path) -> InodeId {
        let meta = path.metadata().unwrap();
        InodeId { dev: Dev::from_stat(meta.dev()), ino: meta.ino() }
    }

    #[test]
    fn only_the_file_that_was_mapped_has_sections_and_others_with_code_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let (mapped, all) = (id(&path), root(Path::new("/")).unwrap());
        let found = |path: &Path, root: &OwnedFd| {
            let (sections, unread) = sections_of(&recording(path, mapped), root, &HashSet::new());
            (sections.len(), unread)
        };
        assert_eq!(found(&path, &all), (1, 0));
        let silent = HashSet::from([mapped.dev]);
        let (sections, unread) = sections_of(&recording(&path, mapped), &all, &silent);
        assert_eq!((sections.len(), unread), (0, 1), "its server does not answer");
        // The same path from another root directory, in which an absolute link stays.
        let below = root(dir.path()).unwrap();
        symlink("/program", dir.path().join("link")).unwrap();
        assert_eq!(found(Path::new("/program"), &below), (1, 0));
        assert_eq!(found(Path::new("/link"), &below), (1, 0));
        assert_eq!(found(&path, &below), (0, 1));
        // Another one has taken its place, and a name that is a pipe must not be waited for.
        std::fs::rename(&path, dir.path().join("before")).unwrap();
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        assert_eq!(found(&path, &all), (0, 1));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(CWD, &path, Mode::RUSR).unwrap();
        assert_eq!(found(&path, &all), (0, 1));
    }

    #[test]
    fn files_that_are_no_elf_files_have_no_sections_and_are_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let (sections, unread) = sections_of(
            &recording(&path, id(&path)),
            root(Path::new("/")).unwrap(),
            &HashSet::new(),
        );
        assert!(unread == 0 && sections.values().all(|found| *found == Sections::default()));
    }
}
