//! Disks come up, get a cold cache, go down, and what a killed server left
//! is cleaned away. What is there is asked of the kernel, not of memory: a
//! command may be killed at any point.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{Answer, Command, query};
use crate::engine::Overhead;
use crate::error::{Error, Result};
use crate::host;
use crate::measure;
use crate::model::Device;
use crate::server::Ready;
use crate::state::{Disk, Entry, State};

/// An overhead above this, in nanoseconds, is a sign of load.
const HIGH_OVERHEAD_NS: f64 = 200_000.0;

/// A disk that has come up.
#[derive(Debug)]
pub struct Up {
    /// Its loop device.
    pub device: PathBuf,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Brings a disk up. `server` is the command that calls
/// [`crate::server::serve`]; the entry's directory is added to it and the
/// [`Ready`] line expected from its standard output.
///
/// # Errors
/// When anything of it fails; all that was done by then is undone.
pub fn up(state: &State, disk: Disk, readahead_kib: u32, server: Process) -> Result<Up> {
    if (disk.keep_writes || disk.log.is_some()) && disk.model.device.is_none() {
        let reason = "without times to keep it is any loop device, which keeps writes (losetup --find \
                      --show --direct-io=on) and has no log";
        return Err(Error::Model { name: disk.model_name, reason: reason.to_owned() });
    }
    if let Some(dir) = &disk.mount {
        if !dir.is_dir() {
            return Err(Error::Refused(format!("{0} is no directory: mkdir {0}", dir.display())));
        }
        if find(&state.entries()?, dir).is_ok() {
            let dir = dir.display();
            return Err(Error::Refused(format!("{dir} is up already: slowdisk down {dir}")));
        }
    }
    let entry = state.add()?;
    bring_up(&entry, disk, readahead_kib, server).map_err(|error| match tear_down(&entry) {
        Ok(()) => error,
        Err(second) => Error::Refused(format!("{error}; and then: {second}")),
    })
}

fn bring_up(entry: &Entry, mut disk: Disk, readahead_kib: u32, server: Process) -> Result<Up> {
    entry.save(&disk)?;
    let (child, ready) = start(entry, server)?;
    disk.server = Some(child.id());
    // Whoever has to kill it when it is stuck needs its number.
    entry.save(&disk)?;
    let device = host::attach(&ready.file)?;
    host::set_queue(&device, disk.model.rotational, readahead_kib)?;
    let mut warnings = Vec::new();
    if let Some(model) = &disk.model.device {
        disk.overhead = calibrate(entry, &device, model)?;
        if disk.overhead.fixed_ns > HIGH_OVERHEAD_NS {
            let us = disk.overhead.fixed_ns / 1000.0;
            warnings.push(format!(
                "The overhead of the disk is {us:.0} us: the machine is busy, times will be off"
            ));
        }
        let (rate, most) = (model.requests_per_s(), crate::model::FUSE_REQUESTS_PER_S);
        if rate > most {
            warnings.push(format!(
                "The model allows {rate:.0} requests a second; FUSE holds about {most:.0}"
            ));
        }
    }
    if !ready.realtime {
        warnings.push("No real-time priority (CAP_SYS_NICE): other work will delay it".to_owned());
    }
    if !ready.awake {
        warnings
            .push("No /dev/cpu_dma_latency: latencies below a millisecond will vary".to_owned());
    }
    if let Some(dir) = &disk.mount {
        host::mount(&device, dir, disk.options.as_deref())?;
    }
    disk.device = Some(device.clone());
    entry.save(&disk)?;
    Ok(Up { device, warnings })
}

/// Starts the server and waits until it can be used.
fn start(entry: &Entry, mut server: Process) -> Result<(Child, Ready)> {
    let log = entry.log();
    let messages = File::create(&log).map_err(Error::io("make", &log))?;
    server.arg(entry.dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages);
    let mut child =
        server.current_dir("/").spawn().map_err(Error::io("start the server of", entry.dir()))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut line);
        read.map_err(Error::io("read from the server of", entry.dir()))?;
    }
    if let Ok(ready) = serde_json::from_str(&line) {
        return Ok((child, ready));
    }
    child.wait().map_err(Error::io("wait for the server of", entry.dir()))?;
    let messages = fs::read_to_string(&log).map_err(Error::io("read", &log))?;
    let message = messages.trim().replace('\n', "; ");
    Err(Error::Tool { command: "The server".to_owned(), message })
}

/// Measures the overhead of the device and then lets it be as slow as its model.
fn calibrate(entry: &Entry, path: &Path, model: &Device) -> Result<Overhead> {
    let become_device =
        |device: Device, overhead| match query(entry.dir(), &Command::Become(device, overhead))? {
            Some(Answer::Done) => Ok(()),
            _ => Err(Error::Refused(format!("The server ended; see {}", entry.log().display()))),
        };
    let overhead = measure::overhead(path, capacity(path)?, model, become_device)?;
    become_device(model.clone(), overhead)?;
    Ok(overhead)
}

