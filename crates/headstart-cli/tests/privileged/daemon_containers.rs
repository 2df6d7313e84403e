//! Programs in containers that a real podman starts: a new container of an image profits from what was
//! learned in another one.

use crate::daemon::{Service, TRIALS};
use headstart::cache::residency::are_resident;
use headstart::host::range::PageRange;
use headstart_testing::{LoopFs, has, is_root, must, noise, skip, wait_until, write_synced};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Files of the program, and the pages of each.
const FILES: usize = 64;
const PAGES: u64 = 32;
/// What the service calls the program.
const KEY: &str = "image:1-sh-code";

/// What is called in the host's mount namespace: podman without the control groups of version 1, and with no
/// mount that outlives the container.
const PODMAN: &str = "umount -R /sys/fs/cgroup 2>/dev/null; mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit; \
    exec podman --root \"$1\" --runroot \"$2\" --storage-driver overlay --cgroup-manager cgroupfs \
    --events-backend file \"${@:3}\"";

/// Waits for a line before it reads its files, and for one before it ends.
const PROGRAM: &str = "read x; for file in /data/*; do read x < $file; done; read x";

/// A store of podman on a file system of its own, with an image.
struct Store(LoopFs);

impl Store {
    /// None, with the reason said, where no container can be started.
    fn new() -> Option<Self> {
        if !["podman", "crun", "bash"].iter().all(|program| has(program)) {
            skip("podman or crun is missing");
            return None;
        }
        let store = Self(LoopFs::sized("ext4", 256 << 20)?);
        let root = store.0.beside("root");
        for dir in ["bin", "data", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        fs::copy(&shell, root.join("bin/sh")).unwrap();
        let libraries = must("ldd", &[shell.to_str().unwrap()]);
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let copy = root.join(&library[1..]);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(library, copy).unwrap();
        }
        for number in 0..FILES {
            // A line ends early.
            let data = [b"\n".to_vec(), noise((PAGES * 4096) as usize - 1)].concat();
            write_synced(&root.join(format!("data/{number}")), &data);
        }
        let archive = store.0.beside("root.tar");
        must("tar", &["-C", root.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
        store.must(&["import", "--quiet", archive.to_str().unwrap(), "tests/image:1"]);
        store.create("probe", "true");
        let probe = store.podman(&["start", "--attach", "probe"]).output().unwrap();
        if !probe.status.success() {
            let why = String::from_utf8_lossy(&probe.stderr);
            skip(&format!("podman can't start a container here: {}", why.trim()));
            return None;
        }
        Some(store)
    }

    fn podman(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "bash", "-c", PODMAN, "podman"]);
        command.arg(self.0.path().join("store")).arg(self.0.beside("run")).args(words);
        command
    }

    fn must(&self, words: &[&str]) {
        let output = self.podman(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    /// Makes a container. What a process may here, it may there.
    fn create(&self, name: &str, program: &str) {
        let options = ["--network=none", "--cgroups=disabled", "--interactive"];
        let limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];
        let words = [&["create", "--name", name][..], &options, &limits].concat();
        self.must(&[&words[..], &["tests/image:1", "/bin/sh", "-c", program]].concat());
    }

    /// How many of the image's files are resident.
    fn resident_files(&self) -> usize {
        let layers = self.0.path().join("store/overlay");
        let data = |entry: fs::DirEntry| entry.path().join("diff/data");
        let dirs = fs::read_dir(layers).unwrap().flatten().map(data);
        let data: PathBuf = dirs.into_iter().find(|data| data.is_dir()).unwrap();
        let is_resident = |number: &usize| {
            let file = File::open(data.join(number.to_string())).unwrap();
            are_resident(&file, PageRange::of(0, 1))
        };
        (0..FILES).filter(is_resident).count()
    }
}

/// A start of the program in a new container, with a cold store. Another name for each, so that podman
/// itself is another program each time, and only the image is the same.
struct Start(Child, String);

impl Start {
    fn cold(service: &Service, store: &Store, name: String) -> Self {
        // The service keeps what it knows of a device for some seconds, and podman lies on it too.
        service.believes_slow(&store.0);
        store.create(&name, PROGRAM);
        store.0.remount();
        service.believes_slow(&store.0);
        let mut command = store.podman(&["start", "--attach", "--interactive", &name]);
        Self(command.stdin(Stdio::piped()).spawn().unwrap(), name)
    }

    fn line(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(mut self, store: &Store) {
        self.line();
        assert!(self.0.wait().unwrap().success());
        store.must(&["rm", "--force", &self.1]);
    }
}

/// Starts the program in a new container, with a cold store, and tells how the service saw that, if it did.
/// `before` is done before the program reads its files.
fn start(service: &Service, store: &Store, name: &str, before: impl Fn()) -> Option<Value> {
    let (known, seen) = (service.starts(KEY), service.count("in_containers"));
    let mut start = Start::cold(service, store, name.into());
    let is_seen = || (service.count("in_containers") > seen).then_some(());
    wait_until("program in a container", is_seen);
    before();
    start.line();
    let new = service.new_start(KEY, &known);
    start.end(store);
    new
}

#[test]
fn a_program_in_a_container_is_learned_and_prefetched_in_the_next_container_of_its_image() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some(store) = Store::new() else { return };
    let service = Service::start();

    // On a busy machine a program may be so slow to begin that it counts as one that reads nothing.
    let trial = |number| start(&service, &store, &format!("cold-{number}"), || ());
    let seen = (0..TRIALS).find_map(trial).unwrap();
    assert_eq!(seen["kind"], "cold", "{seen}");

    let is_recorded = || service.records(PROGRAM).then_some(());
    let recorded = || wait_until("recording", is_recorded);
    let seen = start(&service, &store, "recorded", recorded).unwrap();
    assert_eq!(seen["learned"], true, "{seen}");
    assert!(seen["pages"][0].as_u64() >= Some(FILES as u64), "{seen}");

    // It has its files before it asks.
    let are_prefetched = || (store.resident_files() * 2 >= FILES).then_some(());
    let prefetched = || wait_until("prefetched files", are_prefetched);
    let seen = start(&service, &store, "prefetched", prefetched).unwrap();
    // By its own start, or by that of a program that leads to it.
    assert!(seen["kind"] == "prefetched" || seen["kind"] == "hot", "{seen}");
}
