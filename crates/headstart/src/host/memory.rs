//! How much memory a replay may fill, whether there is memory pressure, and the size of a huge
//! page. The driver: it reads /proc, /sys and control groups.

use super::cgroup::{self, Group, Version};
use crate::host::contents;
use crate::host::mounts::{self, MountTable};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// The part of the machine's available memory that a replay may fill.
const OF_MACHINE: Part = (1, 2);
/// The same for what the control group leaves, of which the program needs some for its own memory.
const OF_GROUP: Part = (3, 4);

/// So many of so many parts.
type Part = (u64, u64);

/// The kernel's files with the time that tasks waited for memory: of a group, and of all.
const GROUP_PRESSURE: &str = "memory.pressure";
const PRESSURE: &str = "/proc/pressure/memory";
/// The file system types of control groups.
const CGROUP: &[u8] = b" - cgroup";

/// How much a replay may fill now, in bytes: a part of the available memory, and of what the
/// limit of our control group leaves. Without /proc nothing.
pub fn budget() -> u64 {
    let (some, all) = OF_MACHINE;
    let of_group = group_headroom().map_or(u64::MAX, budget_within);
    (available().unwrap_or(0) / all * some).min(of_group)
}

/// How much a replay may fill for a control group that may use so many bytes and has used none.
pub fn budget_within(limit: u64) -> u64 {
    let (some, all) = OF_GROUP;
    limit / all * some
}

/// Bytes of memory that are available on this machine; `None` without /proc.
pub fn available() -> Option<u64> {
    mem_available(&contents::text("/proc/meminfo").ok()?)
}

/// Bytes that our control group and all above it may still use; `None` where no
/// limit is set.
pub fn group_headroom() -> Option<u64> {
    let read = |group: &Group| group.headroom(|file| contents::text(group.dir.join(file)).ok());
    our_groups().iter().filter_map(read).min()
}

/// Bytes that cached pages of our control group may take, or of the one above it that leaves
/// least; `None` where no limit is set.
pub fn group_room_for_cache() -> Option<u64> {
    let read =
        |group: &Group| group.room_for_cache(|file| contents::text(group.dir.join(file)).ok());
    our_groups().iter().filter_map(read).min()
}

/// How long some task had to wait for memory, in µs: one of our control group where
/// that is known, else one of the machine. `None` where the kernel does not measure it.
pub fn stalled_us() -> Option<u64> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let of_group = our_groups().iter().find(|group| group.version == Version::Two);
        let of_group = of_group.and_then(|group| File::open(group.dir.join(GROUP_PRESSURE)).ok());
        of_group.or_else(|| File::open(PRESSURE).ok())
    });
    let mut text = [0; 256];
    let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
    cgroup::stalled_us(str::from_utf8(&text[..length]).ok()?)
}

/// Bytes that the control group at this path, such as `/system.slice`, and all above it may use;
/// `None` where no limit is set, or there is no such group.
pub fn group_limit(path: &str) -> Option<u64> {
    let read = |group: &Group| group.limit(|file| contents::text(group.dir.join(file)).ok());
    groups_of(&format!("1:memory:{path}\n0::{path}\n")).iter().filter_map(read).min()
}

/// Our groups, looked up once: a start reads their limits several times.
static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();

pub(super) fn our_groups() -> &'static [Group] {
    GROUPS.get_or_init(|| groups_of(&our_membership()))
}

/// Looks our control groups up in mounts that were read already, which takes the kernel longer
/// than the rest. Nothing where that was done.
pub fn find_our_groups(mounts: &MountTable) {
    GROUPS.get_or_init(|| cgroup::groups(&our_membership(), mounts.mounts()));
}

/// Which groups we are in; empty without /proc. cgroups(7).
fn our_membership() -> String {
    contents::text("/proc/self/cgroup").unwrap_or_default()
}

fn groups_of(process: &str) -> Vec<Group> {
    let mounts = contents::bytes("/proc/self/mountinfo").unwrap_or_default();
    // There may be thousands of others.
    let of_groups = mounts
        .split_inclusive(|b| *b == b'\n')
        .filter(|line| line.windows(CGROUP.len()).any(|part| part == CGROUP));
    let mounts = mounts::parse(&of_groups.collect::<Vec<_>>().concat()).unwrap_or_default();
    cgroup::groups(process, &mounts)
}

/// Where the kernel tells how large a huge page is, in bytes
/// (`Documentation/admin-guide/mm/transhuge.rst`).
const HUGE_PAGE_SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// How large a huge page is, in bytes.
///
/// # Errors
/// The kernel has none.
pub fn huge_page_size() -> io::Result<usize> {
    contents::text(HUGE_PAGE_SIZE)?.trim().parse().map_err(io::Error::other)
}

/// `MemAvailable` of /proc/meminfo (proc(5)), in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_by_name() {
        let text = "MemTotal: 9 kB\nMemFree:  5 kB\nMemAvailable:   1000 kB\n";
        assert_eq!(mem_available(text), Some(1_024_000));
        assert_eq!(mem_available("MemAvailable: many kB"), None);
    }

    #[test]
    fn a_limited_group_keeps_a_quarter_for_its_own() {
        assert_eq!(budget_within(400), 300);
        assert_eq!(budget_within(0), 0);
    }

    #[test]
    fn this_machine_has_a_budget() {
        assert!(budget() > 0);
    }
}
