//! Kernels that reclaim pages without memory pressure: DAMON's proactive reclaim takes idle pages,
//! also some that were just read (Documentation/admin-guide/mm/damon). A measurement of what is
//! resident is invalid when some of it was reclaimed meanwhile. This detects it from trace events,
//! not from results. Reclaim under memory pressure is not handled here.

use headstart::host::id::Dev;
use headstart::host::mounts::MountTable;
use headstart::host::reclaim;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where private trace buffers are made.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// A page leaves the cache.
const LEAVES: &str = "events/filemap/mm_filemap_delete_from_page_cache";

/// What `measure` returns of a time in which the kernel took no page of the file systems of
/// `places` by itself. Where it took some, that is said, and `measure` called again, for a
/// minute at most.
#[track_caller]
pub fn undisturbed<T>(places: &[&Path], mut measure: impl FnMut() -> T) -> T {
    if !kernel_takes_idle_pages() {
        return measure();
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let mut devices = devices_of(places);
        let Some(trace) = Trace::begin() else { return measure() };
        let value = measure();
        // Mounted again, an image may have another device.
        devices.extend(devices_of(places));
        if trace.pages_of(&devices) == 0 {
            return value;
        }
        eprintln!("note: the kernel took idle pages of a test, which measured again");
        assert!(
            Instant::now() < end,
            "for a minute the kernel has been taking pages of {places:?}"
        );
    }
}

/// [`undisturbed`] where measuring changes what lies in a directory, as a start that is learned
/// changes the packs: each measurement begins with its files of now.
#[track_caller]
pub fn undisturbed_with<T>(places: &[&Path], dir: &Path, mut measure: impl FnMut() -> T) -> T {
    let before = tempfile::tempdir().unwrap();
    let call = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let copy =
        |from: &Path, to: &Path| call(Command::new("cp").arg("-a").arg(from.join(".")).arg(to));
    copy(dir, before.path());
    let mut again = false;
    undisturbed(places, || {
        if std::mem::replace(&mut again, true) {
            call(Command::new("find").arg(dir).args(["-mindepth", "1", "-delete"]));
            copy(before.path(), dir);
        }
        measure()
    })
}

/// Whether this kernel does so, by any of the interfaces of DAMON; looked for once.
fn kernel_takes_idle_pages() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = reclaim::proactive().is_some_and(|switches| !switches.is_empty());
        if found {
            eprintln!("note: this kernel takes pages that it believes idle from the cache (DAMON)");
        }
        found
    })
}

/// The devices of the file systems that some places are on.
fn devices_of(places: &[&Path]) -> Vec<Dev> {
    let table = MountTable::read().unwrap();
    places.iter().map(|place| table.at(place).unwrap().dev).collect()
}

/// A trace of the pages that DAMON's threads take, which ends with the value.
struct Trace(PathBuf);

impl Trace {
    /// `None` where this machine lets nobody trace.
    fn begin() -> Option<Self> {
        let instance = Path::new(INSTANCES).join(format!("testing-{}", std::process::id()));
        fs::create_dir(&instance).ok()?;
        let trace = Self(instance);
        let event = trace.0.join(LEAVES);
        fs::write(event.join("filter"), "comm ~ \"kdamond*\"").ok()?;
        fs::write(event.join("enable"), "1").ok()?;
        Some(trace)
    }

    /// How many of the pages that were taken are of these devices: of files, or of the
    /// block device itself, whose inode has its number.
    fn pages_of(&self, devices: &[Dev]) -> usize {
        let text = fs::read_to_string(self.0.join("trace")).unwrap();
        // … mm_filemap_delete_from_page_cache: dev 7:3 ino 1a pfn=0x100 ofs=4096 order=0
        let is_of = |line: &str| {
            let mut words = line.split("dev ").nth(1)?.split(' ');
            let (major, minor) = words.next()?.split_once(':')?;
            let inode = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            let device = Dev::new(major.parse().ok()?, minor.parse().ok()?);
            Some(devices.iter().any(|of| device == *of || u64::from(of.0) == inode && major == "0"))
        };
        text.lines().filter(|line| is_of(line) == Some(true)).count()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It ends with the process's last use of it; what a failure leaves is seen there.
        let _ = fs::remove_dir(&self.0);
    }
}
