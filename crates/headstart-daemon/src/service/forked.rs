//! A process was forked, and may do another job without exec: whether it does, and which program it then
//! is. Its key is that of its parent with what distinguishes it: the name that it took, else the control group
//! that it is in, else only that it is a child.

use super::arrival::{Arrival, began_lately};
use super::looks::{self, Whose};
use crate::execs::Exec;
use crate::programs::Id;
use crate::started::Started;
use headstart::host::contents;
use headstart::host::proc;
use std::path::Path;

/// A child that has read less than this from disks is none whose start is slow, in bytes.
const FEW_BYTES: u64 = 128 << 10;
/// What a child is called that has no name or group of its own.
const CHILD: &str = "child";

impl Arrival {
    /// Does what is to be done for a child.
    pub(super) fn fork(&self, exec: Exec) -> Option<()> {
        let pid = exec.pid.cast_signed();
        let stat = contents::bytes(format!("/proc/{pid}/stat")).ok()?;
        let process = (exec.pid, proc::parse_start_time(&stat)?);
        let is_thread = proc::status(pid, "Tgid") != Some(exec.pid.into());
        let shared = self.shared();
        if is_thread || !began_lately(process.1, shared.config.window) || self.was_seen(process) {
            return None;
        }
        let counters = looks::counters(process.0, process.1, Whose::Family)?;
        let has_read = counters.read_bytes >= FEW_BYTES;
        if !has_read && shared.watching.forkers.is_empty() {
            return None;
        }
        let mut child = Started::read(exec.pid)?;
        let parent = Started::read(child.parent)?;
        let is_ours = self.is_headstart(&parent.path);
        if is_ours || shared.config.ignores(parent.path.as_os_str().as_encoded_bytes()) {
            return None;
        }
        // Else it has called exec, does so, or shows its state there.
        if !child.is_as_forked(&parent) || proc::is_in_exec(pid) {
            return None;
        }
        child.is_job = true;
        let job = job(&child, &parent);
        let key = self.key(&mut child)?.of_job(&job);
        let id = Id { uid: child.uid, file_name: key.file_name.clone() };
        let is_known = shared.state().table.get(&id).is_some_and(|program| program.is_remembered());
        if !is_known && !has_read {
            return None;
        }
        shared.count(|counters| counters.by_forks += 1);
        let executable = child.path.to_string_lossy().into_owned();
        let forker = String::from_utf8_lossy(&parent.comm).into_owned();
        self.start(exec, child, key, executable, forker);
        Some(())
    }
}

/// What distinguishes a child from its parent.
fn job(child: &Started, parent: &Started) -> String {
    let group = |started: &Started| {
        let name = Path::new(&started.cgroup).file_name().map(ToOwned::to_owned);
        name.filter(|_| child.cgroup != parent.cgroup)
    };
    match (child.comm != parent.comm, group(child)) {
        (true, _) => String::from_utf8_lossy(&child.comm).into_owned(),
        (false, Some(group)) => group.to_string_lossy().into_owned(),
        (false, None) => CHILD.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_known_by_its_name_or_its_group() {
        let parent = Started::read(std::process::id()).unwrap();
        let named = Started { comm: b"render".to_vec(), ..parent.clone() };
        let moved = Started { cgroup: "/user.slice/app-x.scope".into(), ..parent.clone() };
        for (child, expected) in [(&parent, CHILD), (&named, "render"), (&moved, "app-x.scope")] {
            assert_eq!(job(child, &parent), expected);
        }
    }
}
