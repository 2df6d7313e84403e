//! The database of dpkg below the root of a system: which package has a file and under which
//! name, what an upgrade itself needs, and diversions. dpkg-divert(1) makes and removes these.

use super::owned::{LOCAL, contents, diversions, key, lines, listed};
use rustix::fs::FlockOperation;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where it is below a root.
const DATABASE: &str = "var/lib/dpkg";
/// Packages that run during an upgrade, beside the essential ones.
const RUN: [&[u8]; 3] = [b"dpkg", b"apt", b"headstart"];
/// What the hook after an upgrade runs.
const HOOK: &str = "elf repack --renew";
/// What the names of packaged files end with.
const ORIGINAL: &[u8] = b".headstart-orig";

/// The name that the packaged file of a diverted one has. It begins with a dot: ldconfig(8) looks
/// at what begins with `lib`, and would lead a library's soname to it.
pub fn original(name: &Path) -> PathBuf {
    let mut file = OsString::from(".");
    file.push(name.file_name().unwrap_or_default());
    file.push(OsStr::from_bytes(ORIGINAL));
    name.with_file_name(file)
}

/// Whether a name is one of [`original`].
pub fn is_original(name: &Path) -> bool {
    let file = name.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    file.starts_with(b".") && file.ends_with(ORIGINAL)
}

/// The database.
#[derive(Debug)]
pub struct Dpkg {
    root: PathBuf,
    packages: OnceLock<Packages>,
}

#[derive(Debug, Default)]
struct Packages {
    names: Vec<Vec<u8>>,
    /// Files without `/usr`: how their package names them, and its index.
    files: HashMap<Vec<u8>, (Vec<u8>, usize)>,
    /// Packages that must work during an upgrade.
    needed: HashSet<Vec<u8>>,
}

