//! Which processes belong to a service: those that systemd put into its control group.
//!
//! All processes that systemd forks are recorded. This checks repeatedly whose they are, so that
//! those of other services can be skipped. A process that ended before a check counts as the
//! service's.

use crate::host::contents;
use crate::host::proc;
use std::collections::{HashMap, HashSet};
use std::fs;

/// The control group of systemd itself, where forked processes begin.
const INIT: &str = "/init.scope";

/// The processes that began since the first look.
#[derive(Debug)]
pub struct Members {
    unit: String,
    /// Earlier processes, which are not recorded.
    old: HashSet<i32>,
    /// Processes of other control groups, with their threads.
    others: HashMap<i32, HashSet<i32>>,
    /// Whether a process of the service was seen.
    seen: bool,
}

impl Members {
    /// Begins to look for those of a unit, by its full name.
    pub fn of(unit: &str) -> Self {
        let old = processes().collect();
        Self { unit: unit.into(), old, others: HashMap::new(), seen: false }
    }

    /// Looks at all processes that began since.
    pub fn look(&mut self) {
        for pid in processes().filter(|pid| !self.old.contains(pid)) {
            let Ok(cgroup) = contents::text(format!("/proc/{pid}/cgroup")) else { continue };
            match belongs(&cgroup, &self.unit) {
                Some(true) => {
                    self.seen = true;
                    self.others.remove(&pid);
                }
                Some(false) => self.others.entry(pid).or_default().extend(proc::threads_of(pid)),
                None => {}
            }
        }
    }

    /// Whether a process of the service was seen.
    pub fn seen(&self) -> bool {
        self.seen
    }

    /// The threads that are not the service's, systemd among them.
    pub fn others(&self) -> Vec<i32> {
        self.others.values().flatten().copied().chain([1]).collect()
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process with this `/proc/PID/cgroup` (cgroups(7)) belongs to a unit; `None`
/// when that is not known yet.
pub fn belongs(cgroup: &str, unit: &str) -> Option<bool> {
    let path_of = |wanted: &str| {
        cgroup.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            (parts.next()? == wanted).then(|| parts.next())?
        })
    };
    let path = path_of("name=systemd").or_else(|| path_of(""))?;
    let is_init = path == "/" || path == INIT;
    (!is_init).then(|| path.split('/').any(|part| part == unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_unit_whose_control_group_it_is_in() {
        for (cgroup, expected) in [
            ("0::/system.slice/web.service\n", Some(true)),
            ("0::/system.slice/web.service/.control\n", Some(true)),
            ("0::/system.slice/system-web.slice/web.service", Some(true)),
            ("0::/system.slice/cobweb.service\n", Some(false)),
            ("0::/user.slice/user-0.slice/session-1.scope\n", Some(false)),
            ("0::/init.scope\n", None),
            ("0::/\n", None),
            ("", None),
            ("no\n1\n:\n", None),
            ("3:cpu:/other\n1:name=systemd:/system.slice/web.service\n0::/\n", Some(true)),
        ] {
            assert_eq!(belongs(cgroup, "web.service"), expected, "{cgroup}");
        }
    }

    #[test]
    fn systemd_is_never_a_member_and_what_was_there_is_not_looked_at() {
        let mut members = Members::of("web.service");
        members.look();
        let own = i32::try_from(std::process::id()).unwrap();
        let others = members.others();
        assert!(!members.seen());
        assert!(others.contains(&1) && !others.contains(&own), "{others:?}");
    }
}
