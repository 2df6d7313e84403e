use super::mounts::CurrentMounts;
use super::*;
use headstart::launch::learn::locate;
use rustix::fs::{FileType, Mode, mknodat};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that waits for its input, and ends with the test.
struct Waiting(Child);

impl Waiting {
    fn start(words: &[&str], dir: &Path) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(dir).env("GIT_CONFIG_GLOBAL", dir.join("fifo"));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// What it runs. Spawning it returns while exec has not yet set its arguments.
    fn read(&self) -> Started {
        loop {
            if let Some(started) = Started::read(self.0.id()) {
                return started;
            }
            std::thread::yield_now();
        }
    }

    /// What it runs when it has become this program. What is read within exec is partly of the program
    /// before, and then not the same twice.
    fn read_as(&self, name: &str) -> Started {
        loop {
            let started = self.read();
            let is_it = started.path.file_name().is_some_and(|found| found == name);
            if is_it && started == self.read() {
                return started;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_becomes_another_program_is_told_from_one_that_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut waiting = Waiting::start(&["sh", "-c", "read line; exec cat"], dir.path());
    let sh = fs::canonicalize("/bin/sh").unwrap();
    let shell = waiting.read_as(sh.file_name().unwrap().to_str().unwrap());
    assert!(!shell.is_replaced());
    waiting.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let cat = waiting.read_as("cat");
    assert!(shell.is_replaced() && !cat.is_replaced());
    drop(waiting);
    assert!(!cat.is_replaced(), "it is gone");
}

#[test]
fn the_devices_of_a_start_are_those_of_its_executable_its_directory_and_files_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    fs::write(dir.join("file"), "").unwrap();
    let waiting = Waiting::start(&["cat"], &dir);
    let mut started = waiting.read_as("cat");
    started.executable.dev = 7;
    let dev = fs::metadata(&dir).unwrap().dev();
    let table = |source: &str| {
        let text =
            format!("1 0 8:1 / / rw - ext4 {source} rw\n2 1 0:5 / /proc rw - proc proc rw\n");
        MountTable::new(headstart::host::mounts::parse(text.as_bytes()).unwrap(), None)
    };
    let (disk, memory) = (table("/dev/sda"), table("none"));
    for (words, mounts, expected) in [
        (&[][..], &disk, vec![7, dev]),
        (&["file", "-", "none", "/proc/self/stat"], &disk, vec![7, dev, dev]),
        (&["a", "b", "c", "d", "file"], &disk, vec![7, dev]),
        (&["file"], &memory, vec![7]),
    ] {
        started.argv = ["cat"].iter().chain(words).map(Into::into).collect();
        assert_eq!(started.devices(mounts), expected, "{words:?}");
    }
    started.root = "/elsewhere".into();
    assert_eq!(started.devices(&disk), [7]);
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn key_of_run(words: &[&str]) -> Key {
    let words: Vec<OsString> = words.iter().map(Into::into).collect();
    Key::of_command(&words, locate)
}

fn key(started: &Started) -> Key {
    started.key(CurrentMounts::read().unwrap().now()).unwrap()
}

/// A directory with a pipe that nobody writes to: whoever opens it waits.
fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    mknodat(CWD, path.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    (dir, path)
}

#[test]
fn this_process_is_read_and_one_that_is_not_there_is_not() {
    let own = std::process::id();
    let started = Started::read(own).unwrap();
    assert_eq!(started.pid, own);
    assert_eq!(started.path, std::env::current_exe().unwrap());
    assert_eq!(started.argv, std::env::args_os().collect::<Vec<_>>());
    assert_eq!(started.cwd, std::env::current_dir().unwrap());
    assert_eq!(started.uid, rustix::process::geteuid().as_raw());
    let file = fs::metadata("/proc/self/exe").unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(started.executable, FileId { dev: file.dev(), ino: file.ino() });
    assert_eq!(Started::read(u32::MAX), None);
    let mounts = MountTable::read().unwrap();
    assert!(!started.is_elsewhere(&mounts));
    let same_files = Started { mount_namespace: 1, ..started.clone() };
    assert!(!same_files.is_elsewhere(&mounts), "as a service of systemd");
    let others = FileId { ino: started.executable.ino + 1, ..started.executable };
    assert!(Started { executable: others, ..same_files }.is_elsewhere(&mounts));
    assert!(Started { root: "/srv".into(), ..started }.is_elsewhere(&mounts));
}

#[test]
fn a_process_has_the_key_that_run_gives_to_its_command() {
    let (_dir, dir) = directory();
    let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    fs::write(at("app.py"), "input()\n").unwrap();
    script(&dir.join("tool"), "#!/bin/sh\nread x\n");
    script(&dir.join("tool-e"), "#!/bin/sh -e\nread x\n");
    fs::copy("/bin/sleep", at("busybox")).unwrap();
    symlink("busybox", at("sleep")).unwrap();
    symlink("app.py", at("link.py")).unwrap();
    for (words, as_run) in [
        (&["sleep", "60"][..], None),
        (&["git", "status"], None),
        (&["git", "-C", ".", "cat-file", "--batch"], None),
        (&["/usr/bin/python3", "-m", "http.server", "0"], None),
        (&["/usr/bin/python3", "-c", "input()", "x"], None),
        (&["/usr/bin/python3", "app.py", "x"], Some(&["/usr/bin/python3", &at("app.py"), "x"][..])),
        (&["/usr/bin/python3", "-u", &at("link.py")], Some(&["/usr/bin/python3", &at("app.py")])),
        (&[&at("tool"), "x"], None),
        (&["./tool-e"], Some(&[&at("tool-e")])),
        (&["sh", "-c", "read x"], None),
        (&["perl", "-e", "<STDIN>"], None),
        (&["java", "-Xmx64m", "-jar", &at("fifo")], Some(&["java", "-jar", &at("fifo")])),
        (&["node", "fifo"], Some(&["node", &at("fifo")])),
        (&[&at("busybox"), "60"], None),
        (&[&at("sleep"), "60"], None),
    ] {
        if !words[0].starts_with('.') && locate(words[0].as_ref()).is_none() {
            eprintln!("skipped: {} is not installed", words[0]);
            continue;
        }
        let waiting = Waiting::start(words, &dir);
        let expected = key_of_run(as_run.unwrap_or(words));
        let found = key(&waiting.read());
        assert_eq!(found.file_names(), expected.file_names(), "{words:?}");
        assert_eq!(found.name, expected.name);
    }
}

#[test]
fn of_a_process_that_becomes_another_program_the_last_one_counts() {
    let (_dir, dir) = directory();
    for words in [&["env", "X=1", "sleep", "60"][..], &["sh", "-c", "exec sleep 60"]] {
        let started = Waiting::start(words, &dir).read_as("sleep");
        assert_eq!(key(&started).file_names(), key_of_run(&["sleep", "60"]).file_names());
        assert_eq!(key_of_run(&["env", "sleep", "60"]).file_name, key(&started).file_name);
    }
}

#[test]
fn a_script_keeps_its_key_when_env_has_found_its_interpreter() {
    let (_dir, dir) = directory();
    let path = dir.join("tool");
    script(&path, "#!/usr/bin/env cat\nx\n");
    // The interpreter reads the script, then waits for its input.
    let waiting = Waiting::start(&[path.to_str().unwrap(), "-"], &dir);
    let after = waiting.read_as("cat");
    let argv = ["/usr/bin/env", "cat", path.to_str().unwrap(), "-"].map(OsString::from).to_vec();
    let before =
        Started { path: "/usr/bin/env".into(), comm: b"tool".to_vec(), argv, ..after.clone() };
    assert!(after.continues(&before));
    assert_eq!(key(&before).file_name, key_of_run(&[path.to_str().unwrap()]).file_name);
    let another = Started { start_time: before.start_time + 1, ..before.clone() };
    assert!(!after.continues(&another), "a number that was used again");
    assert!(!after.continues(&Started { comm: b"env".to_vec(), ..before.clone() }));
    assert!(!before.continues(&after));
    let env = Started { comm: b"env".to_vec(), ..before };
    assert_eq!(env.key(CurrentMounts::read().unwrap().now()), None, "another program follows");
}

#[test]
fn arguments_are_read_up_to_a_limit_and_inline_code_beyond_it_has_no_key() {
    let (_dir, dir) = directory();
    let mounts = MountTable::read().unwrap();
    let long = format!("read x # {}", "x".repeat(MOST_ARGUMENTS));
    let code = Waiting::start(&["sh", "-c", &long], &dir).read();
    assert_eq!((code.argv.len(), code.is_cut, code.key(&mounts)), (2, true, None));
    let mut words = vec!["sh", "-c", "read x"];
    words.resize(MOST_ARGUMENTS, "x");
    let many = Waiting::start(&words, &dir).read();
    assert!(many.is_cut && many.argv.len() > 1000);
    assert_eq!(key(&many).file_name, key_of_run(&["sh", "-c", "read x"]).file_name);
}

#[test]
fn numbers_of_namespaces_are_read_from_their_links() {
    for (link, expected) in
        [("mnt:[4026531841]", Some(4_026_531_841)), ("mnt:[x]", None), ("", None)]
    {
        assert_eq!(namespace(Path::new(link)), expected);
    }
}
