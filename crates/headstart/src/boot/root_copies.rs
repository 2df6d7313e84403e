//! Copies of packs on the root file system, where they can be read before `/var` is mounted: in the
//! same directory, which the mount hides later. The driver.
//!
//! The initramfs, and the unit at first, see only the root file system, so they find the copies in
//! the usual place. What is learned is joined into the packs themselves.

use super::machine::{Machine, MachineError, STATE};
use super::packs::PackFile;
use crate::pack::store;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The root file system without what is mounted in it, as long as this lives.
struct Bare {
    machine: Machine,
    _tree: OwnedFd,
}

/// Copies the learned packs to the root file system, and removes copies of packs that are gone.
/// Does nothing if the packs are on the root file system already, or if that is read-only.
///
/// # Errors
/// What can't be written.
pub fn keep(machine: &Machine) -> Result<(), MachineError> {
    let Some(bare) = bare(machine) else { return Ok(()) };
    let state = bare.machine.state();
    let own = |machine: &Machine| machine.packs().into_iter().filter(|file| file.is_own);
    let packs: Vec<PackFile> = own(machine).collect();
    let copy = |pack: &PackFile| -> io::Result<()> {
        let Ok(bytes) = store::read_bytes(&pack.path, 0) else { return Ok(()) };
        let Some(name) = pack.path.file_name() else { return Ok(()) };
        let path = state.join(name);
        if store::read_bytes(&path, 0).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        fs::create_dir_all(&state)?;
        store::lock(&path).map_err(io::Error::other)?.write_bytes(&bytes)
    };
    let failed = |pack: &PackFile, source: io::Error| match source.kind() {
        ErrorKind::ReadOnlyFilesystem => Ok(()),
        _ => {
            let name = pack.path.file_name().unwrap_or_default();
            Err(MachineError::Write { path: machine.state().join(name), source })
        }
    };
    // Removals come first, to make room. Without any pack, it is unknown which are gone.
    let is_of = |copy: &PackFile, pack: &PackFile| copy.path.file_name() == pack.path.file_name();
    let is_known = |copy: &PackFile| packs.is_empty() || packs.iter().any(|pack| is_of(copy, pack));
    for copy in own(&bare.machine).filter(|copy| !is_known(copy)) {
        if let Err(source) = fs::remove_file(&copy.path) {
            return failed(&copy, source);
        }
    }
    for pack in &packs {
        if let Err(source) = copy(pack) {
            return failed(pack, source);
        }
    }
    Ok(())
}

/// Removes these copies; whether there were any.
///
/// # Errors
/// They can't be removed.
pub fn purge(machine: &Machine) -> io::Result<bool> {
    let Some(bare) = bare(machine) else { return Ok(false) };
    match bare.machine.below()?.remove_all(Path::new(STATE)) {
        Err(e) if e.kind() == ErrorKind::NotADirectory => Ok(false),
        removed => removed,
    }
}

/// The root file system, if packs are on another one. `None` also where the kernel does
/// not show it: that takes root, and Linux 5.2.
fn bare(machine: &Machine) -> Option<Bare> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, machine.place("/"), flags).ok()?;
    let machine_there = Machine::at(format!("/proc/self/fd/{}", tree.as_raw_fd()));
    let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let state = id(&machine.state())?;
    let hidden = id(&machine_there.state());
    (hidden != Some(state)).then_some(Bare { machine: machine_there, _tree: tree })
}
