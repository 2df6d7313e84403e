//! What recording needs of tracefs. Pure.

use crate::host::names;
use std::path::{Path, PathBuf};

use super::check::{Check, Lack};
use crate::trace::EventKind;
use crate::trace::decode::EVENTS;
use crate::trace::tracefs::TraceError;

/// Where tracefs is; `known`: `/proc/filesystems` has it; `may_mount`: this process may mount
/// it where it is not.
pub fn tracefs(found: &Result<Option<&Path>, &TraceError>, known: bool, may_mount: bool) -> Check {
    const ID: &str = "tracefs";
    const MOUNT: &str = "mount -t tracefs nodev /sys/kernel/tracing";
    match found {
        Ok(Some(root)) => Check::ok(ID, format!("tracefs is mounted on {}", names::path(root))),
        Ok(None) if !known => Check::missing(
            ID,
            Lack::Kernel,
            "This kernel has no tracefs (CONFIG_FTRACE), so nothing can be recorded",
        ),
        Ok(None) if may_mount => {
            Check::degraded(ID, "tracefs is not mounted; recording mounts it").fix(MOUNT)
        }
        Ok(None) => {
            let meaning = "tracefs is not mounted, and this process may not mount it to record";
            Check::missing(ID, Lack::Permission, meaning).fix(format!(
                "sudo {MOUNT}; in a container: start that with --privileged, or record outside"
            ))
        }
        Err(_) => {
            let meaning = "tracefs is closed to this user, so only root can record";
            Check::missing(ID, Lack::Permission, meaning).fix("sudo headstart record …")
        }
    }
}

/// The trace events; `format` gives the text of an event's `format` file if the
/// kernel has the event.
pub fn events(format: impl Fn(&str, &str) -> Option<String>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut lacking = Vec::new();
    for (group, name, kind) in EVENTS {
        let format = format(group, name);
        match (kind, format) {
            (EventKind::Insert, Some(format)) => checks.extend(inserts(name, &format)),
            (EventKind::Insert, None) => checks.push(Check::missing(
                "insert_event",
                Lack::Kernel,
                format!("This kernel lacks the trace event {name}, so nothing can be recorded"),
            )),
            (EventKind::Metadata, Some(_)) => checks.push(Check::ok(
                "metadata_event",
                "Accesses to file-system metadata are recorded (block_touch_buffer)",
            )),
            (EventKind::Metadata, None) => checks.push(Check::degraded(
                "metadata_event",
                "Metadata is learned from cold starts only: no event block_touch_buffer",
            )),
            (_, Some(_)) => {}
            (_, None) => lacking.push(name),
        }
    }
    checks.push(if lacking.is_empty() {
        Check::ok("access_events", "Pages that a start touches are recorded, also from warm starts")
    } else {
        let lacking = lacking.join(", ");
        Check::degraded(
            "access_events",
            format!("Starts are learned less exactly: this kernel lacks {lacking}"),
        )
    });
    checks
}

fn inserts(name: &str, format: &str) -> [Check; 2] {
    let insert = Check::ok("insert_event", format!("Pages that come in are recorded ({name})"));
    let order = if format.lines().any(|line| line.contains(" order;")) {
        Check::ok("insert_order", "Events report the size of a folio")
    } else {
        Check::degraded(
            "insert_order",
            "Events do not report the size of a folio: of larger ones only the first page is recorded",
        )
    };
    [insert, order]
}

/// Whether the files that scope a recording to a process and its children exist.
pub fn following(pid_filter: bool, event_fork: bool) -> Check {
    const ID: &str = "set_event_pid";
    if pid_filter && event_fork {
        return Check::ok(ID, "Recordings can be limited to a program and its children");
    }
    let meaning = "This kernel can't limit recordings to a program (set_event_pid, event-fork); \
                   only the whole system can be recorded";
    Check::missing(ID, Lack::Kernel, meaning)
}

