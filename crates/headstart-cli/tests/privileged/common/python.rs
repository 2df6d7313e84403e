//! A root directory with Python in it, on a file system of a test's own.

use headstart_testing::{LoopFs, must, skip};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Thirty modules of the standard library.
pub const MODULES: &str = "argparse, ast, asyncio, bz2, calendar, collections, \
    concurrent.futures, csv, ctypes, datetime, decimal, difflib, email, fractions, ftplib, \
    getpass, gzip, hashlib, html.parser, http.client, json, logging.config, multiprocessing, \
    pathlib, pickle, random, shutil, sqlite3, ssl, tarfile";

/// The directories in which Debian keeps the interpreter's own files.
const INTERPRETER: &str = "/usr/bin/python3";

/// Copies Python to `fs`, so that `chroot FS /usr/bin/python3` works, and
/// remounts it; false, with the reason said, where there is none.
pub fn install(fs: &LoopFs) -> bool {
    let Ok(real) = std::fs::canonicalize(INTERPRETER) else {
        skip("/usr/bin/python3 is missing; install python3");
        return false;
    };
    let name = real.file_name().unwrap().to_str().unwrap();
    let library = PathBuf::from("/usr/lib").join(name);
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        must("cp", &["-rL", from.to_str().unwrap(), to.to_str().unwrap()]);
    };
    let inside = |path: &Path| fs.path().join(path.strip_prefix("/").unwrap());
    copy(&real, &inside(Path::new(INTERPRETER)));
    // The tests of the library would not fit.
    for entry in std::fs::read_dir(&library).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_none_or(|n| n != "test") {
            copy(&path, &inside(&path));
        }
    }
    let modules = std::fs::read_dir(library.join("lib-dynload")).unwrap();
    let mut libraries = BTreeSet::new();
    for file in modules.map(|e| e.unwrap().path()).chain([real]) {
        libraries.extend(libraries_of(&file));
    }
    for path in libraries {
        copy(&path, &inside(&path));
    }
    fs.remount();
    true
}

/// The shared libraries that a program needs, as ldd(1) tells them.
fn libraries_of(file: &Path) -> Vec<PathBuf> {
    let told = Command::new("ldd").arg(file).output().unwrap();
    String::from_utf8(told.stdout)
        .unwrap()
        .split_ascii_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(|word| PathBuf::from(word.trim_end_matches(':')))
        .filter(|path| path != file)
        .collect()
}
