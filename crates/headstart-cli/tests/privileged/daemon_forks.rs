//! Jobs of a program that forks without exec.

use crate::common::starts::{Ends, Starts, is_learned};
use crate::daemon::{Service, program};
use headstart_testing::{LoopFs, is_root, must, python, skip, write_synced};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn fifo(fs: &LoopFs, name: &str) -> PathBuf {
    let path = fs.beside(name);
    must("mkfifo", &[path.to_str().unwrap()]);
    path
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

struct Zygote {
    process: Ends,
    path: PathBuf,
    input: Option<File>,
}

impl Zygote {
    fn line(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Starts for Zygote {
    fn begin(&mut self) {
        self.process.0.stdin.as_mut().unwrap().write_all(b"job\n").unwrap();
        self.input = Some(File::options().write(true).open(&self.path).unwrap());
    }

    fn read(&mut self) {
        self.line();
    }

    fn end(&mut self) {
        self.line();
        self.input = None;
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
    let process = Ends(zygote.spawn().unwrap());
    let mut zygote = Zygote { process, path: input, input: None };
    let name = Path::new(&python).file_name().unwrap().to_str().unwrap();
    is_learned(&service, &fs, &format!("{name}-zygote.py-job"), &mut zygote);
    assert!(service.count("by_forks") >= 3);
}
