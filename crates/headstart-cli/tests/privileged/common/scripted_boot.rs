//! A boot of a script: systemd is a script that tells what files say, and a trace instance
//! that was made beforehand records.

use crate::command::json;
use headstart::boot::machine::Machine;
use headstart::boot::replay::{BootReplay, ReplayOptions, replay};
use headstart_testing::{LoopFs, is_root, must, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A machine of files: its places, and a `systemctl` that tells what files say.
pub struct Boot {
    /// The root directory of its places.
    pub root: tempfile::TempDir,
    /// The trace instance.
    pub instance: PathBuf,
}

impl Boot {
    /// Where this machine can't record nothing can be tested: `None`, with the reason said.
    pub fn new(name: &str) -> Option<Self> {
        let instances = Path::new("/sys/kernel/tracing/instances");
        if !is_root() || !instances.exists() {
            skip("recording needs root and tracefs");
            return None;
        }
        let root = tempfile::tempdir().unwrap();
        let place = |path: &str| root.path().join(path);
        for dir in ["usr/bin", "told", "run/systemd/sessions"] {
            fs::create_dir_all(place(dir)).unwrap();
        }
        // In a container a boot begins with user space.
        fs::write(place("run/systemd/container"), "").unwrap();
        let script = format!(
            "#!/bin/sh\ncd {}\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done\n\
             [ $# = 0 ] && exec echo UserspaceTimestampMonotonic=$(cat user-space)\nshift\n\
             [ \"$1\" = '*' ] && exec printf 'Id=a.service\\nActiveEnterTimestampMonotonic=%s\\n' $(cat default.target)\n\
             for unit; do echo ActiveEnterTimestampMonotonic=$(cat $unit 2>&- || echo 0); echo; done\n",
            place("told").display()
        );
        fs::write(place("usr/bin/systemctl"), script).unwrap();
        fs::set_permissions(place("usr/bin/systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
        let instance = instances.join(format!("test-{name}-{}", std::process::id()));
        fs::create_dir(&instance).unwrap();
        Some(Self { root, instance })
    }

    /// Another boot of the same machine begins.
    pub fn again(&self) {
        let place = |path: &str| self.root.path().join(path);
        for gone in ["run/headstart", "told"] {
            fs::remove_dir_all(place(gone)).unwrap_or_default();
        }
        fs::create_dir(place("told")).unwrap();
        // The recorder of the boot before removes it beside the test.
        await_script(&wait_until_gone(&self.instance));
        fs::create_dir(&self.instance).unwrap();
    }

    /// As the kernel's command line would have it.
    pub fn trace(&self) {
        for event in ["filemap/mm_filemap_add_to_page_cache", "filemap/mm_filemap_get_pages"] {
            fs::write(self.instance.join(format!("events/{event}/enable")), "1").unwrap();
        }
    }

    /// Something happens now.
    pub fn happens(&self, what: &str) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        fs::write(self.root.path().join("told").join(what), us.to_string()).unwrap();
    }

    /// The command that records it.
    pub fn recorder(&self) -> Command {
        self.recorder_of(self.instance.file_name().unwrap().to_str().unwrap())
    }

    /// The same, for another trace instance.
    pub fn recorder_of(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command.args(["boot", "record", "--timeout", "60s"]);
        command.arg("--instance").arg(name).arg("--root").arg(self.root.path());
        command.stderr(Stdio::piped());
        command
    }

    /// Its machine.
    pub fn machine(&self) -> Machine {
        Machine::at(self.root.path())
    }

    /// A boot whose first phase touches these files; the recorder learns it.
    pub fn touches(&self, files: &[PathBuf]) {
        self.happens("user-space");
        self.trace();
        files.iter().for_each(|file| drop(must("cat", &[file.to_str().unwrap()])));
        self.happens("local-fs.target");
        let child = self.recorder().spawn().unwrap();
        self.happens("default.target");
        await_script(&wait_for(&self.root.path().join("run/headstart/recorded")));
        must("kill", &["-TERM", &child.id().to_string()]);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Reads its first phase ahead.
    pub fn prefetch(&self) -> BootReplay {
        let options = ReplayOptions {
            phases: vec!["mounts".into()],
            wait: true,
            limit: Duration::from_secs(60),
            // It does not wait for what is not mounted.
            in_initramfs: true,
            over_too: true,
        };
        fs::remove_dir_all(self.machine().run().join("replay")).unwrap_or_default();
        replay(&self.machine(), &options, Instant::now())
    }

    /// The files of a phase's pack that are on this file system.
    pub fn learned(&self, phase: &str, fs: &LoopFs) -> Vec<String> {
        let pack = self.machine().pack(phase, &fs.identity());
        let show = json(&["show", "--json", pack.to_str().unwrap()]);
        let files = show["files"].as_array().unwrap().iter();
        let inside = |file: &serde_json::Value| {
            let path = file["path"].as_str()?.strip_prefix(fs.path().to_str()?)?;
            Some(path.trim_start_matches('/').to_owned())
        };
        let mut out: Vec<String> = files.filter_map(inside).collect();
        out.sort();
        out
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        // Gone when the recorder has taken it over.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// What a command said.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a script that waits for something, for a minute at most.
pub fn await_script(script: &str) {
    must("timeout", &["60", "sh", "-c", script]);
}

/// A script that waits until a file is there.
pub fn wait_for(path: &Path) -> String {
    format!("until [ -e {} ]; do :; done", path.display())
}

/// A script that waits until a file is gone.
pub fn wait_until_gone(path: &Path) -> String {
    format!("until [ ! -e {} ]; do :; done", path.display())
}
