//! The driver of the checks: reads what they need.

use crate::host::contents;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use headstart_sys::cachestat::cachestat;
use headstart_sys::handle::{name_to_handle, open_by_handle};
use rustix::fs::{Access, AtFlags, CWD, OFlags};
use serde::Serialize;

use super::packs::Directory;
use super::storage::{Device, FileSystem, May, devices, file_systems};
use crate::host::mounts::MountTable;

use super::check::Check;
use super::{kernel, memory, packs, rights, storage, tracing};
use crate::cache::residency::page_size;
use crate::host;
use crate::host::fsid::{self, BlockDevice};
use crate::host::id::Dev;
use crate::host::user::User;
use crate::launch::learned_packs::{LearnedPack, learned_packs};
use crate::pack::store;
use crate::replay::models::Models;
use crate::trace::instance::Instance;
use crate::trace::tracefs::{TraceError, Tracefs};

/// All that was found.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Examination {
    /// What was looked at, in the order in which to read it.
    pub checks: Vec<Check>,
    /// File systems in use.
    pub file_systems: Vec<FileSystem>,
    /// Their block devices.
    pub devices: Vec<Device>,
    /// Packs that were learned, and what they gain.
    pub packs: Vec<LearnedPack>,
}

/// Looks at everything.
pub fn examine() -> Examination {
    let uid = rustix::process::geteuid();
    let capabilities = rights::effective(&text("/proc/self/status").unwrap_or_default());
    let may_measure =
        [rights::SYS_ADMIN, rights::PERFMON].iter().any(|&c| rights::has(capabilities, c));
    let uname = rustix::system::uname();

    let mut checks = vec![
        kernel::release(&uname.release().to_string_lossy(), &uname.machine().to_string_lossy()),
        kernel::page_size(page_size()),
    ];
    let may_mount = rights::has(capabilities, rights::SYS_ADMIN)
        && rights::is_first_user_namespace(namespace("user"));
    checks.extend(tracing_checks(may_mount));
    checks.extend(rights::capabilities(capabilities));
    checks.extend([rights::open_by_handle(try_handle())]);
    let mounts = MountTable::read().unwrap_or_else(|e| {
        checks.push(Check::degraded("mounts", format!("File systems can't be listed: {e}")));
        MountTable::default()
    });
    let root = mounts.at(Path::new("/"));
    checks
        .extend(root.map(|root| rights::fs_uuid(&root.fstype.to_string_lossy(), fsid::uuid(root))));
    checks.extend([
        kernel::cachestat(try_cachestat()),
        kernel::perf(text("/proc/sys/kernel/perf_event_paranoid"), may_measure),
        kernel::pressure(text("/proc/pressure/io")),
        kernel::io_uring(text("/proc/sys/kernel/io_uring_disabled")),
        memory::available(host::memory::available()),
        memory::group(host::memory::group_headroom()),
        memory::reclaim(host::reclaim::proactive().as_deref()),
    ]);
    checks.extend(rights::namespaces(namespace("user"), namespace("pid")));
    checks.push(rights::container(container().as_deref()));
    let pack_dirs =
        store::search_path(uid.is_root(), User::own().variable).unwrap_or_else(|error| {
            checks.push(Check::degraded("packs_own", error.to_string()));
            Vec::new()
        });
    checks.extend(pack_checks(&pack_dirs, uid.as_raw()));

    let read = |path: &str| text(path).ok();
    let types = text("/proc/filesystems").unwrap_or_default();
    let file_systems = file_systems(&mounts, &types, read, block_device, btrfs_directory);
    let models = Models::here();
    let readable = |name: &str| fs::File::open(Path::new("/dev").join(name)).is_ok();
    let devices = devices(&file_systems, read, |dev| models.of_device(dev), readable);
    let by_inode = rights::has(rights::own(), rights::SYS_ADMIN);
    let file_systems = file_systems.into_iter().map(|fs| {
        let is_its = |device: &&Device| fs.device.as_ref() == Some(&device.dev);
        let read_device = devices.iter().find(is_its).is_some_and(|device| device.readable);
        fs.for_user(May { by_inode, read_device })
    });
    let file_systems: Vec<FileSystem> = file_systems.collect();
    checks.extend(file_systems.iter().filter_map(storage::server));
    // What is wrong with a directory is one of the checks.
    let of = |dir: &PathBuf| learned_packs(std::slice::from_ref(dir), &models, uid.as_raw()).ok();
    let packs = pack_dirs.iter().filter_map(of).flatten().collect();
    Examination { checks, file_systems, devices, packs }
}