impl Dpkg {
    /// That below a root; it need not be there.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), packages: OnceLock::new() }
    }

    /// Whether there is one.
    pub fn is_there(&self) -> bool {
        self.root.join(DATABASE).join("status").exists()
    }

    fn packages(&self) -> &Packages {
        self.packages.get_or_init(|| {
            let dir = self.root.join(DATABASE);
            let needed = needed(&contents(&dir.join("status")));
            let mut out = Packages { needed, ..Packages::default() };
            for list in listed(&dir.join("info"), "list") {
                let stem = list.file_stem().map_or(&b""[..], OsStrExt::as_bytes);
                let package = stem.split(|byte| *byte == b':').next().unwrap_or(stem);
                out.names.push(package.to_vec());
                let index = out.names.len() - 1;
                for line in lines(&contents(&list)) {
                    out.files.insert(key(line).to_vec(), (line.to_vec(), index));
                }
            }
            out
        })
    }

    fn file(&self, path: &Path) -> Option<(&[u8], &[u8])> {
        let packages = self.packages();
        let (name, index) = packages.files.get(key(path.as_os_str().as_bytes()))?;
        Some((name, packages.names.get(*index)?))
    }

    /// The package that has a file, by its path below the root.
    pub fn package(&self, path: &Path) -> Option<String> {
        self.file(path).map(|(_, package)| String::from_utf8_lossy(package).into_owned())
    }

    /// Whether dpkg, apt or maintainer scripts may need the file during an upgrade: between its
    /// unpacking and the hook a diverted file is the old version.
    pub fn is_needed(&self, path: &Path) -> bool {
        self.file(path).is_some_and(|(_, package)| self.packages().needed.contains(package))
    }

    /// The name by which dpkg knows a file: that in its list or of its diversion.
    pub fn name(&self, path: &Path) -> PathBuf {
        self.diverted(path).or_else(|| Some(path_of(self.file(path)?.0))).unwrap_or(path.into())
    }

    /// The names for which there is a diversion to [`original`].
    pub fn all_diverted(&self) -> Vec<PathBuf> {
        let text = contents(&self.root.join(DATABASE).join("diversions"));
        let all = diversions(&text).filter(|(_, _, by)| *by == LOCAL);
        let all = all.map(|(from, to, _)| (path_of(from), path_of(to)));
        all.filter(|(from, to)| original(from) == *to).map(|(from, _)| from).collect()
    }

    /// The one of these that is another name of this file.
    pub fn diverted(&self, path: &Path) -> Option<PathBuf> {
        let is_it =
            |name: &PathBuf| key(name.as_os_str().as_bytes()) == key(path.as_os_str().as_bytes());
        self.all_diverted().into_iter().find(is_it)
    }

    /// Whether upgrades run the hook of headstart (`dist/dpkg/headstart`).
    pub fn has_hook(&self) -> bool {
        let dir = self.root.join("etc/dpkg");
        let mut files = listed(&dir.join("dpkg.cfg.d"), "");
        files.push(dir.join("dpkg.cfg"));
        files.iter().any(|file| {
            let text = contents(file);
            let is_hook = |line: &[u8]| {
                line.starts_with(b"post-invoke") && String::from_utf8_lossy(line).contains(HOOK)
            };
            lines(&text).any(is_hook)
        })
    }

    /// Keeps dpkg from running until the file is dropped.
    ///
    /// # Errors
    /// It runs, or this user may not.
    pub fn lock(&self) -> io::Result<File> {
        let path = self.root.join(DATABASE).join("lock");
        let named = |error: io::Error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("{path} can't be locked: {error}"))
        };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(named)?;
        // That of fcntl(2), as dpkg has it.
        let locked = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|error| match error {
            rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS => {
                io::Error::other("dpkg is running; wait until it ends")
            }
            error => named(error.into()),
        })?;
        Ok(file)
    }

    /// Lets upgrades write a file, by dpkg's name of it, to [`original`]; nothing is renamed.
    ///
    /// # Errors
    /// dpkg-divert is missing, or says why it can't.
    pub fn divert(&self, name: &Path) -> io::Result<()> {
        self.run(name, "--add")?;
        if self.diverted(name).is_none() {
            return Err(io::Error::other("dpkg-divert did not add the diversion"));
        }
        Ok(())
    }

    /// Takes that back.
    ///
    /// # Errors
    /// The same.
    pub fn release(&self, name: &Path) -> io::Result<()> {
        self.run(name, "--remove")
    }

    fn run(&self, name: &Path, action: &str) -> io::Result<()> {
        let mut command = Command::new("dpkg-divert");
        if self.root != Path::new("/") {
            command.arg("--root").arg(&self.root);
        }
        command.args(["--quiet", "--local", "--no-rename", "--divert"]).arg(original(name));
        // One at a time: its input holds the lock, as long as it runs, whatever ends this process.
        let alone = File::open(self.root.join(DATABASE))?;
        rustix::fs::flock(&alone, FlockOperation::LockExclusive)?;
        let output = command.arg(action).arg(name).stdin(Stdio::from(alone)).output();
        let output = output.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = "dpkg-divert is missing; install dpkg, or give --packaged";
                io::Error::new(error.kind(), what)
            }
            _ => error,
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().replace('\n', "; ");
        Err(io::Error::other(if said.is_empty() { output.status.to_string() } else { said }))
    }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Of the status of packages: the essential ones, what runs an upgrade, and all that these depend
/// on, with each alternative and each package that provides it.
fn needed(status: &[u8]) -> HashSet<Vec<u8>> {
    let mut depends = HashMap::<&[u8], Vec<&[u8]>>::new();
    let mut open: Vec<&[u8]> = RUN.to_vec();
    let mut package: &[u8] = b"";
    // An empty line is between packages, and each begins with its name.
    for line in lines(status) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(field), Some(value)) = (parts.next(), parts.next()) else { continue };
        let value = value.trim_ascii();
        match field {
            b"Package" => package = value,
            b"Essential" if value == b"yes" => open.push(package),
            b"Depends" | b"Pre-Depends" => depends.entry(package).or_default().extend(names(value)),
            b"Provides" => {
                for provided in names(value) {
                    depends.entry(provided).or_default().push(package);
                }
            }
            _ => {}
        }
    }
    let mut out = HashSet::new();
    while let Some(package) = open.pop() {
        if out.insert(package.to_vec()) {
            open.extend(depends.get(package).into_iter().flatten());
        }
    }
    out
}

