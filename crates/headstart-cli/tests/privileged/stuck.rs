//! A file server that does not answer keeps neither the program nor its exit status.

use crate::common::packs::write;
use headstart_testing::{LoopFs, disk_dir, skip, write_synced};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A file system on FUSE whose server says nothing, seen by the calling thread and what it
/// starts. fuse(4).
struct Dead<'a> {
    path: &'a Path,
    _server: File,
}

impl<'a> Dead<'a> {
    fn at(path: &'a Path) -> Self {
        headstart_sys::namespace::private_mounts().unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let server = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("dead", path, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        Self { path, _server: server }
    }
}

impl Drop for Dead<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.path, UnmountFlags::DETACH);
    }
}

#[test]
fn a_file_that_does_not_answer_keeps_neither_the_program_nor_its_status() {
    let Some(fs) = LoopFs::new("ext4") else { return };
    if !Path::new("/dev/fuse").exists() {
        return skip("there is no /dev/fuse");
    }
    let (dir, packs) = (disk_dir(), disk_dir());
    let file = fs.path().join("file");
    write_synced(&file, &[7; 8192]);
    let pack = packs.path().join("a.pack");
    write(&fs, &pack, &[(&dir.path().join("file"), &file, 2)]);
    let _dead = Dead::at(dir.path());
    let run = ["run", "-v", "--no-learn", "--always", "--pack", pack.to_str().unwrap()];
    // Also where it goes on when its start is over.
    for limit in ["10s", "1ms"] {
        let mut start = Command::new(env!("CARGO_BIN_EXE_headstart"));
        start.args(run).args(["--for", limit, "--", "sh", "-c", "exit 7"]);
        let mut start = start.stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while start.try_wait().unwrap().is_none() {
            if begin.elapsed() > Duration::from_secs(20) {
                start.kill().unwrap();
                panic!("it waits for the file");
            }
            std::thread::yield_now();
        }
        let output = start.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(7), 1), "{said}");
        assert!(said.contains("left behind at a file that does not answer"), "{said}");
    }
}
