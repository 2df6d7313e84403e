//! The process behind a disk: holds the bytes, answers FUSE requests and the
//! control socket, ends when told or when the file system is unmounted.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use fuser::{Config, MountOption, Session};
use serde::{Deserialize, Serialize};

use crate::control::{Answer, Command, Listener};
use crate::error::{Error, Result};
use crate::fs::{Disk, DiskFile};
use crate::log::Log;
use crate::state::Entry;
use crate::store::Store;

/// Above every ordinary process, below the kernel's own threads.
const PRIORITY: i32 = 20;

/// What a server says when it can be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The file to make a loop device of.
    pub file: PathBuf,
    /// Whether it runs under real-time priority; without, times are off as
    /// soon as anything else runs.
    pub realtime: bool,
    /// Whether idle CPUs stay awake; without, waking them adds tens of
    /// microseconds, and not always as many.
    pub awake: bool,
}

/// Serves the disk described in `entry`, calls `ready` when it can be used,
/// and returns when it is over.
///
/// # Errors
/// When the description is missing, the image cannot be loaded, or FUSE fails.
pub fn serve(entry: &Entry, ready: impl FnOnce(&Ready)) -> Result<()> {
    let Some(disk) = entry.load()? else {
        let dir = entry.dir().display();
        return Err(Error::Refused(format!("{dir} describes no disk: use slowdisk up")));
    };
    let listener = Listener::bind(entry.dir())?;
    let store = if disk.keep_writes {
        Store::share(&disk.image)?
    } else {
        Store::copy(&disk.image, &entry.copy_name())?
    };
    match disk.model.device {
        Some(device) => {
            let log = disk.log.as_deref().map(Log::create).transpose()?;
            serve_model(entry, Disk::new(device, store, log), listener, ready)
        }
        None => {
            serve_plain(&store, &listener, ready);
            Ok(())
        }
    }
}

/// Only holds the bytes until told to end: the loop device reads them itself.
fn serve_plain(store: &Store, listener: &Listener, ready: impl FnOnce(&Ready)) {
    let file = format!("/proc/{}/fd/{}", process::id(), store.file().as_raw_fd());
    ready(&Ready { file: file.into(), realtime: true, awake: true });
    listener.serve(|command| match command {
        Command::Stats { .. } | Command::Cut => Answer::NotCounted,
        Command::Ping | Command::Become(..) | Command::Quit => Answer::Done,
    });
}

fn serve_model(
    entry: &Entry,
    disk: Disk,
    listener: Listener,
    ready: impl FnOnce(&Ready),
) -> Result<()> {
    let file = entry.disk_file();
    let disk = Arc::new(disk);
    File::create(&file).map_err(Error::io("make", &file))?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("slowdisk".to_owned())];
    let session = Session::new(DiskFile(disk.clone()), &file, &config);
    let session = session.map_err(Error::io("mount FUSE on", &file))?;

    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        thread.map_err(Error::io("start a thread for", entry.dir()))
    };
    let controlled = disk.clone();
    spawn("control", Box::new(move || control(&listener, &controlled)))?;
    // Threads inherit the priority; the control thread has been started.
    let realtime = headstart_sys::sched::set_fifo(PRIORITY).is_ok();
    // Matters only without that priority: real-time threads have no slack.
    let slack = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    slack.map_err(|e| Error::io("set the timer slack for", entry.dir())(e.into()))?;
    let answering = disk.clone();
    let answers = spawn("answers", Box::new(move || answering.answer()))?;
    // Holds for as long as the file is open (Documentation/power/pm_qos_interface.rst).
    let latency = File::options().write(true).open("/dev/cpu_dma_latency").and_then(|mut file| {
        file.write_all(&0i32.to_ne_bytes())?;
        Ok(file)
    });
    ready(&Ready { file: file.clone(), realtime, awake: latency.is_ok() });
    let ended = session.run().map_err(Error::io("serve", &file));
    disk.engine.close();
    // It can only have panicked, which it has reported.
    drop(answers.join());
    ended
}

fn control(listener: &Listener, disk: &Disk) {
    listener.serve(|command| match command {
        Command::Become(device, overhead) => {
            disk.engine.start(device.clone(), *overhead);
            Answer::Done
        }
        Command::Stats { reset } => Answer::Stats(Box::new(disk.engine.stats(*reset))),
        Command::Cut => {
            disk.cut();
            Answer::Done
        }
        Command::Ping | Command::Quit => Answer::Done,
    });
    // Told to end. The kernel aborts the FUSE connection by itself.
    process::exit(0);
}
