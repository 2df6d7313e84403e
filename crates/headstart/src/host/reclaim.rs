//! Whether this kernel reclaims pages without memory pressure. What it takes is not looked at.
//!
//! DAMON's proactive reclaim takes pages that it believes idle. It judges regions of memory, so it also takes
//! pages that were just read into a region that nobody used before. There are two interfaces, `DAMON_RECLAIM` and
//! the schemes of `kdamond` threads with the action `pageout` (Documentation/admin-guide/mm/damon).

use crate::host::contents;
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The switch of a proactive reclaim.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Switch {
    /// The kernel's file.
    pub file: PathBuf,
    /// What to write there, so that it ends.
    pub off: &'static str,
}

/// The switches of those that are on; `None` if this user may not know.
pub fn proactive() -> Option<Vec<Switch>> {
    proactive_in(Path::new("/sys"))
}

fn proactive_in(sys: &Path) -> Option<Vec<Switch>> {
    let says = |file: &Path, what: &str| contents::text(file).is_ok_and(|text| text.trim() == what);
    let module = sys.join("module/damon_reclaim/parameters/enabled");
    let threads = entries(&sys.join("kernel/mm/damon/admin/kdamonds"));
    let mut switches =
        [module.clone()].into_iter().chain(threads.iter().map(|thread| thread.join("state")));
    if switches.any(|switch| is_forbidden(&switch)) {
        return None;
    }
    let module = says(&module, "Y").then_some(Switch { file: module, off: "N" });
    let reclaims = |thread: &PathBuf| {
        let schemes = entries(&thread.join("contexts"))
            .into_iter()
            .flat_map(|context| entries(&context.join("schemes")));
        says(&thread.join("state"), "on")
            && schemes.map(|scheme| scheme.join("action")).any(|action| says(&action, "pageout"))
    };
    let threads = threads
        .into_iter()
        .filter(reclaims)
        .map(|thread| Switch { file: thread.join("state"), off: "off" });
    Some(module.into_iter().chain(threads).collect())
}

/// Whether a file is there that this user may not read.
fn is_forbidden(file: &Path) -> bool {
    contents::bytes(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// What is in a directory, in order; nothing if it can't be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<_> = read.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_and_pages_out_counts() {
        let sys = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = sys.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let found = || {
            let found = proactive_in(sys.path()).unwrap().into_iter();
            let part = |file: PathBuf| file.strip_prefix(sys.path()).unwrap().display().to_string();
            found.map(|switch| (part(switch.file), switch.off)).collect::<Vec<_>>()
        };
        assert!(found().is_empty());

        let admin = "kernel/mm/damon/admin/kdamonds";
        for (thread, state, actions) in [
            ("0", "on\n", &["stat\n", "pageout\n"][..]),
            ("1", "on\n", &["stat\n"]),
            ("2", "off\n", &["pageout\n"]),
            ("3", "on\n", &[]),
        ] {
            write(&format!("{admin}/{thread}/state"), state);
            for (number, action) in actions.iter().enumerate() {
                write(&format!("{admin}/{thread}/contexts/0/schemes/{number}/action"), action);
            }
        }
        write("module/damon_reclaim/parameters/enabled", "N\n");
        let thread = (format!("{admin}/0/state"), "off");
        assert_eq!(found(), std::slice::from_ref(&thread));

        write("module/damon_reclaim/parameters/enabled", "Y\n");
        let module = ("module/damon_reclaim/parameters/enabled".to_owned(), "N");
        assert_eq!(found(), [module, thread]);
    }
}
