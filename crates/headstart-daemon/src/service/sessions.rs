//! Watches the files of logind's sessions (inotify(7)), and finds logins. Where there is no logind yet,
//! it looks again after a while.
//!
//! Why not D-Bus: its signal `SessionNew` says the same a moment earlier, and needs a connection that is
//! kept, authenticated and made again after each restart of the bus, where this is one descriptor.

use crate::early::sessions::Sessions;
use headstart::host::clock::monotonic_ns;
use headstart::host::contents;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether there is a logind.
const AGAIN: Duration = Duration::from_secs(5);
/// Logind replaces its files by rename(2).
const WANTED: WatchFlags = WatchFlags::MOVED_TO.union(WatchFlags::ONLYDIR);

/// The watch of a directory.
#[derive(Debug)]
pub(super) struct SessionFiles {
    dir: PathBuf,
    watch: Option<OwnedFd>,
    looked: Option<Instant>,
    sessions: Sessions,
}

impl SessionFiles {
    pub(super) fn of(dir: PathBuf) -> Self {
        Self { dir, watch: None, looked: None, sessions: Sessions::default() }
    }

    /// Waits for a while or for a session; the users who have just logged in.
    pub(super) fn wait(&mut self, longest: Timespec) -> Vec<u32> {
        let names = match &self.watch {
            Some(watch) => {
                let mut fds = [PollFd::new(watch, PollFlags::IN)];
                // An error is a wake-up.
                let _ = poll(&mut fds, Some(&longest));
                changed(watch)
            }
            None => {
                thread::sleep(longest.try_into().unwrap_or(AGAIN));
                self.begin()
            }
        };
        let Some(names) = names else {
            // The directory is gone, as with logind.
            self.watch = None;
            return Vec::new();
        };
        names.iter().filter_map(|name| self.login(name)).collect()
    }

    /// Watches the directory, if it is there; the names in it.
    fn begin(&mut self) -> Option<Vec<OsString>> {
        if self.looked.is_some_and(|looked| looked.elapsed() < AGAIN) {
            return None;
        }
        self.looked = Some(Instant::now());
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        inotify::add_watch(&watch, &self.dir, WANTED).ok()?;
        self.watch = Some(watch);
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        Some(entries.map(|entry| entry.file_name()).collect())
    }

    fn login(&mut self, name: &OsStr) -> Option<u32> {
        let path = self.dir.join(name);
        // Beside each is a pipe, and reading that waits for the session's end.
        let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
        let text = is_file.then(|| contents::text(&path).ok()).flatten()?;
        self.sessions.login(&text, monotonic_ns() / 1000)
    }
}

/// The names that were replaced; none if there is nothing to watch any more. When too many were, those
/// that are lost are no logins of a person.
fn changed(watch: &OwnedFd) -> Option<Vec<OsString>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(watch, &mut buffer);
    let mut names = Vec::new();
    loop {
        match events.next() {
            Ok(event) if event.events().contains(ReadFlags::IGNORED) => return None,
            Ok(event) => {
                let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                names.extend(name.map(OsStr::to_owned));
            }
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Some(names),
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// A session that begins now, as logind writes it: beside, and then renamed.
    fn begin_session(dir: &std::path::Path, name: &str, uid: u32) {
        let now = monotonic_ns() / 1000;
        let text = format!("UID={uid}\nTYPE=tty\nCLASS=user\nMONOTONIC={now}\n");
        let draft = dir.join(".#draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, dir.join(name)).unwrap();
    }

    #[test]
    fn a_login_is_seen_when_it_happens_or_shortly_after_and_logind_may_come_later() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("sessions");
        let mut files = SessionFiles::of(dir.clone());
        assert!(files.wait(AT_ONCE).is_empty());
        fs::create_dir(&dir).unwrap();
        begin_session(&dir, "1", 7);
        files.looked = None;
        assert_eq!(files.wait(AT_ONCE), [7], "it was there when the watch began");
        begin_session(&dir, "2", 8);
        begin_session(&dir, "c3", 9);
        begin_session(&dir, "2", 8);
        assert_eq!(files.wait(SECOND), [8, 9]);
        assert!(files.wait(AT_ONCE).is_empty());
        let fifo = dir.join("2.ref");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        fs::rename(fifo, dir.join("4.ref")).unwrap();
        assert!(files.wait(SECOND).is_empty(), "a pipe is not read");
        fs::remove_dir_all(&dir).unwrap();
        assert!(files.wait(SECOND).is_empty());
        fs::create_dir(&dir).unwrap();
        files.looked = None;
        assert!(files.wait(AT_ONCE).is_empty());
        begin_session(&dir, "5", 10);
        assert_eq!(files.wait(SECOND), [10]);
    }
}
