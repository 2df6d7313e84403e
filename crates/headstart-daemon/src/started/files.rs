//! Looks up what the words of a process name, from its directory. Where a file system may not answer
//! ([`MountTable::path_answers`]), and in containers, a word counts as it stands.

use headstart::host::mounts::MountTable;
use headstart::pack::command_words::Names;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links on one path (path_resolution(7)), and bytes of it.
const MOST_LINKS: usize = 40;
const MOST_BYTES: usize = 4096;

/// The files of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files<'a> {
    /// The executable, unless it is the interpreter of the script that the command begins with.
    pub(super) program: Option<&'a Path>,
    /// The directory that relative names begin at.
    pub(super) cwd: &'a Path,
    /// Our mounts; none where the process has others.
    pub(super) mounts: Option<&'a MountTable>,
}

impl Names for Files<'_> {
    fn program(&self, word: &OsStr) -> Option<PathBuf> {
        let is_script = || self.file(word);
        self.program.map(Path::to_owned).or_else(is_script)
    }

    fn file(&self, word: &OsStr) -> Option<PathBuf> {
        let path = self.cwd.join(word);
        match self.mounts {
            Some(mounts) => real_path(&path, mounts).or(Some(path)),
            None => Some(path),
        }
    }

    fn is_file(&self, word: &OsStr) -> bool {
        self.mounts.is_some_and(|mounts| real_path(&self.cwd.join(word), mounts).is_some())
    }
}

/// An absolute path without symbolic links, if something is there. Each part of it is looked up only
/// where that needs no server.
pub fn real_path(path: &Path, mounts: &MountTable) -> Option<PathBuf> {
    if path.as_os_str().len() > MOST_BYTES {
        return None;
    }
    let mut rest = parts(path);
    let mut real = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        if !mounts.path_answers(&next) {
            return None;
        }
        match rustix::fs::readlinkat(CWD, &next, Vec::new()) {
            Ok(target) => {
                links += 1;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if links > MOST_LINKS || rest.len() > MOST_BYTES {
                    return None;
                }
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(parts(&target));
            }
            Err(Errno::INVAL) => real = next,
            Err(_) => return None,
        }
    }
    Some(real)
}

/// The names in a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::mounts::parse;
    use std::os::unix::fs::symlink;

    fn table(mounts: &str) -> MountTable {
        MountTable::new(parse(mounts.as_bytes()).unwrap(), None)
    }

    #[test]
    fn a_path_is_what_realpath_says_where_no_server_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/file"), "").unwrap();
        for (target, link) in [("a/b/../file", "to"), ("/proc/../", "abs"), ("loop", "loop")] {
            symlink(target, dir.join(link)).unwrap();
        }
        let local = table("1 0 8:1 / / rw - ext4 /dev/sda rw\n");
        for name in ["a/file", "a/./b/..//file", "to", "abs", "loop", "none", "a/file/x", "../.."] {
            let path = dir.join(name);
            // Something below a file is an error for both.
            assert_eq!(real_path(&path, &local), path.canonicalize().ok(), "{name}");
        }
        assert_eq!(real_path(&dir.join("x".repeat(MOST_BYTES)), &local), None);
        let remote = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / {}/a rw - nfs4 server:/ rw\n",
            dir.display()
        );
        let remote = table(&remote);
        for name in ["a", "a/file", "to"] {
            assert_eq!(real_path(&dir.join(name), &remote), None, "{name}");
        }
        assert_eq!(real_path(&dir.join("a/.."), &local), Some(dir));
    }

    #[test]
    fn a_word_counts_from_the_directory_of_the_process_and_in_a_container_as_it_stands() {
        let files = Files { program: None, cwd: Path::new("/srv"), mounts: None };
        assert_eq!(files.file("a/../b".as_ref()), Some("/srv/a/../b".into()));
        assert!(!files.is_file("/proc".as_ref()));
        let local = table("1 0 8:1 / / rw - ext4 /dev/sda rw\n");
        let files = Files { cwd: Path::new("/proc/self"), mounts: Some(&local), ..files };
        assert!(files.is_file("status".as_ref()) && !files.is_file("none".as_ref()));
        assert_eq!(files.program("/proc/none".as_ref()), Some("/proc/none".into()));
    }
}
