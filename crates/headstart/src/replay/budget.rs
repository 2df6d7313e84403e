//! How much memory a replay may fill.

use std::fs;

/// Largest share of the available memory that a replay fills.
const SHARE: u64 = 2;

/// The default budget: half of the memory that is available now, in bytes,
/// bounded by the memory limit of our control group. Without /proc nothing.
pub fn available() -> u64 {
    memory().unwrap_or(0).min(group_headroom().unwrap_or(u64::MAX)) / SHARE
}

/// Bytes of memory that are available on this machine; `None` without /proc.
pub fn memory() -> Option<u64> {
    mem_available(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Bytes that our control group and all above it may still use; `None` where no
/// limit is set.
pub fn group_headroom() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_dirs(&groups).iter().filter_map(|dir| headroom(dir)).min()
}

/// `MemAvailable` of /proc/meminfo (proc(5)), in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Directories that may hold our memory limit, from /proc/self/cgroup: our
/// group and all above it, in either version of control groups.
fn group_dirs(groups: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            list if list.split(',').any(|c| c == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            out.push(format!("{root}{path}"));
            let Some((parent, _)) = path.rsplit_once('/') else { break };
            path = parent;
        }
    }
    out
}

/// Bytes left below a group's limit; the page cache it has can be replaced.
fn headroom(dir: &str) -> Option<u64> {
    let number = |file: &str| {
        let text = fs::read_to_string(format!("{dir}/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let stat = fs::read_to_string(format!("{dir}/memory.stat")).unwrap_or_default();
    let used = ["anon ", "total_rss "]
        .iter()
        .find_map(|key| stat.lines().find_map(|l| l.strip_prefix(key)?.trim().parse().ok()));
    Some(limit.saturating_sub(used.unwrap_or(0)))
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
    fn every_group_above_ours_may_limit_us() {
        let v2 = group_dirs("0::/a.slice/b.service\n");
        assert_eq!(
            v2,
            ["/sys/fs/cgroup/a.slice/b.service", "/sys/fs/cgroup/a.slice", "/sys/fs/cgroup"]
        );
        let v1 = group_dirs("5:cpu,memory:/x\n4:blkio:/x\n");
        assert_eq!(v1, ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]);
        assert!(group_dirs("nonsense\n").is_empty());
    }

    #[test]
    fn this_machine_has_a_budget() {
        assert!(available() > 0);
    }
}
