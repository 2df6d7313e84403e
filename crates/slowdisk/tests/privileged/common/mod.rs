//! What the tests on real devices share: a state directory of their own, and
//! the command.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use headstart_testing::{has, skip};
use slowdisk::load::Watch;
use slowdisk::{host, state};
use tempfile::TempDir;

/// Whether the tests can run here. Where they have to, under CI, it is an
/// error that they cannot.
pub fn possible(test: &str, tools: &[&str]) -> bool {
    let lack = host::require().err().map(|error| error.to_string());
    let missing = |tool: &&&str| !has(tool);
    let lack = lack.or_else(|| tools.iter().find(missing).map(|tool| format!("no {tool}")));
    let Some(lack) = lack else { return true };
    skip(&format!("{test}: {lack}"));
    false
}

/// A place for an image, a mount point and the state; all is taken down at
/// the end, however the test ends.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary directory"));
        std::fs::create_dir(place.mount()).expect("a mount point");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn mount(&self) -> PathBuf {
        self.path("mount")
    }

    pub fn image(&self) -> PathBuf {
        self.path("image")
    }

    /// Makes a sparse image of `mib` MiB.
    pub fn blank(&self, mib: u64) {
        let file = std::fs::File::create(self.image()).expect("an image");
        file.set_len(mib << 20).expect("room for a hole");
    }

    /// The command with this place's state.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slowdisk"));
        command.arg("--state").arg(self.path("state"));
        command
    }

    /// Runs it.
    pub fn run(&self, args: &[&str], paths: &[&Path]) -> Output {
        self.command().args(args).args(paths).output().expect("the command runs")
    }

    /// Runs it; it has to succeed. Gives its standard output.
    #[track_caller]
    pub fn must(&self, args: &[&str], paths: &[&Path]) -> String {
        let output = self.run(args, paths);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{args:?}: {out}{err}");
        out
    }

    /// Brings the image up with a model, mounted or not; gives the device.
    #[track_caller]
    pub fn up(&self, model: &str, mounted: bool) -> PathBuf {
        let image = self.image();
        let mut paths = vec![Path::new("--image"), &image];
        let mount = self.mount();
        if mounted {
            paths.extend([Path::new("--mount"), &mount]);
        } else {
            paths.push(Path::new("--no-mount"));
        }
        self.must(&["up", "--model", model], &paths).trim().into()
    }

    /// The same without a mount, with a watch of who else uses the CPUs.
    #[track_caller]
    pub fn up_watched(&self, model: &str) -> (PathBuf, Watched) {
        let begin = |own| Watch::begin(own).expect("statistics");
        let mut of_all = begin(vec![std::process::id()]);
        let device = self.up(model, false);
        of_all.adopt(self.server());
        (device, Watched([of_all, begin(vec![self.server(), std::process::id()])]))
    }

    /// The server of the only disk.
    #[track_caller]
    pub fn server(&self) -> u32 {
        let entries = state::entries(&self.path("state")).expect("a state");
        assert_eq!(entries.len(), 1);
        let disk = entries[0].load().expect("a description").expect("a disk");
        disk.server.expect("a server")
    }
}

/// Who else uses the CPUs, from before a disk comes up, when its overhead is measured, and once it is up.
pub struct Watched([Watch; 2]);

impl Watched {
    /// CPUs that others used, in that of the two times in which it was more.
    pub fn others(&self) -> f64 {
        self.0.iter().map(|watch| watch.others().expect("statistics")).fold(0.0, f64::max)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let output = self.run(&["down", "--all"], &[]);
        if !output.status.success() {
            eprintln!("Not all could be taken down: {}", text(&output.stderr));
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
