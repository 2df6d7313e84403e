//! Loop devices and mounts of this machine: losetup(8), mount(8), umount(8),
//! sysfs and mountinfo.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use headstart::host::mounts::{Mount, parse};
use rustix::fs::OFlags;
use rustix::thread::CapabilitySet;

use crate::error::{Error, Result};

const SYS_BLOCK: &str = "/sys/block";

/// Whether this process may and this kernel can do it.
///
/// # Errors
/// [`Error::Permission`] without `CAP_SYS_ADMIN`, [`Error::Missing`] without
/// FUSE or loop devices.
pub fn require() -> Result<()> {
    let root = Path::new("/");
    let capabilities = rustix::thread::capabilities(None);
    let capabilities =
        capabilities.map_err(|e| Error::io("read the capabilities of", root)(e.into()))?;
    if !capabilities.effective.contains(CapabilitySet::SYS_ADMIN) {
        return Err(Error::Permission);
    }
    for (path, hint) in [
        ("/dev/fuse", "load the module with modprobe fuse"),
        ("/dev/loop-control", "load the module with modprobe loop"),
    ] {
        if !Path::new(path).exists() {
            return Err(Error::Missing { what: path.to_owned(), hint });
        }
    }
    Ok(())
}

/// Runs a tool; gives what it wrote.
fn run(tool: &str, args: &[&str]) -> Result<String> {
    let command = format!("{tool} {}", args.join(" "));
    let fail = |message: String| Error::Tool { command: command.clone(), message };
    let output = Command::new(tool).args(args).output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => fail("it is not installed: install util-linux".to_owned()),
        _ => fail(e.to_string()),
    })?;
    if !output.status.success() {
        return Err(fail(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A path as an argument.
fn arg(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::Refused(format!("{} is not UTF-8", path.display())))
}

/// Makes a loop device with direct I/O on a file.
///
/// # Errors
/// When losetup(8) fails.
pub fn attach(file: &Path) -> Result<PathBuf> {
    run("losetup", &["--find", "--show", "--direct-io=on", arg(file)?]).map(PathBuf::from)
}

/// Detaches a loop device; while something has it open the kernel puts that
/// off until it is closed.
///
/// # Errors
/// When losetup(8) fails.
pub fn detach(device: &Path) -> Result<()> {
    run("losetup", &["--detach", arg(device)?]).map(drop)
}

/// The loop devices on a file, or on a deleted file in memory, of that name.
///
/// # Errors
/// When sysfs cannot be read.
pub fn loops_on(file: &Path, memory_name: &str) -> Result<Vec<PathBuf>> {
    let block = Path::new(SYS_BLOCK);
    let memory = format!("/memfd:{memory_name} (deleted)");
    let mut loops = Vec::new();
    for item in fs::read_dir(block).map_err(Error::io("list", block))? {
        let item = item.map_err(Error::io("list", block))?;
        // Other devices, and loop devices without a file, have none.
        let Ok(backing) = fs::read_to_string(item.path().join("loop/backing_file")) else {
            continue;
        };
        let backing = backing.trim_end_matches('\n');
        if Path::new(backing) == file || backing == memory {
            loops.push(Path::new("/dev").join(item.file_name()));
        }
    }
    Ok(loops)
}

/// Sets whether a device rotates, and the kernel's readahead.
///
/// # Errors
/// When sysfs refuses.
pub fn set_queue(device: &Path, rotational: bool, readahead_kib: u32) -> Result<()> {
    // The order matters: a change of `rotational` resets the readahead.
    set(device, "rotational", u32::from(rotational))?;
    set(device, "read_ahead_kb", readahead_kib)
}

fn set(device: &Path, name: &str, value: u32) -> Result<()> {
    let path = sysfs(device).join("queue").join(name);
    fs::write(&path, value.to_string()).map_err(Error::io("write", &path))
}

/// The device's directory in sysfs.
pub fn sysfs(device: &Path) -> PathBuf {
    Path::new(SYS_BLOCK).join(device.file_name().unwrap_or_default())
}

/// Mounts a device.
///
/// # Errors
/// When mount(8) fails.
pub fn mount(device: &Path, dir: &Path, options: Option<&str>) -> Result<()> {
    let (device, dir) = (arg(device)?, arg(dir)?);
    match options {
        Some(options) => run("mount", &["-o", options, device, dir]),
        None => run("mount", &[device, dir]),
    }
    .map(drop)
}

/// Unmounts what is mounted on a path; `lazily` even when it is in use.
///
/// # Errors
/// When umount(8) fails, above all because something has a file open there.
pub fn umount(path: &Path, lazily: bool) -> Result<()> {
    let path = arg(path)?;
    if lazily { run("umount", &["--lazy", path]) } else { run("umount", &[path]) }.map(drop)
}

/// Where this process sees the file systems of a device, or mount points of
/// that path, mounted; the last mounted first. By source and not by device number, for
/// which btrfs gives one of its own.
///
/// # Errors
/// When mountinfo cannot be read.
pub fn mounts(wanted: impl Fn(&Mount) -> bool) -> Result<Vec<PathBuf>> {
    let path = Path::new("/proc/self/mountinfo");
    let all = listed(path).map_err(Error::io("read", path))?;
    Ok(all.into_iter().rev().filter(wanted).map(|mount| mount.mount_point).collect())
}

fn listed(mountinfo: &Path) -> io::Result<Vec<Mount>> {
    let not_one = |line| io::Error::other(format!("line {line} is not a mount"));
    parse(&fs::read(mountinfo)?).map_err(not_one)
}

/// Whether no file system holds the device: an exclusive open succeeds. Waits
/// for that a moment, as somebody who makes a mount namespace (a container
/// that starts) holds every file system until he lets go of what he copied.
///
/// # Errors
/// When the device cannot be opened for another reason.
pub fn becomes_free(device: &Path) -> Result<bool> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let flags = OFlags::EXCL.bits() as i32;
    let start = Instant::now();
    loop {
        match fs::File::options().read(true).custom_flags(flags).open(device) {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() != io::ErrorKind::ResourceBusy => {
                return Err(Error::io("open", device)(e));
            }
            // The kernel tells nobody when a file system is gone.
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(PATIENCE / 200),
            Err(_) => return Ok(false),
        }
    }
}

/// Processes that see a file system of the device mounted; those that end
/// meanwhile are skipped.
///
/// # Errors
/// When /proc cannot be listed.
pub fn processes_that_see(device: &Path) -> Result<Vec<u32>> {
    let proc = Path::new("/proc");
    let list = fs::read_dir(proc).map_err(Error::io("list", proc))?;
    let ids = list.filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok());
    let sees = |id: &u32| {
        let mounts = listed(&proc.join(id.to_string()).join("mountinfo"));
        mounts.is_ok_and(|mounts| mounts.iter().any(|mount| mount.source == device.as_os_str()))
    };
    Ok(ids.filter(sees).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_is_named() {
        let message = run("no-such-tool", &["x"]).unwrap_err().to_string();
        assert!(message.contains("no-such-tool x") && message.contains("install"), "{message}");
    }
}
