//! Processes that use a file, or still run.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that has mapped and touched an executable file of ours; it lives
/// until dropped.
pub struct Process {
    /// The process.
    pub child: Child,
}

impl Process {
    /// Copies `program` to `path`, starts it there, and returns when it has
    /// answered the line that was written to it.
    pub fn start(program: &Path, path: &Path, args: &[&str]) -> Self {
        std::fs::copy(program, path).unwrap();
        std::fs::File::open(path).unwrap().sync_all().unwrap();
        let mut command = Command::new(path);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"ready?\n").unwrap();
        let mut answers = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        // A test program says other things before.
        assert!(answers.any(|line| line.unwrap().ends_with("ready?")));
        Self { child }
    }
}

/// Whether any process was started with this argument.
pub fn is_an_argument(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let words = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline"));
    let mut all = processes.filter_map(|entry| words(entry).ok());
    all.any(|words| words.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
}

/// The helpers of starts whose command line has this word: of headstart's processes those that
/// are not `program`.
pub fn helpers(word: &str, program: u32) -> Vec<u32> {
    let headstart = Path::new(env!("CARGO_BIN_EXE_headstart"));
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != program)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            exe == headstart && line.split(|byte| *byte == 0).any(|w| w == word.as_bytes())
        })
        .collect()
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}
