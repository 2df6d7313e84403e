//! Writes results to files that options name, and replaces only earlier results. Packs have a rule
//! of their own (`pack::store`).

use super::contents;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;

/// How an earlier result is known.
#[derive(Clone, Copy, Debug)]
pub enum Known {
    /// It begins with this; no more of it is read.
    ByBegin(&'static [u8]),
    /// By its content, which is not larger than [`contents::MOST_BYTES`].
    ByContent(fn(&[u8]) -> bool),
}

/// Opens a file for a result, and empties it, where nothing is, an empty file, no regular file (a
/// pipe, `/dev/null`), or, as is `known`, an earlier result of the same kind; with `force`, any file.
///
/// # Errors
/// The file is another one, and stays as it is; or what the kernel said.
pub fn open(path: &Path, known: Known, force: bool) -> io::Result<File> {
    // A pipe can't be opened for both.
    let reads = !force && may_be_regular(path);
    let file =
        OpenOptions::new().read(reads).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.is_file() {
        if !force {
            stays_unless_own(&file, known)?;
        }
        file.set_len(0)?;
        (&file).rewind()?;
    }
    Ok(file)
}

/// Writes a result as a whole, to a file that [`open`] opens.
///
/// # Errors
/// Those of [`open`].
pub fn replace(path: &Path, bytes: &[u8], known: Known, force: bool) -> io::Result<()> {
    open(path, known, force)?.write_all(bytes)
}

/// Whether [`open`] would keep what is there: for results that take a while.
///
/// # Errors
/// The same; what keeps it from being read is left to [`open`].
pub fn check(path: &Path, known: Known, force: bool) -> io::Result<()> {
    if force || !may_be_regular(path) {
        return Ok(());
    }
    File::open(path).map_or(Ok(()), |file| stays_unless_own(&file, known))
}

/// A pipe must not be opened to look at it.
fn may_be_regular(path: &Path) -> bool {
    path.metadata().map_or(true, |meta| meta.is_file())
}

fn stays_unless_own(file: &File, known: Known) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let is_own = match known {
        Known::ByBegin(begin) => {
            let found = contents::rest_of(file.take(begin.len() as u64))?;
            found == begin
        }
        Known::ByContent(is_own) => match contents::rest_of(file) {
            Ok(bytes) => is_own(&bytes),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => false,
            Err(error) => return Err(error),
        },
    };
    if is_own {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::AlreadyExists,
        "it is no earlier result of this kind, so it stays as it is; name another file, or \
         give --force",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_missing_empty_no_regular_file_or_of_the_same_kind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let known = Known::ByContent(|bytes| bytes.starts_with(b"<svg"));
        for (name, content) in [("empty", ""), ("own", "<svg old picture>"), ("app", "print()")] {
            std::fs::write(at(name), content).unwrap();
        }
        File::create(at("huge")).unwrap().set_len(contents::MOST_BYTES + 1).unwrap();
        symlink("app", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        for (name, replaced) in [
            ("missing", true),
            ("dangling", true),
            ("empty", true),
            ("own", true),
            ("app", false),
            ("link", false),
            ("huge", false),
        ] {
            let before = contents::bytes(at(name)).ok();
            assert_eq!(check(&at(name), known, false).is_ok(), replaced, "{name}");
            assert_eq!(replace(&at(name), b"<svg new>", known, false).is_ok(), replaced, "{name}");
            let after = contents::bytes(at(name)).ok();
            assert_eq!(after.as_deref() == Some(b"<svg new>"), replaced, "{name}");
            assert!(replaced || after == before, "{name}");
            assert!(check(&at(name), known, true).is_ok(), "{name}");
            replace(&at(name), b"forced", known, true).unwrap();
            assert_eq!(contents::bytes(at(name)).unwrap(), b"forced", "{name}");
        }
        replace(Path::new("/dev/null"), b"x", known, false).unwrap();
        assert!(check(Path::new("/dev/zero"), known, false).is_ok());
    }

    #[test]
    fn of_a_result_that_is_known_by_its_begin_no_more_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let known = Known::ByBegin(b"a,b\n");
        std::fs::write(&path, "a,b\n1,2\n").unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(contents::MOST_BYTES + 1)
            .unwrap();
        check(&path, known, false).unwrap();
        replace(&path, b"a,b\n", known, false).unwrap();
        assert_eq!(contents::bytes(&path).unwrap(), b"a,b\n");
        for other in ["a,b", "b,a\n1,2\n"] {
            std::fs::write(&path, other).unwrap();
            assert!(check(&path, known, false).is_err(), "{other}");
            assert!(open(&path, known, false).is_err(), "{other}");
            assert_eq!(contents::bytes(&path).unwrap(), other.as_bytes());
        }
    }
}
