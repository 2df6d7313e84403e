//! Kernel features. Pure.

use std::io;

use super::check::Check;

/// Which kernel this is. Nothing follows from it: features are looked for, since
/// distributors port them to old kernels and leave them out of new ones.
pub fn release(release: &str, machine: &str) -> Check {
    Check::ok("kernel", format!("Linux {release} on {machine}"))
}

/// The unit of everything in a pack.
pub fn page_size(bytes: u64) -> Check {
    let kib = bytes / 1024;
    Check::ok(
        "page_size",
        format!("Pages have {kib} KiB; packs from kernels with others are not used"),
    )
}

/// Whether cachestat(2) worked on a file of our own.
pub fn cachestat(tried: io::Result<()>) -> Check {
    match tried {
        Ok(()) => Check::ok("cachestat", "Cached pages can be counted without mapping files"),
        Err(e) => Check::degraded(
            "cachestat",
            format!("Cached pages are counted by mapping each file, which is slower: {e}"),
        ),
    }
}

/// `kernel.perf_event_paranoid`, for measuring page faults; `rights`: whether
/// this user is beyond it.
pub fn perf(setting: io::Result<String>, rights: bool) -> Check {
    const ID: &str = "perf_event_paranoid";
    let Ok(text) = setting else {
        return Check::degraded(ID, "This kernel has no perf events: page faults can't be timed");
    };
    match text.trim().parse::<i32>() {
        Ok(level) if level <= 2 || rights => {
            Check::ok(ID, format!("Page faults of your programs can be timed (level {level})"))
        }
        Ok(level) => {
            let meaning = format!("Only root can time page faults (level {level})");
            Check::degraded(ID, meaning).fix("sudo sysctl kernel.perf_event_paranoid=2")
        }
        Err(_) => Check::degraded(ID, format!("The setting {:?} is not understood", text.trim())),
    }
}

/// `/proc/pressure/io`: pressure stall information.
pub fn pressure(read: io::Result<String>) -> Check {
    const ID: &str = "pressure";
    match read {
        Ok(text) if text.starts_with("some ") => {
            Check::ok(ID, "The kernel reports how long programs wait for memory and devices")
        }
        _ => Check::degraded(
            ID,
            "The kernel does not report how long programs wait for memory and devices",
        )
        .fix("add psi=1 to the kernel command line and restart"),
    }
}

/// `kernel.io_uring_disabled` (6.6): absent, or 0 to 2. Never needed.
pub fn io_uring(setting: io::Result<String>) -> Check {
    let state = match setting.as_deref().map(str::trim) {
        Ok("1") => "allowed to some",
        Ok("2") => "forbidden",
        Ok(_) => "allowed",
        Err(_) => "not restricted by this kernel, if it has it",
    };
    Check::ok("io_uring", format!("io_uring is {state}; headstart does not need it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    fn text(text: &str) -> io::Result<String> {
        Ok(text.to_owned())
    }

    fn none<T>() -> io::Result<T> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[test]
    fn timing_faults_depends_on_the_level_and_the_rights() {
        for (setting, rights, state) in [
            (text("-1\n"), false, State::Ok),
            (text("2\n"), false, State::Ok),
            (text("3\n"), false, State::Degraded),
            (text("4\n"), true, State::Ok),
            (text("x"), true, State::Degraded),
            (none(), true, State::Degraded),
        ] {
            let shown = format!("{setting:?} {rights}");
            assert_eq!(perf(setting, rights).state, state, "{shown}");
        }
        assert!(perf(text("3"), false).fix.is_some_and(|fix| fix.contains("=2")));
    }

    #[test]
    fn what_is_not_there_degrades_and_io_uring_never_does() {
        assert_eq!(cachestat(none()).state, State::Degraded);
        assert_eq!(cachestat(Ok(())).state, State::Ok);
        assert_eq!(pressure(none()).state, State::Degraded);
        assert_eq!(pressure(text("some avg10=0.00 avg60=0.00")).state, State::Ok);
        for (setting, word) in
            [(text("0\n"), " allowed;"), (text("2\n"), "forbidden"), (none(), "if")]
        {
            let check = io_uring(setting);
            assert_eq!(check.state, State::Ok);
            assert!(check.meaning.contains(word), "{check:?}");
        }
    }
}