/// A device's size in bytes.
///
/// # Errors
/// When sysfs cannot be read.
pub fn capacity(device: &Path) -> Result<u64> {
    let path = host::sysfs(device).join("size");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    let sectors: Option<u64> = text.trim().parse().ok();
    // Always in sectors of 512 bytes, whatever the device's own are.
    sectors
        .and_then(|sectors| sectors.checked_mul(512))
        .ok_or_else(|| Error::Refused(format!("{} holds no number", path.display())))
}

/// The entry whose file system is mounted on `target` or whose loop device it
/// is.
///
/// # Errors
/// When there is none, with what there is.
pub fn find(entries: &[Entry], target: &Path) -> Result<(Entry, Disk)> {
    let target = absolute(target);
    let mut known = Vec::new();
    for entry in entries {
        let Some(disk) = entry.load()? else { continue };
        let names = [disk.mount.clone(), disk.device.clone()];
        if names.iter().flatten().any(|name| *name == target) {
            return Ok((entry.clone(), disk));
        }
        known.extend(names.into_iter().flatten().map(|name| name.display().to_string()));
    }
    let known = if known.is_empty() { "nothing is".to_owned() } else { known.join(", ") };
    Err(Error::Refused(format!("{} is not up; {known}", target.display())))
}

/// A path without links. One that leads through a dead mount stays as it is.
pub fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Whether a disk's server lives.
///
/// # Errors
/// When it does not answer though it is there.
pub fn is_alive(entry: &Entry) -> Result<bool> {
    let answer = query(entry.dir(), &Command::Ping).map_err(|error| {
        let server = entry.load().ok().flatten().and_then(|disk| disk.server);
        let server = server.map_or_else(|| "of it".to_owned(), |id| id.to_string());
        Error::Refused(format!("{error}: kill -9 the process {server} and try again"))
    })?;
    Ok(answer.is_some())
}

/// Takes a disk down: file system, loop device, server, state.
///
/// # Errors
/// When the file system is in use; then nothing is lost.
pub fn tear_down(entry: &Entry) -> Result<()> {
    let alive = is_alive(entry)?;
    let file = entry.disk_file();
    for device in host::loops_on(&file, &entry.copy_name())? {
        // Behind a dead server there is nothing to wait for or to save.
        unmount(&device, !alive)?;
        if alive && !host::becomes_free(&device)? {
            return Err(held(&device)?);
        }
        host::detach(&device)?;
    }
    let server = entry.load().ok().flatten().and_then(|disk| disk.server).filter(|_| alive);
    let server = server.and_then(watch);
    query(entry.dir(), &Command::Quit)?;
    if let Some(server) = server {
        wait_for_end(&server);
    }
    for point in host::mounts(|mount| mount.mount_point == file)? {
        host::umount(&point, true)?;
    }
    entry.remove()
}

/// Something to wait on for the end of a process.
fn watch(id: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(id).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// The memory of a server that was told to end is free when it has; one that is stuck is not
/// waited for.
fn wait_for_end(server: &OwnedFd) {
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&limit));
}

fn unmount(device: &Path, lazily: bool) -> Result<()> {
    for point in host::mounts(|mount| mount.source == device.as_os_str())? {
        host::umount(&point, lazily).map_err(|error| {
            let dir = point.display();
            Error::Refused(format!("{error}: end what uses it (fuser -vm {dir} shows it)"))
        })?;
    }
    Ok(())
}

fn held(device: &Path) -> Result<Error> {
    let processes = host::processes_that_see(device)?;
    let list: Vec<_> = processes.iter().take(10).map(u32::to_string).collect();
    Ok(Error::Refused(format!(
        "The file system on {} is still mounted in another mount namespace, so its cache \
         stays: end the processes there ({})",
        device.display(),
        if list.is_empty() { "none is to be seen".to_owned() } else { list.join(", ") }
    )))
}

/// Gives a cold cache: unmounts, makes sure that the kernel has let go of the
/// file system, and mounts again.
///
/// # Errors
/// When it is in use, also by another mount namespace.
pub fn remount(disk: &Disk) -> Result<()> {
    let (Some(device), Some(dir)) = (&disk.device, &disk.mount) else {
        let message = "This disk is not mounted by slowdisk: unmount and mount it yourself";
        return Err(Error::Refused(message.to_owned()));
    };
    unmount(device, false)?;
    if !host::becomes_free(device)? {
        return Err(held(device)?);
    }
    host::mount(device, dir, disk.options.as_deref())
}

/// Takes away what killed servers and broken-off starts left; gives the
/// directories of the state that went.
///
/// # Errors
/// When something cannot be taken away.
pub fn clean(state: &State) -> Result<Vec<PathBuf>> {
    let mut cleaned = Vec::new();
    for entry in state.entries()? {
        // The lock is held: no start is under way.
        let complete = entry.load()?.is_some_and(|disk| disk.device.is_some());
        if !complete || !is_alive(&entry)? {
            tear_down(&entry)?;
            cleaned.push(entry.dir().to_owned());
        }
    }
    Ok(cleaned)
}
