//! Whether a user has logged in, as logind says: it keeps a file of assignments for each session in
//! `/run/systemd/sessions` (sd-login(3) reads them too).

use crate::host::clock::micros;
use crate::host::contents;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How long reading has to have died down for a session to be there.
const QUIET: Duration = Duration::from_secs(2);

/// When the first user logged in, in µs of the monotonic clock; `None` when nobody has.
/// Greeters and the sessions of cron jobs do not count.
pub fn first(sessions: &Path) -> Option<u64> {
    let entries = fs::read_dir(sessions).into_iter().flatten().flatten();
    // Beside each is a pipe that lasts as long as the session: reading that waits for its end.
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    // A file is replaced by rename, so it is whole; what is no session has no such line.
    entries.filter_map(|entry| login(&contents::text(entry.path()).ok()?)).min()
}

/// When the session of a user began, in µs of the monotonic clock, by its file; `None` for
/// any other session.
pub fn login(session: &str) -> Option<u64> {
    let value = |key: &str| {
        let line = session.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.trim_matches('"'))
    };
    let is_user = value("CLASS").is_some_and(|class| ["user", "user-early"].contains(&class));
    let is_seen = value("TYPE").is_some_and(|kind| kind != "unspecified");
    if is_user && is_seen { value("MONOTONIC")?.parse().ok() } else { None }
}

/// Since when a session has been quiet, in µs of the monotonic clock: `now` hardly anything
/// has been read for so long, and somebody logged in then. `None` until it has been for long
/// enough: a machine that waited for its user was quiet before that, too.
pub fn quiet_since(login: u64, now: u64, idle: Duration) -> Option<u64> {
    let since = now.saturating_sub(micros(idle)).max(login);
    (now.saturating_sub(since) >= micros(QUIET)).then_some(since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, OFlags};

    fn session(class: &str, kind: &str, at: &str) -> String {
        format!("# private\nUID=1000\nACTIVE=1\nTYPE={kind}\nCLASS={class}\nMONOTONIC={at}\n")
    }

    #[test]
    fn only_sessions_of_users_are_logins() {
        for (text, expected) in [
            (session("user", "wayland", "71000000"), Some(71_000_000)),
            (session("user", "tty", "5"), Some(5)),
            (session("greeter", "x11", "5"), None),
            (session("background", "unspecified", "5"), None),
            (session("user", "unspecified", "5"), None),
            (session("manager", "tty", "5"), None),
            (session("user", "tty", "soon"), None),
            (String::new(), None),
        ] {
            assert_eq!(login(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_session_is_quiet_two_seconds_after_its_login_at_the_earliest() {
        for (what, login, idle_ms, expected) in [
            ("it has started all that it starts", 5_000_000, 2_500, Some(7_500_000)),
            ("it still reads", 5_000_000, 1_999, None),
            ("the user came to a machine that waited", 9_900_000, 60_000, None),
            ("and started nothing", 8_000_000, 60_000, Some(8_000_000)),
            ("as little can be known of what is to come", 10_000_001, 60_000, None),
        ] {
            let idle = Duration::from_millis(idle_ms);
            assert_eq!(quiet_since(login, 10_000_000, idle), expected, "{what}");
        }
    }

    #[test]
    fn the_first_login_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(first(dir.path()), None);
        fs::write(dir.path().join("2"), session("user", "tty", "9")).unwrap();
        fs::write(dir.path().join("1"), session("user", "tty", "7")).unwrap();
        fs::write(dir.path().join("c1"), session("greeter", "tty", "3")).unwrap();
        assert_eq!(first(dir.path()), Some(7));
        assert_eq!(first(&dir.path().join("none")), None);
    }

    #[test]
    fn the_pipe_of_a_session_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("1"), session("user", "tty", "7")).unwrap();
        let pipe = dir.path().join("1.ref");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, session("user", "tty", "3"))
        });
        assert_eq!(first(dir.path()), Some(7));
        // Opening it to write waits for a reader.
        let reader = rustix::fs::open(&pipe, OFlags::RDONLY, Mode::empty()).unwrap();
        writer.join().unwrap().unwrap();
        drop(reader);
    }
}
