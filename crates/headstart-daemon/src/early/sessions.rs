//! Which sessions of logind are logins that have just happened. Pure.
//!
//! logind keeps a file for each session in `/run/systemd/sessions` and replaces it when the session
//! changes; sd_login_monitor(3) watches this directory as well.

use headstart::boot::logins;
use std::collections::BTreeMap;

/// Where logind keeps them.
pub const DIRECTORY: &str = "/run/systemd/sessions";
/// A session that is older when it is first seen was there before the service, in µs.
const NEW: u64 = 30_000_000;
/// Logins of a user within this time are one, in µs: a script may log in a thousand times.
const AGAIN: u64 = 60_000_000;
/// Users whose last login is kept, at most.
const MOST_USERS: usize = 1024;

/// The last logins.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    last: BTreeMap<u32, u64>,
}

impl Sessions {
    /// The user who has just logged in, by the text of a session's file; none if that is no login,
    /// an old one, or one that was noted before. `now` is in µs of the monotonic clock.
    pub fn login(&mut self, session: &str, now: u64) -> Option<u32> {
        let at = logins::login(session)?;
        let uid = session.lines().find_map(|line| line.strip_prefix("UID="))?.parse().ok()?;
        let is_new = at <= now && now - at <= NEW;
        let last = self.last.get(&uid);
        if !is_new || last.is_some_and(|last| at < last.saturating_add(AGAIN)) {
            return None;
        }
        if self.last.len() >= MOST_USERS {
            self.last.clear();
        }
        self.last.insert(uid, at);
        Some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn session(uid: &str, class: &str, at: u64) -> String {
        format!("# private\nUID={uid}\nUSER=x\nTYPE=tty\nCLASS={class}\nMONOTONIC={at}\n")
    }

    #[test]
    fn a_login_counts_once_and_only_when_it_is_new() {
        let mut sessions = Sessions::default();
        for (what, text, now, expected) in [
            ("a login", session("7", "user", 100 * S), 101 * S, Some(7)),
            ("its file is replaced", session("7", "user", 100 * S), 102 * S, None),
            ("another terminal", session("7", "user", 159 * S), 159 * S, None),
            ("another user", session("8", "user", 159 * S), 159 * S, Some(8)),
            ("later", session("7", "user", 160 * S), 161 * S, Some(7)),
            ("there before the service", session("9", "user", 100 * S), 131 * S, None),
            ("in the future", session("9", "user", 200 * S), 199 * S, None),
            ("a greeter", session("9", "greeter", 200 * S), 200 * S, None),
            ("without a user", session("", "user", 200 * S), 200 * S, None),
            ("nothing", String::new(), 200 * S, None),
        ] {
            assert_eq!(sessions.login(&text, now), expected, "{what}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut sessions = Sessions::default();
        for uid in 0..5000 {
            assert_eq!(sessions.login(&session(&uid.to_string(), "user", S), S), Some(uid));
            assert!(sessions.last.len() <= MOST_USERS);
        }
    }
}
