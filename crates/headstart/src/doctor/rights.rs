//! The permissions and namespaces of this process. Pure.

use crate::host::contents;
use crate::host::fsid::{FsIdError, FsUuid};
use std::io;

use super::check::Check;

/// Capabilities as bits of `CapEff` (`include/uapi/linux/capability.h`).
pub const DAC_READ_SEARCH: u32 = 2;
/// Other processes can be followed.
pub const SYS_PTRACE: u32 = 19;
/// Much of what only root may do.
pub const SYS_ADMIN: u32 = 21;
/// Priorities of other processes, and raising one's own.
pub const SYS_NICE: u32 = 23;
/// Performance monitoring (5.8).
pub const PERFMON: u32 = 38;

/// Inode numbers of the first namespaces (`include/linux/proc_ns.h`).
const FIRST_USER_NAMESPACE: u64 = 0xeffffffd;
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

/// The effective capabilities in `/proc/self/status`; none if it has no such
/// line.
pub fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

/// The effective capabilities of this process; none without /proc.
pub fn own() -> u64 {
    effective(&contents::text("/proc/self/status").unwrap_or_default())
}

/// Whether a capability is among the effective ones.
pub fn has(effective: u64, capability: u32) -> bool {
    effective & 1 << capability != 0
}

/// Whether capabilities of the user namespace with this number count for the whole machine;
/// a kernel without such namespaces has no number.
pub fn is_first_user_namespace(number: Option<u64>) -> bool {
    number.is_none_or(|number| number == FIRST_USER_NAMESPACE)
}

/// The capabilities that headstart makes use of.
pub fn capabilities(effective: u64) -> Vec<Check> {
    [
        (
            SYS_ADMIN,
            "cap_sys_admin",
            "Inodes of xfs and btrfs can be named, and metadata evicted",
            "Inodes of xfs and btrfs are named by walking, and metadata can't be evicted",
        ),
        (
            DAC_READ_SEARCH,
            "cap_dac_read_search",
            "Files can be opened by inode, and all files prefetched",
            "Files can't be opened by inode, and others' unreadable files not be prefetched",
        ),
        (
            SYS_NICE,
            "cap_sys_nice",
            "The replay can be given any priority",
            "The replay can't be given a higher priority than its parent has",
        ),
    ]
    .into_iter()
    .map(|(capability, id, with, without)| {
        if has(effective, capability) {
            Check::ok(id, with)
        } else {
            Check::degraded(id, without).fix("sudo headstart …")
        }
    })
    .collect()
}

/// Whether a file could be opened by its handle, as inodes from traces are.
pub fn open_by_handle(tried: io::Result<()>) -> Check {
    const ID: &str = "open_by_handle_at";
    match tried {
        Ok(()) => Check::ok(ID, "Files can be found by inode, without walking through directories"),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let meaning =
                "Files can't be opened by inode; they are found by walking, which is slow";
            Check::degraded(ID, meaning).fix("sudo headstart record …")
        }
        Err(e) => Check::degraded(
            ID,
            format!(
                "The root file system does not open files by inode, so they are found by walking: {e}"
            ),
        ),
    }
}

/// Whether the root file system, of this type, has a UUID. One of zeros is none: all file systems
/// that were made so have it.
pub fn fs_uuid(kind: &str, found: Result<Option<FsUuid>, FsIdError>) -> Check {
    const ID: &str = "fs_uuid";
    let fix = match kind {
        "ext2" | "ext3" | "ext4" => Some("tune2fs -U random DEVICE"),
        "xfs" => Some("xfs_admin -U generate DEVICE, not mounted"),
        "btrfs" => Some("btrfstune -u DEVICE, not mounted"),
        _ => None,
    };
    match found {
        Ok(Some(uuid)) if uuid.0 != [0; 16] => {
            Check::ok(ID, "The root file system has a UUID, by which packs identify it")
        }
        Ok(_) => {
            let check = Check::degraded(
                ID,
                "The root file system has no UUID of its own, by which packs identify it: its metadata \
                 may not be prefetched, nor its packs renewed",
            );
            match fix {
                Some(fix) => check.fix(fix),
                None => check,
            }
        }
        Err(error) => Check::degraded(ID, error.to_string()),
    }
}

