//! Finds files of a recording on this machine: by their paths below a root directory, or by their
//! inode numbers.

use crate::output;
use crate::servers;
use anyhow::Context;
use headstart::host::fsid;
use headstart::host::id::{Dev, InodeId};
use headstart::host::identity::identity_of;
use headstart::host::mounts::MountTable;
use headstart::host::names;
use headstart::pack::FileSystem;
use headstart::profile::learn::is_in_memory;
use headstart::profile::resolve::{ResolveOptions, Unnamed, resolve};
use headstart_import::accesses::{Accesses, Name};
use headstart_import::build::Found;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Finds files.
#[derive(Debug)]
pub(super) struct Finder {
    root: OwnedFd,
    below: PathBuf,
    mounts: MountTable,
    /// File systems whose servers do not answer, which would be waited for.
    silent: HashSet<Dev>,
    /// Paths of inodes, or why there is none.
    inodes: HashMap<InodeId, Result<PathBuf, Unnamed>>,
    /// Paths of inodes that the recording tells.
    told: HashMap<InodeId, Vec<u8>>,
    /// What was assumed to find inodes.
    pub(super) assumed: Option<String>,
    file_systems: HashMap<Dev, FileSystem>,
    /// Names that were found.
    pub(super) found: u64,
    /// Names that are not here.
    pub(super) missing: Vec<String>,
    /// Names of other things than regular files.
    pub(super) irregular: u64,
    /// Files that are always in memory.
    pub(super) in_memory: u64,
}

