//! A root directory on a file system of its own, with the programs of this machine and
//! nothing else of it.

use headstart_testing::{LoopFs, must};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes the root in a mount namespace of its own and runs a command there. Programs can't
/// be written to. `/sbin` is not that of the machine: it has headstart.
const ENTER: &str = r#"set -e
root=$1 headstart=$2 proc=$3
shift 3
for dir in bin lib lib32 lib64 usr/bin usr/lib usr/lib32 usr/lib64 usr/sbin; do
    if [ -L "/$dir" ]; then
        ln -sfn "$(readlink "/$dir")" "$root/$dir"
    elif [ -d "/$dir" ]; then
        mkdir -p "$root/$dir"
        mount -o bind,ro "/$dir" "$root/$dir"
    fi
done
mkdir -p "$root/dev" "$root/proc" "$root/sbin" "$root/tmp"
mount --bind /dev "$root/dev"
[ -z "$proc" ] || mount --bind /proc "$root/proc"
rm -f "$root/sbin/headstart"
if [ -n "$headstart" ]; then
    : >"$root/sbin/headstart"
    mount --bind "$headstart" "$root/sbin/headstart"
fi
exec env -i LC_ALL=C PATH=/sbin:/usr/sbin:/usr/bin:/bin chroot "$root" "$@"
"#;

/// Which headstart is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Headstart {
    /// None.
    Missing,
    /// That of this build.
    Real,
    /// The same, and `/proc` is not mounted.
    WithoutProc,
    /// A script of the shell, which first adds its arguments as a line to `/calls`.
    Script(&'static str),
}

/// The root directory.
pub struct SmallRoot {
    /// Its file system.
    pub fs: LoopFs,
}

impl SmallRoot {
    /// A new one; `None`, with the reason said, where this machine cannot make one.
    pub fn new() -> Option<Self> {
        Some(Self { fs: LoopFs::new("ext4")? })
    }

    /// Where something in it is, seen from outside.
    pub fn place(&self, path: &str) -> PathBuf {
        self.fs.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file, and the directories that it is in.
    pub fn write(&self, path: &str, data: impl AsRef<[u8]>) {
        let path = self.place(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    /// Runs a command in it.
    pub fn run(&self, headstart: Headstart, words: &[&str]) -> Output {
        let program = match headstart {
            Headstart::Missing => PathBuf::new(),
            Headstart::Real | Headstart::WithoutProc => env!("CARGO_BIN_EXE_headstart").into(),
            Headstart::Script(then) => {
                self.write("script", format!("#!/bin/sh\necho \"$*\" >> /calls\n{then}\n"));
                let path = self.place("script");
                must("chmod", &["755", path.to_str().unwrap()]);
                path
            }
        };
        let proc = if headstart == Headstart::WithoutProc { "" } else { "proc" };
        let paths = [self.fs.path(), program.as_path(), Path::new(proc)];
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", ENTER, "sh"]);
        command.args(paths).args(words).output().unwrap()
    }

    /// The arguments of the script each time that it was called since this was asked last.
    pub fn calls(&self) -> Vec<String> {
        let path = self.place("calls");
        let calls = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        calls.lines().map(str::to_owned).collect()
    }
}
