//! Which files belong to packages: by the lists of dpkg and pacman, and by what rpm(8) says.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Who makes a diversion that no package makes.
pub(super) const LOCAL: &[u8] = b":";

/// The files of packages are not known.
#[derive(thiserror::Error, Debug)]
#[error("rpm is needed to know the files of packages ({0}); install it or give --packaged")]
pub struct NoRpm(String);

/// The files of the packages of a system.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    files: HashSet<Vec<u8>>,
    diverted: HashSet<Vec<u8>>,
}

/// A path below the root, as packages name it. On systems whose /bin and /lib are links into
/// /usr, packages use either name.
pub(super) fn key(path: &[u8]) -> &[u8] {
    let path = path.strip_prefix(b"/usr").unwrap_or(path);
    path.strip_suffix(b"/").unwrap_or(path)
}

impl Owned {
    /// Of the system whose root is `root`.
    ///
    /// # Errors
    /// It has a database of rpm, and rpm(8) does not read it.
    pub fn of(root: &Path) -> Result<Self, NoRpm> {
        Self::by(root, "rpm")
    }

    fn by(root: &Path, rpm: &str) -> Result<Self, NoRpm> {
        let mut out = Self::default();
        for list in listed(&root.join("var/lib/dpkg/info"), "list") {
            lines(&contents(&list)).for_each(|line| out.add(line));
        }
        for package in listed(&root.join("var/lib/pacman/local"), "") {
            let text = contents(&package.join("files"));
            let files = lines(&text).filter(|line| !line.starts_with(b"%"));
            files.for_each(|line| out.add(&[b"/", line].concat()));
        }
        let has_rpm = ["var/lib/rpm", "usr/lib/sysimage/rpm"].iter().any(|db| {
            listed(&root.join(db), "").iter().any(|file| {
                file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"rpmdb"))
                    || file.ends_with("Packages")
            })
        });
        if has_rpm {
            lines(&of_rpm(root, rpm)?).for_each(|line| out.add(line));
        }
        // What a package diverts is a file of that package.
        let text = contents(&root.join("var/lib/dpkg/diversions"));
        let local = diversions(&text).filter(|(_, _, by)| *by == LOCAL);
        out.diverted.extend(local.map(|(from, _, _)| key(from).to_vec()));
        Ok(out)
    }

    fn add(&mut self, path: &[u8]) {
        self.files.insert(key(path).to_vec());
    }

    /// Whether a file is one of a package, by its path below the root; a local diversion is
    /// none.
    pub fn has(&self, path: &Path) -> bool {
        let key = key(path.as_os_str().as_bytes());
        self.files.contains(key) && !self.diverted.contains(key)
    }
}

/// All files that rpm knows.
fn of_rpm(root: &Path, rpm: &str) -> Result<Vec<u8>, NoRpm> {
    let command =
        Command::new(rpm).arg("--root").arg(root).arg("-qal").stderr(Stdio::null()).output();
    let output = command.map_err(|error| NoRpm(error.to_string()))?;
    if output.status.success() { Ok(output.stdout) } else { Err(NoRpm(output.status.to_string())) }
}

pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// The diversions in dpkg's list, three lines for each: the file, where that of the package is,
/// and whose it is.
pub(super) fn diversions(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    let mut lines = lines(text);
    std::iter::from_fn(move || Some((lines.next()?, lines.next()?, lines.next()?)))
}

/// The entries of a directory with this extension; with all where there is none.
pub(super) fn listed(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let has =
        |path: &PathBuf| extension.is_empty() || path.extension() == Some(OsStr::new(extension));
    paths.filter(has).collect()
}

/// All of a list; what can't be read is empty.
pub(super) fn contents(path: &Path) -> Vec<u8> {
    headstart::host::contents::bytes(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_dpkg_and_pacman_are_known_by_both_of_their_names() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("var/lib/dpkg/info/libz.list", "/.\n/lib\n/lib/libz.so.1\n/usr/bin/z\n/usr/bin/d\n");
        put(
            "var/lib/dpkg/diversions",
            "/usr/bin/d\n/usr/bin/.d.packaged\n:\n/usr/bin/z\n/usr/bin/z.old\nother\n",
        );
        put("var/lib/pacman/local/x-1/files", "%FILES%\nusr/\nusr/lib/libx.so\n\n%BACKUP%\n");
        let owned = Owned::of(root.path()).unwrap();
        for (path, is) in [
            ("/lib/libz.so.1", true),
            ("/usr/lib/libz.so.1", true),
            ("/usr/bin/z", true),
            ("/usr/bin/d", false),
            ("/usr/lib/libx.so", true),
            ("/usr/local/bin/z", false),
        ] {
            assert_eq!(owned.has(Path::new(path)), is, "{path}");
        }
    }

    #[test]
    fn without_an_rpm_that_reads_its_database_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        assert!(Owned::by(root.path(), "false").is_ok());
        let database = root.path().join("var/lib/rpm");
        std::fs::create_dir_all(&database).unwrap();
        std::fs::write(database.join("rpmdb.sqlite"), "").unwrap();
        for rpm in ["false", "/nowhere/rpm"] {
            let error = Owned::by(root.path(), rpm).unwrap_err().to_string();
            assert!(error.contains("give --packaged"), "{error}");
        }
        assert!(Owned::by(root.path(), "true").is_ok());
    }
}
