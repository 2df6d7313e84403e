//! Writes results to files that options name, and replaces only earlier results. Packs have a rule
//! of their own (`pack::store`).

use super::contents;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, Write};
use std::path::Path;

/// Writes a result where nothing is, an empty file, no regular file (a pipe, `/dev/null`), or, as
/// `is_own` says of its content, an earlier result of the same kind; with `force`, to any file.
///
/// # Errors
/// The file is another one, and stays as it is; or what the kernel said.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    is_own: impl Fn(&[u8]) -> bool,
    force: bool,
) -> io::Result<()> {
    let mut file = if force || !may_be_regular(path) {
        File::create(path)?
    } else {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        stays_unless_own(&file, is_own)?;
        file.set_len(0)?;
        file.rewind()?;
        file
    };
    file.write_all(bytes)
}

/// Whether [`replace`] would keep what is there: for results that take a while.
///
/// # Errors
/// The same; what keeps it from being read is left to [`replace`].
pub fn check(path: &Path, is_own: impl Fn(&[u8]) -> bool, force: bool) -> io::Result<()> {
    if force || !may_be_regular(path) {
        return Ok(());
    }
    File::open(path).map_or(Ok(()), |file| stays_unless_own(&file, is_own))
}

/// A pipe must not be opened to look at it.
fn may_be_regular(path: &Path) -> bool {
    path.metadata().map_or(true, |meta| meta.is_file())
}

fn stays_unless_own(file: &File, is_own: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    match contents::rest_of(file) {
        Ok(bytes) if is_own(&bytes) => Ok(()),
        Err(error) if error.kind() != ErrorKind::FileTooLarge => Err(error),
        _ => Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "it is no earlier result of this kind, so it stays as it is; name another file, or \
             give --force",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_what_is_missing_empty_no_regular_file_or_of_the_same_kind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let is_own = |bytes: &[u8]| bytes.starts_with(b"<svg");
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
            assert_eq!(check(&at(name), is_own, false).is_ok(), replaced, "{name}");
            assert_eq!(replace(&at(name), b"<svg new>", is_own, false).is_ok(), replaced, "{name}");
            let after = contents::bytes(at(name)).ok();
            assert_eq!(after.as_deref() == Some(b"<svg new>"), replaced, "{name}");
            assert!(replaced || after == before, "{name}");
            assert!(check(&at(name), is_own, true).is_ok(), "{name}");
            replace(&at(name), b"forced", is_own, true).unwrap();
            assert_eq!(contents::bytes(at(name)).unwrap(), b"forced", "{name}");
        }
        replace(Path::new("/dev/null"), b"x", is_own, false).unwrap();
        assert!(check(Path::new("/dev/zero"), is_own, false).is_ok());
    }
}
