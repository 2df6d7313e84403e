//! Control groups that limit our memory and threads: where they are, and what they leave. Both
//! versions. Pure.

use crate::host::mounts::Mount;
use std::path::{Component, Path, PathBuf};

/// From this number on, version 1 means "no limit".
const NO_LIMIT: u64 = 1 << 60;

/// The versions of control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// A control group that may limit us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its directory.
    pub dir: PathBuf,
    /// Its version.
    pub version: Version,
}

/// Our groups and all visible groups above them, from `/proc/self/cgroup` and the mounts; in each
/// hierarchy the innermost first.
pub fn groups(of_process: &str, mounts: &[Mount]) -> Vec<Group> {
    let mut out = Vec::new();
    for line in of_process.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let version = match controllers {
            "" => Version::Two,
            list if list.split(',').any(|c| c == "memory") => Version::One,
            _ => continue,
        };
        let Some(mount) = mounts.iter().find(|mount| holds(mount, version)) else { continue };
        // A container may see only a part of the tree, or lie outside of it.
        let inside = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let is_plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        let inside = if is_plain { inside } else { Path::new("") };
        out.extend(inside.ancestors().map(|part| match part.as_os_str().is_empty() {
            true => Group { dir: mount.mount_point.clone(), version },
            false => Group { dir: mount.mount_point.join(part), version },
        }));
    }
    out
}

/// Whether a mount is the hierarchy that memory is limited by.
fn holds(mount: &Mount, version: Version) -> bool {
    let has_memory =
        || mount.super_options.as_encoded_bytes().split(|b| *b == b',').any(|o| o == b"memory");
    match version {
        Version::One => mount.fstype == "cgroup" && has_memory(),
        Version::Two => mount.fstype == "cgroup2",
    }
}

impl Group {
    /// Bytes that may still be used: what is left below the limit, and cached pages
    /// that nobody used twice. `None` without a limit. `read` gives the text of one of
    /// the group's files.
    pub fn headroom(&self, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        self.left(&["inactive_file"], read)
    }

    /// Bytes that all cached pages may take: what is left below the limit beside memory that
    /// is not freed by dropping pages. `None` without a limit; `read` as above.
    pub fn room_for_cache(&self, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        self.left(&["inactive_file", "active_file"], read)
    }

    /// Bytes that it may use. `None` without a limit; `read` as above.
    pub fn limit(&self, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        let files: &[_] = match self.version {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        };
        let limits = files.iter().filter_map(|file| number(file, &read));
        limits.filter(|limit| *limit < NO_LIMIT).min()
    }

    /// Threads that may still be started. `None` without a limit, and in version 1, where they are limited in a
    /// hierarchy of their own; `read` as above.
    pub fn threads_left(&self, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        if self.version == Version::One {
            return None;
        }
        let limit = number("pids.max", &read)?;
        Some(limit.saturating_sub(number("pids.current", &read).unwrap_or(0)))
    }

    /// What is left below the limit where all of these can be dropped.
    fn left(&self, dropped: &[&str], read: impl Fn(&str) -> Option<String>) -> Option<u64> {
        let limit = self.limit(&read)?;
        let (used, prefix) = match self.version {
            Version::One => ("memory.usage_in_bytes", "total_"),
            Version::Two => ("memory.current", ""),
        };
        let stat = read("memory.stat").unwrap_or_default();
        let dropped = dropped.iter().filter_map(|name| value(&stat, &format!("{prefix}{name}")));
        let used = number(used, read).unwrap_or(0);
        let used = used.saturating_sub(dropped.fold(0, u64::saturating_add));
        Some(limit.saturating_sub(used))
    }
}

/// The number that is all of a file.
fn number(file: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    read(file)?.trim().parse().ok()
}

/// The number behind a name that begins a line.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(line)
}

