//! The files that a command line means: those it names and, below the directories it names, all
//! regular files of the same file system.

use std::fs::{DirEntry, FileType};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::Error;

/// Files found, and what was passed over.
#[derive(Default, Debug)]
pub struct Found {
    /// Regular files, in the order named and by name below directories; block
    /// devices too, where named themselves.
    pub files: Vec<PathBuf>,
    /// Symbolic links below directories; those named themselves are followed.
    pub links: u64,
    /// Pipes, sockets and devices: they have no cached pages of their own.
    pub special: u64,
    /// Directories on other file systems, below the directories named.
    pub mounts: u64,
    /// What could not be looked at.
    pub errors: Vec<Error>,
}

/// Finds the files that `paths` mean.
pub fn walk(paths: &[PathBuf]) -> Found {
    walk_while(paths, || true)
}

/// The same, as long as `go_on` says so, which is asked before each directory.
pub fn walk_while(paths: &[PathBuf], mut go_on: impl FnMut() -> bool) -> Found {
    let mut found = Found::default();
    for path in paths {
        match path.metadata() {
            Ok(meta) if meta.is_dir() => found.descend(path.clone(), meta.dev(), &mut go_on),
            Ok(meta) if meta.is_file() || meta.file_type().is_block_device() => {
                found.files.push(path.clone());
            }
            Ok(_) => found.special += 1,
            Err(e) => found.errors.push(Error::io("look at", path)(e)),
        }
    }
    found
}

impl Found {
    /// Adds what is below a directory on file system `dev`.
    fn descend(&mut self, directory: PathBuf, dev: u64, go_on: &mut dyn FnMut() -> bool) {
        let mut ahead = vec![(directory, None::<FileType>)];
        while let Some((path, kind)) = ahead.pop() {
            if kind.is_none_or(|kind| kind.is_dir()) && !go_on() {
                return;
            }
            match kind {
                Some(kind) if kind.is_file() => self.files.push(path),
                Some(kind) if kind.is_symlink() => self.links += 1,
                Some(kind) if !kind.is_dir() => self.special += 1,
                Some(_) => match path.symlink_metadata() {
                    Ok(meta) if meta.dev() != dev => self.mounts += 1,
                    Ok(_) => self.list(&path, &mut ahead),
                    Err(e) => self.note(Error::io("look at", &path)(e)),
                },
                None => self.list(&path, &mut ahead),
            }
        }
    }

    /// What is gone since it was listed is no loss.
    fn note(&mut self, error: Error) {
        if !error.is_gone() {
            self.errors.push(error);
        }
    }

    /// Puts the entries of one directory on the stack, the first name on top.
    fn list(&mut self, path: &Path, ahead: &mut Vec<(PathBuf, Option<FileType>)>) {
        let entries = match path.read_dir() {
            Ok(entries) => entries,
            Err(e) => return self.note(Error::io("list", path)(e)),
        };
        let first = ahead.len();
        for entry in entries {
            let kind = |entry: DirEntry| Ok((entry.path(), Some(entry.file_type()?)));
            match entry.and_then(kind) {
                Ok(child) => ahead.push(child),
                Err(e) => self.note(Error::io("list", path)(e)),
            }
        }
        ahead[first..].sort_unstable_by(|a, b| b.0.cmp(&a.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_where_named_and_special_files_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("tree/b/c")).unwrap();
        for name in ["tree/b/c/2", "tree/b/1", "tree/a", "tree/z", "outside"] {
            std::fs::write(at(name), "").unwrap();
        }
        symlink(at("outside"), at("tree/link")).unwrap();
        symlink(at("tree"), at("tree/b/loop")).unwrap();
        symlink(at("tree"), at("way")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("tree/fifo"), rustix::fs::Mode::RUSR).unwrap();

        let found = walk(&[at("outside"), at("way"), at("missing"), "/dev/null".into()]);
        let names = ["outside", "way/a", "way/b/1", "way/b/c/2", "way/z"];
        assert_eq!(found.files, names.map(at));
        assert_eq!((found.links, found.special, found.mounts), (2, 2, 0));
        assert_eq!(found.errors.len(), 1);
        let mut asked = 0;
        let found = walk_while(&[at("tree")], || {
            asked += 1;
            asked < 3
        });
        assert_eq!(found.files, ["tree/a", "tree/b/1"].map(at), "none below the third directory");
    }
}
