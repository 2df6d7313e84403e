//! A script that executes programs from slow disks, and whose name is executed often: each program is learned by
//! itself, and the script is a wrapper of none. Until a child has read what execve(2) needs, it still is the program
//! of the script.

use crate::common::starts::{Starts, is_learned};
use crate::daemon::{FILES, PAGES, Service, resident_files};
use crate::daemon_forks::fifo;
use headstart_testing::{LoopFs, is_root, must, noise, public_dir, skip, wait_until, write_synced};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{File, Permissions, create_dir_all, set_permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What the kernel calls the script.
const NAME: &str = "steps";
/// Executes what it reads.
const SCRIPT: &str = "#!/bin/sh\nwhile read -r command; do $command >/dev/null; done\n";
/// How long a read from a disk takes. execve(2) makes one for each of these directories, and of the program.
const LATENCY: Duration = Duration::from_millis(5);
pub const DIRECTORY: &str = "a/b/c/d/e";
const DISK_BYTES: u64 = 32 << 20;

fn write_script(path: &Path, text: &str) {
    write_synced(path, text.as_bytes());
    set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// A slow disk with a program and files that it reads.
pub fn disk(program: &str) -> Option<LoopFs> {
    let fs = LoopFs::sized("ext4", DISK_BYTES)?;
    let directory = fs.path().join(DIRECTORY);
    create_dir_all(&directory).unwrap();
    must("cp", &[&format!("/usr/bin/{program}"), directory.to_str().unwrap()]);
    for number in 0..FILES {
        write_synced(&fs.path().join(number.to_string()), &noise((PAGES * 4096) as usize));
    }
    ["begin", "end"].iter().for_each(|name| drop(fifo(&fs, name)));
    fs.slow(LATENCY)
}

/// The script. It ends with the test, and so does what it has started.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait().unwrap();
    }
}

/// Starts of the program by the script.
struct Step<'a> {
    script: &'a mut Script,
    fs: &'a LoopFs,
    program: &'a str,
    /// The disk of another program that the script starts.
    other: &'a LoopFs,
}

impl Step<'_> {
    /// Lets the program read on: it has come there.
    fn go_on(&self, fifo: &str) {
        drop(File::options().write(true).open(self.fs.beside(fifo)).unwrap());
    }
}

impl Starts for Step<'_> {
    fn begin(&mut self) {
        self.other.remount();
        let input = self.script.0.stdin.as_mut().unwrap();
        let word = |path: &Path| format!("{} ", path.display());
        let mut command = word(&self.fs.path().join(DIRECTORY).join(self.program));
        command += &word(&self.fs.beside("begin"));
        (0..FILES).for_each(|number| command += &word(&self.fs.path().join(number.to_string())));
        command += &word(&self.fs.beside("end"));
        writeln!(input, "{command}").unwrap();
    }

    fn read(&mut self) {
        self.go_on("begin");
    }

    fn end(&mut self) {
        self.go_on("end");
        assert_eq!(resident_files(self.other), 0, "nothing is read for the other program");
    }
}

#[test]
fn programs_that_a_script_executes_from_a_slow_disk_are_learned_each_by_itself() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let names = ["cat", "sha256sum"];
    let [Some(first), Some(second)] = names.map(disk) else { return };
    let dir = public_dir();
    let (script, often) = (dir.path().join(NAME), dir.path().join("often").join(NAME));
    create_dir_all(often.parent().unwrap()).unwrap();
    write_script(&script, SCRIPT);
    write_script(&often, "#!/bin/sh\n");
    // Before the service, which so sees no start of it.
    let mut script = Command::new(script);
    let mut script = Script(script.stdin(Stdio::piped()).process_group(0).spawn().unwrap());
    // Other work on the machine is recorded too.
    let service = Service::start_in(public_dir(), "recordings = 64\n");
    wait_until("reads by this name", || {
        assert!(Command::new(&often).status().unwrap().success());
        let filter = service.filter("-reads", "block/block_bio_queue");
        filter.contains(&format!("\"{NAME}\"")).then_some(())
    });

    for (program, fs, other) in [(names[0], &first, &second), (names[1], &second, &first)] {
        let mut step = Step { script: &mut script, fs, program, other };
        is_learned(&service, fs, program, &mut step);
    }
    let programs = service.top("programs");
    let mut wrappers = programs.iter().filter(|program| program["name"] == NAME);
    assert!(wrappers.all(|script| script["leads_to"].is_null()), "{programs:#?}");
}