/// Whether a trace instance could be created.
pub fn instance(tried: Result<(), TraceError>) -> Check {
    const ID: &str = "trace_instances";
    match tried {
        Ok(()) => Check::ok(ID, "Recordings have trace buffers of their own"),
        Err(TraceError::Permission(_)) => {
            let meaning = "This user can't create a trace instance, so only root can record";
            Check::missing(ID, Lack::Permission, meaning).fix("sudo headstart record …")
        }
        Err(error) => {
            // The path is in the error, the kernel's reason in its source.
            let mut meaning = format!("No trace instance can be created: {error}");
            if let Some(source) = std::error::Error::source(&error) {
                meaning += &format!(": {source}");
            }
            Check::missing(ID, Lack::Kernel, meaning)
        }
    }
}

/// Trace instances that killed recordings left behind.
pub fn leftovers(orphans: &[PathBuf]) -> Check {
    const ID: &str = "leftovers";
    if orphans.is_empty() {
        return Check::ok(ID, "No recording left a trace instance behind");
    }
    let names: Vec<_> = orphans.iter().map(|path| names::path(path).to_string()).collect();
    let meaning = format!("Ended recordings left trace instances behind: {}", names.len());
    Check::degraded(ID, meaning).fix(format!("sudo rmdir {}", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::{State, verdict};
    use std::io;

    fn denied() -> TraceError {
        TraceError::Permission(io::ErrorKind::PermissionDenied.into())
    }

    #[test]
    fn where_tracefs_is_decides_with_the_user() {
        let root = Path::new("/sys/kernel/tracing");
        let denied = denied();
        for (found, known, may_mount, state, lack) in [
            (Ok(Some(root)), true, false, State::Ok, None),
            (Ok(None), true, true, State::Degraded, None),
            (Ok(None), true, false, State::Missing, Some(Lack::Permission)),
            (Ok(None), false, true, State::Missing, Some(Lack::Kernel)),
            (Err(&denied), true, false, State::Missing, Some(Lack::Permission)),
        ] {
            let check = tracefs(&found, known, may_mount);
            assert_eq!((check.state, check.lack), (state, lack), "{check:?}");
        }
    }

    #[test]
    fn a_kernel_with_all_events_lacks_nothing() {
        let order = "\tfield:unsigned char order;\toffset:36;\tsize:1;\tsigned:0;\n";
        let checks = events(|_, _| Some(order.to_owned()));
        assert_eq!(checks.len(), 4);
        assert!(checks.iter().all(|check| check.state == State::Ok), "{checks:?}");
    }

    #[test]
    fn an_old_kernel_degrades_and_one_without_inserts_is_missing_them() {
        let checks = events(|_, name| (name == EVENTS[0].1).then(|| "field:long pfn;".to_owned()));
        let state = |id| checks.iter().find(|check| check.id == id).unwrap().state;
        for (id, expected) in [
            ("insert_event", State::Ok),
            ("insert_order", State::Degraded),
            ("access_events", State::Degraded),
            ("metadata_event", State::Degraded),
        ] {
            assert_eq!(state(id), expected, "{id}");
        }
        assert_eq!(verdict(&checks), None);
        assert_eq!(verdict(&events(|_, _| None)), Some(Lack::Kernel));
    }

    #[test]
    fn instances_and_their_filter_are_needed() {
        assert_eq!(following(true, true).state, State::Ok);
        assert_eq!(following(true, false).lack, Some(Lack::Kernel));
        assert_eq!(instance(Ok(())).state, State::Ok);
        assert_eq!(instance(Err(denied())).lack, Some(Lack::Permission));
        let source = io::ErrorKind::OutOfMemory.into();
        let check = instance(Err(TraceError::File { path: "/x".into(), source }));
        assert_eq!(check.lack, Some(Lack::Kernel));
        assert!(check.meaning.contains("/x: out of memory"), "{check:?}");
    }

    #[test]
    fn leftovers_come_with_the_command_that_removes_them() {
        assert_eq!(leftovers(&[]).state, State::Ok);
        let check = leftovers(&["/t/headstart-1-2-3".into()]);
        assert_eq!(check.fix.as_deref(), Some("sudo rmdir /t/headstart-1-2-3"));
    }
}
