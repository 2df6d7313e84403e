//! Jobs of a program that forks without exec.

use crate::daemon::{FILES, Service, TRIALS, program, resident_files};
use headstart_testing::{LoopFs, is_root, must, python, skip, wait_until, write_synced};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// From the first cold start to one that is prefetched.
fn is_learned(service: &Service, fs: &LoopFs, program: &str, starts: &mut Zygote) {
    let mut start = |before: &dyn Fn()| {
        let known = service.starts(program);
        fs.remount();
        let mut input = starts.begin();
        before();
        input.write_all(b"\n").unwrap();
        let new = service.new_start(program, &known);
        input.write_all(b"\n").unwrap();
        new
    };
    let seen = (0..TRIALS).find_map(|_| start(&|| ())).unwrap();
    assert_eq!(seen["kind"], "cold", "{seen}");
    // Its rest is recorded as long as it runs.
    wait_until("end of its recording", || (!service.is_recording()).then_some(()));
    let is_recorded = || service.is_recording().then_some(());
    let seen = start(&|| wait_until("recording", is_recorded)).unwrap();
    assert_eq!(seen["learned"], true, "{seen} {}", service.json(&["status"]));
    let are_prefetched = || (resident_files(fs) * 2 >= FILES).then_some(());
    let seen: Value = start(&|| wait_until("prefetched files", are_prefetched)).unwrap();
    assert_eq!(seen["kind"], "prefetched", "{seen}");
}

fn fifo(fs: &LoopFs, name: &str) -> PathBuf {
    let path = fs.beside(name);
    must("mkfifo", &[path.to_str().unwrap()]);
    path
}

/// Ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// Forks for each line; the child takes a name, waits for a line, reads files, and waits for another.
const ZYGOTE: &str = "\
import os, sys
for line in sys.stdin:
    if os.fork() == 0:
        open('/proc/self/comm', 'w').write(line.strip())
        with open(sys.argv[2]) as lines:
            lines.readline()
            for number in range(64):
                open(f'{sys.argv[1]}/{number}', 'rb').read()
            lines.readline()
        os._exit(0)
";

struct Zygote(Ends, PathBuf);

impl Zygote {
    /// Begins a start, with the input that it waits for.
    fn begin(&mut self) -> Box<dyn Write> {
        self.0.0.stdin.as_mut().unwrap().write_all(b"job\n").unwrap();
        Box::new(File::options().write(true).open(&self.1).unwrap())
    }
}

#[test]
fn a_job_of_a_program_that_forks_without_exec_is_learned_by_its_name() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some(fs) = program() else { return };
    let (input, script) = (fifo(&fs, "input"), fs.beside("zygote.py"));
    write_synced(&script, ZYGOTE.as_bytes());
    let service = Service::start();
    let python = python().unwrap();
    let mut zygote = Command::new(&python);
    zygote.arg(&script).arg(fs.path()).arg(&input).stdin(Stdio::piped());
    let mut zygote = Zygote(Ends(zygote.spawn().unwrap()), input);
    let name = Path::new(&python).file_name().unwrap().to_str().unwrap();
    is_learned(&service, &fs, &format!("{name}-zygote.py-job"), &mut zygote);
    assert!(service.count("by_forks") >= 3);
}