/// Probes the devices of all file systems again; what could not be probed,
/// and why.
pub fn reprobe(found: &Examination) -> Vec<(String, io::Error)> {
    let models = Models::here();
    let mut failed = Vec::new();
    for device in &found.devices {
        let Ok(rdev) = device.dev.parse() else { continue };
        let name = device.name.as_ref().unwrap_or(&device.dev);
        let path = Path::new("/dev").join(name);
        if let Err(error) = models.measure(&BlockDevice { path, rdev }) {
            failed.push((name.clone(), error));
        }
    }
    failed
}

fn text(path: &str) -> io::Result<String> {
    contents::text(path)
}

fn tracing_checks(may_mount: bool) -> Vec<Check> {
    let found = Tracefs::mounted();
    let root = found.as_ref().map(|tracefs| tracefs.as_ref().map(Tracefs::root));
    let types = text("/proc/filesystems").unwrap_or_default();
    let mut checks = vec![tracing::tracefs(&root, types.contains("\ttracefs\n"), may_mount)];
    // Without it there is nothing to look at, and no saying what would be there.
    let Ok(Some(tracefs)) = &found else { return checks };
    let file = |name: &str| tracefs.root().join(name);
    let format = |group: &str, name: &str| {
        contents::text(file(&format!("events/{group}/{name}/format"))).ok()
    };
    checks.extend(tracing::events(format));
    let exists = |name| file(name).exists();
    checks.push(tracing::following(exists("set_event_pid"), exists("options/event-fork")));
    checks.push(tracing::instance(try_instance(tracefs)));
    checks.push(tracing::leftovers(&tracefs.orphans()));
    checks
}

/// Creates a trace instance and removes it, which takes a tenth of a second: in
/// the background it could outlive a PID namespace that ends with us.
fn try_instance(tracefs: &Tracefs) -> Result<(), TraceError> {
    Instance::create(tracefs, None).map(drop)
}

fn try_cachestat() -> io::Result<()> {
    // A file that we may ask about: one of our own, not on any disk.
    let file = rustix::fs::memfd_create("doctor", rustix::fs::MemfdFlags::CLOEXEC)?;
    cachestat(file, 0, 0).map(drop)
}

fn try_handle() -> io::Result<()> {
    let root = fs::File::open("/")?;
    let (handle, _mount) = name_to_handle(CWD, c"/", AtFlags::empty())?;
    open_by_handle(root, &handle, OFlags::PATH).map(drop)
}

/// The inode number of one of our namespaces.
fn namespace(kind: &str) -> Option<u64> {
    fs::metadata(format!("/proc/self/ns/{kind}")).ok().map(|meta| meta.ino())
}

/// The name of the container engine, from what it leaves in the file system.
fn container() -> Option<String> {
    if let Ok(name) = text("/run/systemd/container") {
        return Some(name.trim().to_owned());
    }
    let engines = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    let found = engines.iter().find(|(path, _)| Path::new(path).exists());
    found.map(|(_, name)| (*name).to_owned())
}

fn pack_checks(dirs: &[PathBuf], uid: u32) -> Vec<Check> {
    let check = |(i, dir): (usize, &PathBuf)| packs::directory(dir, look_at(dir), uid, i == 0);
    dirs.iter().enumerate().map(check).collect()
}

fn look_at(path: &Path) -> io::Result<Directory> {
    let meta = fs::metadata(path)?;
    if !meta.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let writable = rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
    Ok(Directory { uid: meta.uid(), mode: meta.mode(), writable })
}

/// The number of a block device node.
fn block_device(path: &str) -> Option<Dev> {
    let meta = fs::metadata(path).ok()?;
    meta.file_type().is_block_device().then(|| Dev::from_stat(meta.rdev()))
}

/// The directory in sysfs of the btrfs that has a block device.
fn btrfs_directory(dev: Dev) -> Option<String> {
    let has = |dir: &Path| {
        let devices = fs::read_dir(dir.join("devices")).into_iter().flatten().flatten();
        let mut numbers = devices.filter_map(|d| contents::text(d.path().join("dev")).ok());
        numbers.any(|number| number.trim() == dev.to_string())
    };
    let mut dirs = fs::read_dir("/sys/fs/btrfs").ok()?.flatten().map(|entry| entry.path());
    dirs.find(|dir| has(dir))?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_this_machine_is_the_checks_have_names_and_sentences() {
        let found = examine();
        assert!(found.checks.len() > 10);
        for check in &found.checks {
            assert!(!check.id.is_empty() && !check.meaning.ends_with('.'), "{check:?}");
        }
    }
}
