//! Shared by the tests of all crates: loop-mounted file systems ([`LoopFs`]), requirements and
//! skips, commands, files, and page reclaim by the kernel ([`undisturbed`]). It knows nothing about
//! the command's output.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod control_group;
pub mod fuse;
mod loop_fs;
mod reclaim;

pub use control_group::ControlGroup;
pub use loop_fs::{LoopFs, bind};
pub use reclaim::{undisturbed, undisturbed_with};

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says why a test does not run; under CI, where all of them must run, it fails.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "can't run in CI: {why}");
    eprintln!("skipped: {why}");
}

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True for root, else the test is skipped.
pub fn root_or_skip() -> bool {
    let root = is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Whether a program is there.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The path of the python3 interpreter, or a word that the test is skipped. The command of that name
/// may be a script of a version manager, which runs processes of its own.
pub fn python() -> Option<String> {
    if !has("python3") {
        skip("python3 is missing");
        return None;
    }
    let shown = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    Some(String::from_utf8(shown.unwrap().stdout).unwrap().trim().to_owned())
}

/// A program as the user who owns no process and no file, on every distribution.
pub fn as_nobody(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
    command
}

/// Runs a command to its end: its standard output, or what it said of its failure.
///
/// # Errors
/// It can't be started, or its status is not 0.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program} {arguments:?}: {output:?}"))
    }
}

/// Like [`run`], of a command that has to succeed.
#[track_caller]
pub fn must(program: &str, arguments: &[&str]) -> String {
    run(program, arguments).unwrap()
}

/// Asks again and again, for a minute at most.
#[track_caller]
pub fn wait_until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "after a minute there is still no {what}");
        // Others have the CPU meanwhile.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory on disk, beside the test's program: `/tmp` may be in memory.
pub fn disk_dir() -> TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

/// A directory on disk that every user can look into: that of the build may be in
/// somebody's home, as root's is when root cloned the project there.
pub fn public_dir() -> TempDir {
    let all = fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().permissions(all).tempdir_in("/var/tmp").unwrap()
}

/// Bytes that no file system stores as a hole or compresses well.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Writes a file and brings it to the device, so that its pages are clean.
pub fn write_synced(path: &Path, data: &[u8]) {
    fs::write(path, data).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// Runs `inner`, an ignored test of the calling program, through `wrapper`, the command
/// line before it. It is named by `concat!(module_path!(), "::its_name")`; `exe` is this
/// program's name where the wrapper starts it.
#[track_caller]
pub fn run_inner(inner: &str, wrapper: &[&str], exe: &Path, variables: &[(&str, String)]) {
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(exe)
        .args(["--exact", libtest_name(inner), "--ignored", "--nocapture"])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{wrapper:?}: {text}");
}

/// What libtest calls a test whose whole path is this: it omits the crate.
pub fn libtest_name(path: &str) -> &str {
    path.split_once("::").unwrap().1
}

/// A variable that [`run_inner`] has set; without it the test was started alone.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    if value.is_none() {
        eprintln!("started only by another test");
    }
    value
}