/// The packages of a dependency, without versions and architectures.
fn names(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = value.split(|byte| matches!(byte, b',' | b'|'));
    parts.filter_map(|part| part.trim_ascii().split(|byte| b" (:[".contains(byte)).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: coreutils\nEssential: yes\nPre-Depends: libc6 (>= 2.36), \
        libacl1 (>= 2.2)\n\nPackage: libc6\nDepends: libgcc-s1\n\nPackage: dpkg\n\
        Depends: tar:any | busybox\nDescription: x\n Depends: fortune\n\n\
        Package: bsdtar\nProvides: tar (= 3)\nDepends: libarchive\n\nPackage: vlc\nDepends: libc6\n";

    #[test]
    fn what_an_upgrade_needs_has_alternatives_and_what_is_provided() {
        let found = needed(STATUS.as_bytes());
        for package in ["coreutils", "libc6", "libacl1", "libgcc-s1", "bsdtar", "libarchive", "apt"]
        {
            assert!(found.contains(package.as_bytes()), "{package}");
        }
        for package in ["vlc", "fortune", ""] {
            assert!(!found.contains(package.as_bytes()), "{package}");
        }
    }

    #[test]
    fn files_diversions_and_the_hook_are_found_by_both_names_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let dpkg = Dpkg::at(dir.path());
        assert!(!dpkg.is_there() && !dpkg.has_hook());
        put("var/lib/dpkg/status", STATUS);
        put("var/lib/dpkg/info/libc6:amd64.list", "/.\n/lib\n/lib/libc.so.6\n");
        put("var/lib/dpkg/info/vlc.list", "/usr/bin/vlc\n/lib/libv.so\n");
        put(
            "var/lib/dpkg/diversions",
            "/usr/bin/vlc\n/usr/bin/vlc.distrib\n:\n/lib/libv.so\n/lib/.libv.so.headstart-orig\n:\n",
        );
        put("etc/dpkg/dpkg.cfg.d/headstart", "# elf repack --renew\n");
        assert!(dpkg.is_there() && !dpkg.has_hook());
        put("etc/dpkg/dpkg.cfg.d/headstart", "post-invoke=headstart elf repack --renew\n");
        assert!(dpkg.has_hook());
        for (path, package, is_needed, name, diverted) in [
            ("/usr/lib/libc.so.6", Some("libc6"), true, "/lib/libc.so.6", None),
            ("/usr/lib/libv.so", Some("vlc"), false, "/lib/libv.so", Some("/lib/libv.so")),
            ("/usr/bin/vlc", Some("vlc"), false, "/usr/bin/vlc", None),
            ("/usr/bin/x", None, false, "/usr/bin/x", None),
        ] {
            let path = Path::new(path);
            assert_eq!(dpkg.package(path).as_deref(), package);
            assert_eq!(dpkg.is_needed(path), is_needed, "{path:?}");
            assert_eq!(dpkg.name(path), Path::new(name));
            assert_eq!(dpkg.diverted(path).as_deref(), diverted.map(Path::new));
        }
    }

    #[test]
    fn the_name_of_a_packaged_file_is_not_that_of_a_library() {
        let name = original(Path::new("/usr/lib/libz.so.1.2"));
        assert_eq!(name, Path::new("/usr/lib/.libz.so.1.2.headstart-orig"));
        assert!(is_original(&name) && !is_original(Path::new("/usr/lib/libz.so.1.2")));
    }
}