/// How long some task had to wait for memory, in µs, from a file of pressure
/// (`Documentation/accounting/psi.rst`).
pub fn stalled_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mounts::parse;

    const MIB: u64 = 1 << 20;

    /// Mounts as (root, mount point, type, super options).
    fn mounts(list: &[[&str; 4]]) -> Vec<Mount> {
        let line = |(id, [root, point, kind, options]): (usize, &[&str; 4])| {
            format!("{id} 1 0:{id} {root} {point} rw - {kind} {kind} {options}\n")
        };
        parse(list.iter().enumerate().map(line).collect::<String>().as_bytes()).unwrap()
    }

    #[test]
    fn every_group_above_ours_that_can_be_seen_may_limit_us() {
        let two = ["/", "/sys/fs/cgroup", "cgroup2", "rw"];
        let one = ["/", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"];
        let cpu = ["/", "/sys/fs/cgroup/cpu", "cgroup", "rw,cpu"];
        let part = ["/docker/7", "/sys/fs/cgroup/memory", "cgroup", "rw,memory"];
        for (name, text, mounts, expected) in [
            (
                "version 2",
                "0::/a.slice/b.service\n",
                mounts(&[two]),
                vec![
                    "/sys/fs/cgroup/a.slice/b.service",
                    "/sys/fs/cgroup/a.slice",
                    "/sys/fs/cgroup",
                ],
            ),
            (
                "version 1",
                "5:cpu,memory:/x\n4:blkio:/x\n",
                mounts(&[cpu, one]),
                vec!["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"],
            ),
            (
                "a part of the tree",
                "5:memory:/docker/7/in\n",
                mounts(&[part]),
                vec!["/sys/fs/cgroup/memory/in", "/sys/fs/cgroup/memory"],
            ),
            ("outside of it", "5:memory:/other\n", mounts(&[part]), vec!["/sys/fs/cgroup/memory"]),
            ("outside the name space", "0::/../x\n", mounts(&[two]), vec!["/sys/fs/cgroup"]),
            ("not mounted", "5:memory:/x\n", mounts(&[cpu]), vec![]),
            ("nonsense", "nonsense\n", mounts(&[one, two]), vec![]),
        ] {
            let found = groups(text, &mounts);
            let found: Vec<_> = found.iter().map(|group| group.dir.to_str().unwrap()).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_a_group_leaves_counts_pages_that_nobody_used_twice() {
        let stat = "anon 5\nworkingset_refault_file 7\ninactive_file 20971520\n\
                    active_file 5242880\ntotal_inactive_file 10485760\n\
                    total_active_file 10485760\n";
        for (name, version, files, expected) in [
            (
                "the lower limit",
                Version::Two,
                vec![("memory.max", "104857600\n"), ("memory.high", "94371840\n")],
                Some(90 * MIB - (50 - 20) * MIB),
            ),
            (
                "one limit",
                Version::Two,
                vec![("memory.max", "104857600\n"), ("memory.high", "max\n")],
                Some(70 * MIB),
            ),
            ("no limit", Version::Two, vec![("memory.max", "max\n")], None),
            ("the root has no files", Version::Two, vec![], None),
            (
                "version 1",
                Version::One,
                vec![("memory.limit_in_bytes", "104857600")],
                Some(60 * MIB),
            ),
            (
                "none in version 1",
                Version::One,
                vec![("memory.limit_in_bytes", "9223372036854771712")],
                None,
            ),
            ("used up", Version::One, vec![("memory.limit_in_bytes", "1048576")], Some(0)),
        ] {
            let read = |file: &str| match file {
                "memory.stat" => Some(stat.to_owned()),
                "memory.current" | "memory.usage_in_bytes" => Some("52428800\n".to_owned()),
                _ => {
                    files.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned())
                }
            };
            let group = Group { dir: PathBuf::new(), version };
            assert_eq!(group.headroom(read), expected, "{name}");
            let active = if version == Version::One { 10 * MIB } else { 5 * MIB };
            let with_active = expected.map(|left| if left == 0 { 0 } else { left + active });
            assert_eq!(group.room_for_cache(read), with_active, "{name}");
        }
    }

    #[test]
    fn a_group_leaves_as_many_threads_as_it_does_not_have_yet() {
        for (version, limit, current, expected) in [
            (Version::Two, Some("100\n"), Some("30\n"), Some(70)),
            (Version::Two, Some("20\n"), Some("30\n"), Some(0)),
            (Version::Two, Some("100\n"), None, Some(100)),
            (Version::Two, Some("max\n"), Some("30\n"), None),
            (Version::Two, None, None, None),
            (Version::One, Some("100\n"), Some("30\n"), None),
        ] {
            let read = |file: &str| {
                let text = if file == "pids.max" { limit } else { current };
                text.map(str::to_owned)
            };
            let group = Group { dir: PathBuf::new(), version };
            assert_eq!(group.threads_left(read), expected, "{version:?} {limit:?} {current:?}");
        }
    }

    #[test]
    fn the_time_of_waiting_is_that_of_some_task() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n";
        assert_eq!(stalled_us(text), Some(1234));
        assert_eq!(stalled_us("full avg10=0.00 total=99\n"), None);
        assert_eq!(stalled_us(""), None);
    }
}