impl Finder {
    /// For the names of these accesses, below a directory.
    pub(super) fn new(root: &Path, accesses: &Accesses) -> anyhow::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shown = || format!("Can't open {}", output::shown(root));
        let opened = rustix::fs::openat(CWD, root, flags, Mode::empty()).with_context(shown)?;
        let mounts = MountTable::read()?;
        let mut servers = HashSet::new();
        for (name, _) in accesses.files() {
            servers.extend(match name {
                Name::Path(path) => mounts.servers_at(&below(root, path)),
                Name::Inode(id) => mounts.servers_of(id.dev),
            });
        }
        let silent = servers::silent(&mounts, servers);
        if !silent.is_empty() {
            output::message("A file server does not answer: its files are taken as missing");
        }
        let mut out = Self {
            root: opened,
            below: root.to_owned(),
            mounts,
            silent,
            inodes: HashMap::new(),
            told: accesses.paths.clone(),
            assumed: None,
            file_systems: HashMap::new(),
            found: 0,
            missing: Vec::new(),
            irregular: 0,
            in_memory: 0,
        };
        let is_wanted = |id: &InodeId| {
            !out.told.contains_key(id) && !out.is_silent(out.mounts.servers_of(id.dev))
        };
        let wanted: Vec<_> = accesses.inodes().into_iter().filter(is_wanted).collect();
        if !wanted.is_empty() {
            out.resolve(root, &wanted)?;
        }
        Ok(out)
    }

    /// Finds paths of inodes. Below another root, the device that most of them are on is that of the
    /// root, unless the root's own is among them: another machine numbers devices otherwise.
    fn resolve(&mut self, root: &Path, wanted: &[InodeId]) -> anyhow::Result<()> {
        let here = rustix::fs::fstat(&self.root).context("Can't examine the root directory")?;
        let here = self
            .mounts
            .inside(&std::path::absolute(root)?)
            .map_or(Dev::from_stat(here.st_dev), |(dev, _)| dev);
        let mut devices: BTreeMap<Dev, usize> = BTreeMap::new();
        for id in wanted {
            *devices.entry(id.dev).or_default() += 1;
        }
        let most = devices.iter().max_by_key(|(_, count)| **count).map(|(dev, _)| *dev);
        let is_other = root != Path::new("/") && !devices.contains_key(&here);
        let renamed = most.filter(|_| is_other);
        if let Some(dev) = renamed {
            let root = output::shown(root);
            self.assumed = Some(format!("device {dev} is taken as that of {root}"));
        }
        let device = |dev: Dev| if Some(dev) == renamed { here } else { dev };
        let ids: Vec<_> = wanted.iter().map(|id| InodeId { dev: device(id.dev), ..*id }).collect();
        let found = resolve(&ids, &ResolveOptions::new(&self.mounts));
        let paths = found.files.into_iter().map(|(id, file)| (id, Ok(file.path)));
        let unnamed = found.unnamed.into_iter().map(|(id, reason)| (id, Err(reason)));
        let mut by_id: HashMap<InodeId, _> = paths.chain(unnamed).collect();
        for (id, wanted) in ids.iter().zip(wanted) {
            if let Some(found) = by_id.remove(id) {
                self.inodes.insert(*wanted, found);
            }
        }
        for problem in found.problems {
            output::message(problem);
        }
        Ok(())
    }

    /// The file of a name.
    pub(super) fn find(&mut self, name: &Name) -> Option<Found> {
        match name {
            Name::Path(path) => self.at(path, &names::name(path)),
            Name::Inode(id) => match (self.told.get(id), self.inodes.get(id)) {
                (Some(path), _) => {
                    let path = path.clone();
                    self.at(&path, &names::name(&path))
                }
                (None, Some(Ok(path))) => {
                    let path = path.clone();
                    self.opened(CWD, &path, ResolveFlags::NO_SYMLINKS, &output::shown(&path))
                }
                (None, found) => {
                    let reason = match found {
                        Some(Err(reason)) => format!(" ({reason})"),
                        _ => String::new(),
                    };
                    self.missing.push(format!("inode {} of {}{reason}", id.ino, id.dev));
                    None
                }
            },
        }
    }

    /// The file at a path below the root; a relative one begins in the current directory.
    fn at(&mut self, path: &[u8], shown: &str) -> Option<Found> {
        let path = Path::new(OsStr::from_bytes(path)).to_owned();
        if path.is_relative() {
            return self.opened(CWD, &path, ResolveFlags::empty(), shown);
        }
        let root = self.root.try_clone().ok()?;
        self.opened(root, &path, ResolveFlags::IN_ROOT, shown)
    }

    fn opened(
        &mut self,
        at: impl std::os::fd::AsFd,
        path: &Path,
        resolve: ResolveFlags,
        shown: &str,
    ) -> Option<Found> {
        if self.is_silent(self.mounts.servers_at(&below(&self.below, path.as_os_str().as_bytes())))
        {
            self.missing.push(shown.to_owned());
            return None;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = rustix::fs::openat2(at, path, flags, Mode::empty(), resolve);
        let found = opened.ok().and_then(|held| {
            let stat = rustix::fs::fstat(&held).ok()?;
            // Without symbolic links, and from our root.
            let link = format!("/proc/self/fd/{}", held.as_raw_fd());
            Some((stat, std::fs::read_link(link).ok()?))
        });
        let Some((stat, path)) = found else {
            self.missing.push(shown.to_owned());
            return None;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            self.irregular += 1;
            return None;
        }
        let file_system = self.file_system(&path)?;
        if is_in_memory(&file_system.kind) {
            self.in_memory += 1;
            return None;
        }
        self.found += 1;
        Some(Found { path, identity: identity_of(&stat), file_system })
    }

    fn is_silent(&self, servers: Vec<Dev>) -> bool {
        servers.iter().any(|dev| self.silent.contains(dev))
    }

    fn file_system(&mut self, path: &Path) -> Option<FileSystem> {
        let mount = self.mounts.at(path)?;
        let describe = || FileSystem {
            uuid: fsid::uuid(mount).ok().flatten().map(|id| id.0).filter(|id| *id != [0; 16]),
            kind: mount.fstype.to_string_lossy().into_owned(),
            source: mount.source.as_bytes().to_vec(),
        };
        Some(self.file_systems.entry(mount.dev).or_insert_with(describe).clone())
    }
}

/// Where a path of a recording is, from our root.
fn below(root: &Path, path: &[u8]) -> PathBuf {
    let path = Path::new(OsStr::from_bytes(path));
    let path = match path.strip_prefix("/") {
        Ok(path) => root.join(path),
        Err(_) => path.to_owned(),
    };
    std::path::absolute(&path).unwrap_or(path)
}
