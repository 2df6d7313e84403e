//! Opens a file to query its pages, without a change of its access time.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::Error;

/// A file with pages in the page cache: regular, or a block device.
#[derive(Debug)]
pub struct Opened {
    /// Open for reading; where allowed, in a way that leaves its access time.
    pub file: File,
    /// Its size in bytes; of a block device, that of the device.
    pub len: u64,
}

/// Opens a regular file or a block device; follows a symbolic link.
///
/// # Errors
///
/// [`Error::NotAFile`] for anything else, which is not opened, since that alone
/// can block (a pipe) or do something (a watchdog).
pub fn open(path: &Path) -> Result<Opened, Error> {
    let has_pages = |meta: &Metadata| meta.is_file() || meta.file_type().is_block_device();
    let meta = path.metadata().map_err(Error::io("look at", path))?;
    if !has_pages(&meta) {
        return Err(Error::NotAFile(path.to_owned()));
    }
    // O_NONBLOCK: it may have become a pipe since.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    let opened = match open(flags | OFlags::NOATIME) {
        // Only the owner may ask to leave the access time alone.
        Err(Errno::PERM) => open(flags),
        other => other,
    };
    let mut file = File::from(opened.map_err(Error::io("open", path))?);
    let meta = file.metadata().map_err(Error::io("look at", path))?;
    if !has_pages(&meta) {
        return Err(Error::NotAFile(path.to_owned()));
    }
    let len = if meta.is_file() {
        meta.len()
    } else {
        file.seek(SeekFrom::End(0)).map_err(Error::io("find the size of", path))?
    };
    Ok(Opened { file, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_opens_through_a_link_and_keeps_its_access_time() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&path, "abc").unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        File::open(&path)
            .unwrap()
            .set_times(std::fs::FileTimes::new().set_accessed(long_ago))
            .unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let opened = open(&link).unwrap();
        assert_eq!(opened.len, 3);
        super::super::residency::resident_ranges(&opened.file, opened.len).unwrap();
        assert_eq!(path.metadata().unwrap().atime(), 1);
    }

    #[test]
    fn directories_pipes_and_sockets_are_refused_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [dir.path(), &fifo, &socket, Path::new("/dev/null")] {
            assert!(matches!(open(path), Err(Error::NotAFile(_))), "{path:?}");
        }
    }

    #[test]
    fn an_error_names_the_path() {
        let error = open(Path::new("/nowhere/at all")).unwrap_err();
        assert_eq!(error.to_string(), "Can't look at /nowhere/at all");
    }
}