/// The namespaces by the inode numbers of `/proc/self/ns`; `None`: no such
/// namespace or no `/proc`.
pub fn namespaces(user: Option<u64>, pid: Option<u64>) -> [Check; 2] {
    let user = if is_first_user_namespace(user) {
        Check::ok("user_namespace", "In the first user namespace: capabilities count everywhere")
    } else {
        Check::degraded(
            "user_namespace",
            "In a user namespace: root here is not root for tracing, other file systems or devices",
        )
        .fix("run headstart outside of the container")
    };
    let pid = Check::ok(
        "pid_namespace",
        if pid.is_none_or(|number| number == FIRST_PID_NAMESPACE) {
            "In the first PID namespace: trace events have the process numbers of /proc"
        } else {
            "In a PID namespace: programs are followed by the numbers that the kernel has for them"
        },
    );
    [user, pid]
}

/// Which container this is, from the files that container engines leave.
pub fn container(name: Option<&str>) -> Check {
    let meaning = match name {
        Some(name) => format!("In a container ({name}): what the kernel offers may be restricted"),
        None => "Not in a container, as far as can be seen".to_owned(),
    };
    Check::ok("container", meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    #[test]
    fn capabilities_are_bits_of_one_line() {
        let status = "Name:\tx\nCapPrm:\tffff\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n";
        let all = effective(status);
        assert!(has(all, SYS_ADMIN) && has(all, DAC_READ_SEARCH) && !has(all, 24));
        for broken in ["", "CapEff:", "CapEff:\tx", "CapEff:\t1ffffffffffffffff"] {
            assert_eq!(effective(broken), 0, "{broken}");
        }
    }

    #[test]
    fn each_capability_degrades_for_itself() {
        let states = |bits| capabilities(bits).iter().map(|c| c.state).collect::<Vec<_>>();
        assert_eq!(states(1 << SYS_ADMIN), [State::Ok, State::Degraded, State::Degraded]);
        assert_eq!(states(1 << DAC_READ_SEARCH), [State::Degraded, State::Ok, State::Degraded]);
        assert_eq!(states(1 << SYS_NICE), [State::Degraded, State::Degraded, State::Ok]);
    }

    #[test]
    fn only_the_first_namespaces_are_as_they_should_be() {
        let states = |user, pid| namespaces(user, pid).map(|check| check.state);
        assert_eq!(states(Some(4_026_531_837), Some(4_026_531_836)), [State::Ok, State::Ok]);
        assert_eq!(states(None, None), [State::Ok, State::Ok]);
        let nested = states(Some(4_026_532_000), Some(4_026_532_001));
        assert_eq!(nested, [State::Degraded, State::Ok]);
    }

    #[test]
    fn handles_that_are_forbidden_can_be_had_as_root() {
        let denied = open_by_handle(Err(io::ErrorKind::PermissionDenied.into()));
        assert!(denied.state == State::Degraded && denied.fix.is_some());
        let unsupported = open_by_handle(Err(io::ErrorKind::Unsupported.into()));
        assert!(unsupported.state == State::Degraded && unsupported.fix.is_none());
        assert_eq!(open_by_handle(Ok(())).state, State::Ok);
    }

    #[test]
    fn a_root_file_system_without_a_uuid_is_named_with_the_fix() {
        for (kind, uuid, state, fix) in [
            ("ext4", Some([7; 16]), State::Ok, None),
            ("ext4", Some([0; 16]), State::Degraded, Some("tune2fs -U random")),
            ("ext4", None, State::Degraded, Some("tune2fs -U random")),
            ("xfs", Some([0; 16]), State::Degraded, Some("xfs_admin -U generate")),
            ("overlay", None, State::Degraded, None),
        ] {
            let check = fs_uuid(kind, Ok(uuid.map(FsUuid)));
            assert_eq!(check.state, state, "{kind} {uuid:?}");
            let found = check.fix.as_deref();
            assert_eq!(found.is_some(), fix.is_some(), "{kind} {uuid:?}");
            assert!(found.unwrap_or_default().starts_with(fix.unwrap_or("")), "{found:?}");
        }
    }
}
