//! The service that learns and prefetches all programs: a slow one is learned without being named, and its files are
//! resident before it reads them; a hot one costs nothing; clients can't hold it up; nothing is left of a killed one.

use crate::common::models::{NETWORK, write_model};
use crate::common::{INSTANCES, instances, within};
use headstart::cache::residency::resident_count;
use headstart::host::range::PageRange;
use headstart_sys::huge::{Folio, bring_in};
use headstart_sys::signals::kill;
use headstart_testing::{
    LoopFs, as_nobody, is_root, noise, public_dir, python, skip, wait_until, write_synced,
};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Files of the program that it reads, and the pages of each.
pub const FILES: u64 = 64;
pub const PAGES: u64 = 32;
/// One that it maps: four huge pages. All of them are more than Python's own files.
const LIBRARY_BYTES: usize = 8 << 20;

/// First starts that are tried, and how long each may take to be noticed.
pub const TRIALS: u32 = 5;
const NOTICED: Duration = Duration::from_secs(11);

/// Waits for a line before it reads its files, and for one before it ends.
const PROGRAM: &str = "\
import mmap, sys
sys.stdin.readline()
with open(f'{sys.argv[1]}/library', 'rb') as library:
    pages = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
    sum(pages[at] for at in range(0, len(pages), 4096))
for number in range(64):
    open(f'{sys.argv[1]}/{number}', 'rb').read()
sys.stdin.readline()
";

/// The service, with places of its own.
pub struct Service {
    pub dir: TempDir,
    pub child: Child,
}

impl Service {
    pub fn start() -> Self {
        Self::with("")
    }

    pub fn with(settings: &str) -> Self {
        Self::start_in(public_dir(), settings)
    }

    /// With these packs and settings.
    pub fn start_in(dir: TempDir, settings: &str) -> Self {
        // A build beside the tests is not theirs, and its starts would be recorded too.
        let toolchain = Path::new(env!("CARGO")).ancestors().nth(2).unwrap().display();
        let settings = format!("threshold = 50ms\nignore = {toolchain}\n{settings}");
        std::fs::write(dir.path().join("conf"), settings).unwrap();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        let child = Self::spawn(dir.path());
        let service = Self { dir, child };
        service.wait_until_it_answers();
        service
    }

    pub fn spawn(dir: &Path) -> Child {
        let path = |name: &str| dir.join(name);
        Command::new(env!("CARGO_BIN_EXE_headstart"))
            .env("HEADSTART_PACKS", path("packs"))
            .args(["daemon", "run"])
            .arg("--config")
            .arg(path("conf"))
            .arg("--state")
            .arg(path("state"))
            .arg("--socket")
            .arg(path("socket"))
            .arg("--sessions")
            .arg(path("sessions"))
            .spawn()
            .unwrap()
    }

    /// Has it take the device of a file system for a slow one, until that is mounted again.
    pub fn believes_slow(&self, fs: &LoopFs) {
        write_model(&self.dir.path().join("packs"), fs, NETWORK);
    }

    /// Root logs in, as logind says it.
    pub fn login(&self) {
        let sessions = self.dir.path().join("sessions");
        let now = headstart::host::clock::monotonic_ns() / 1000;
        let session = format!("UID=0\nTYPE=tty\nCLASS=user\nMONOTONIC={now}\n");
        std::fs::write(sessions.join("draft"), session).unwrap();
        std::fs::rename(sessions.join("draft"), sessions.join("1")).unwrap();
    }

    pub fn wait_until_it_answers(&self) {
        wait_until("answer", || self.ask(&["status"]).status.success().then_some(()));
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn command(&self, mut command: Command, words: &[&str]) -> Output {
        command.arg("daemon").args(words).arg("--socket").arg(self.socket()).output().unwrap()
    }

    pub fn ask(&self, words: &[&str]) -> Output {
        self.command(Command::new(env!("CARGO_BIN_EXE_headstart")), words)
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let output = self.ask(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The starts or the programs of `top`.
    pub fn top(&self, list: &str) -> Vec<Value> {
        self.json(&["top"])[list].as_array().cloned().unwrap_or_default()
    }

    /// What `top` tells of the start with this process number, if it does.
    pub fn listed(&self, pid: u32) -> Option<Value> {
        self.top("starts").into_iter().find(|start| start["pid"] == pid)
    }

    /// The same, once it does.
    pub fn start_of(&self, pid: u32) -> Value {
        wait_until("start in `top`", || self.listed(pid))
    }

    /// The starts of a program in `top`, the latest first.
    pub fn starts(&self, program: &str) -> Vec<Value> {
        let starts = self.top("starts").into_iter();
        starts.filter(|start| start["program"] == program).collect()
    }

    /// Another start of a program than these, if it is noticed.
    pub fn new_start(&self, program: &str, known: &[Value]) -> Option<Value> {
        within(NOTICED, || self.starts(program).into_iter().find(|start| !known.contains(start)))
    }

    /// Whether a program is recorded that has this word among its arguments. Events are enabled after its threads were
    /// added, and this one last.
    pub fn records(&self, word: &str) -> bool {
        let instance = self.instance("-starts");
        let (threads, last) = ("set_event_pid", "events/sched/sched_process_fork/enable");
        let has_it = |thread: &str| {
            let arguments = std::fs::read_to_string(format!("/proc/{thread}/cmdline"));
            arguments.is_ok_and(|arguments| arguments.contains(word))
        };
        let text = |name: &str| std::fs::read_to_string(instance.join(name)).unwrap();
        text(threads).lines().any(has_it) && text(last).starts_with('1')
    }

    /// One of the counts of `status`.
    pub fn count(&self, name: &str) -> u64 {
        self.json(&["status"])["status"]["counters"][name].as_u64().unwrap()
    }

    pub fn programs(&self) -> Vec<String> {
        let name = |program: &Value| program["name"].as_str().unwrap().to_owned();
        self.top("programs").iter().map(name).collect()
    }

    /// The directory of its trace instance whose name ends with this.
    pub fn instance(&self, end: &str) -> PathBuf {
        let mut names = Self::instances(self.child.id()).into_iter();
        Path::new(INSTANCES).join(names.find(|name| name.ends_with(end)).unwrap())
    }

    /// The kernel's filter of an event in such an instance, which it hands out in one read.
    pub fn filter(&self, end: &str, event: &str) -> String {
        let file = File::open(self.instance(end).join(format!("events/{event}/filter")));
        let mut text = [0; 4096];
        let length = file.unwrap().read(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    /// Its trace instances.
    fn instances(pid: u32) -> Vec<String> {
        let prefix = format!("headstart-{pid}-");
        instances().into_iter().filter(|name| name.starts_with(&prefix)).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
        // Else the next start would, and some tests wait for that.
        let left = Self::instances(self.child.id()).into_iter();
        left.for_each(|name| drop(std::fs::remove_dir(Path::new(INSTANCES).join(name))));
    }
}

/// A file system with the program, its interpreter and its files.
pub fn program() -> Option<LoopFs> {
    let (fs, python) = (LoopFs::new("ext4")?, python()?);
    std::os::unix::fs::symlink(python, fs.path().join("python3")).unwrap();
    write_synced(&fs.path().join("reader.py"), PROGRAM.as_bytes());
    for number in 0..FILES {
        write_synced(&fs.path().join(number.to_string()), &noise((PAGES * 4096) as usize));
    }
    write_synced(&fs.path().join("library"), &noise(LIBRARY_BYTES));
    Some(fs)
}

/// A start of the program.
pub struct Start(Child);

impl Start {
    /// On a cold file system.
    pub fn cold(fs: &LoopFs) -> Self {
        fs.remount();
        Self::again(fs)
    }

    /// With what is in memory. By a name of Python that nobody else uses: names that are executed often are
    /// skipped.
    pub fn again(fs: &LoopFs) -> Self {
        Self::spawn(fs, Command::new(fs.path().join("python3")))
    }

    /// A cold one by a command that takes the program as its last arguments.
    pub fn cold_by(fs: &LoopFs, mut command: Command) -> Self {
        fs.remount();
        command.arg(fs.path().join("python3"));
        Self::spawn(fs, command)
    }

    pub fn spawn(fs: &LoopFs, mut command: Command) -> Self {
        let child = command
            .arg(fs.path().join("reader.py"))
            .arg(fs.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn line(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub fn end(mut self) {
        self.line();
        assert!(self.0.wait().unwrap().success());
    }
}

/// A cold start that nothing is known of, as `top` tells it. None if it was not noticed: on a busy
/// machine a program may be so slow to begin that it counts as one that reads nothing.
pub fn first_start(service: &Service, fs: &LoopFs) -> Option<Value> {
    fs.remount();
    service.believes_slow(fs);
    let mut start = Start::again(fs);
    start.line();
    let seen = within(NOTICED, || service.listed(start.pid()));
    start.end();
    seen
}

/// A cold start that is recorded, since it follows one that was noticed. It is prefetched too, if
/// enough was learned of the rest of the first one.
pub fn second_start(service: &Service, fs: &LoopFs) {
    let mut second = Start::cold(fs);
    let pid = second.pid();
    let word = fs.path().to_str().unwrap();
    wait_until("recording", || service.records(word).then_some(()));
    second.line();
    second.end();
    let seen = service.start_of(pid);
    assert_eq!(seen["learned"], true, "{seen}");
}

/// A cold start of a learned program, as `top` tells it: it has its files before it asks.
pub fn prefetched_start(service: &Service, fs: &LoopFs) -> Value {
    let mut start = Start::cold(fs);
    let pid = start.pid();
    // Of some a page at the end is not learned.
    let are_prefetched = || resident(fs).sum::<u64>() * 20 >= FILES * PAGES * 19;
    wait_until("prefetched files", || are_prefetched().then_some(()));
    start.line();
    start.end();
    let seen = service.start_of(pid);
    assert_eq!(seen["kind"], "prefetched", "{seen}");
    seen
}

/// A service with these settings that has learned the program, and the file system that it is on.
pub fn learned_program(settings: &str) -> Option<(Service, LoopFs)> {
    let fs = program()?;
    let service = Service::with(settings);
    // The first is noticed.
    let seen = (0..TRIALS).find_map(|_| first_start(&service, &fs)).unwrap();
    assert_eq!(seen["kind"], "cold", "{seen}");
    second_start(&service, &fs);
    Some((service, fs))
}

pub fn resident_files(fs: &LoopFs) -> u64 {
    resident(fs).filter(|pages| *pages == PAGES).count() as u64
}

/// The resident pages of each file.
fn resident(fs: &LoopFs) -> impl Iterator<Item = u64> {
    let file = |number: u64| File::open(fs.path().join(number.to_string())).unwrap();
    (0..FILES).map(move |number| resident_count(file(number), PageRange::of(0, PAGES)).unwrap())
}

#[test]
fn a_slow_program_is_learned_without_being_named_and_prefetched_from_its_third_cold_start_on() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let Some((service, fs)) = learned_program("") else { return };
    let seen = prefetched_start(&service, &fs);
    let [touched, ready, late, missing] =
        [0, 1, 2, 3].map(|number| seen["pages"][number].as_u64().unwrap());
    assert!(touched >= FILES * PAGES, "{seen}");
    // Python's own files may be cold too.
    assert!(ready * 10 >= touched * 9 && late + missing <= touched / 10, "{seen}");
    assert!(service.programs().iter().any(|name| name.ends_with("reader.py")), "{seen}");

    // A program that reads nothing is not remembered.
    for _ in 0..5 {
        assert!(Command::new("true").status().unwrap().success());
    }
    assert!(service.programs().iter().all(|name| name != "true"));

    // Others see nothing of it, and change nothing.
    let other = |words: &[&str]| service.command(as_nobody(env!("CARGO_BIN_EXE_headstart")), words);
    let top = other(&["top", "--json"]);
    assert!(top.status.success(), "{top:?}");
    assert!(!String::from_utf8_lossy(&top.stdout).contains("reader.py"), "{top:?}");
    for words in [&["off"][..], &["pause"], &["forget", "python3-reader.py"]] {
        assert_eq!(other(words).status.code(), Some(1), "{words:?}");
    }
}

#[test]
fn a_big_file_of_a_pinned_program_is_put_into_large_folios_when_the_machine_is_idle() {
    if !is_root() {
        return skip("tracing needs root");
    }
    // It always is.
    let Some((service, fs)) = learned_program("idle-load = 1000\n") else { return };
    let library = fs.path().join("library");
    let is_large = || {
        let file = File::open(&library).unwrap();
        bring_in(&file, 0, 2 << 20).unwrap() == Folio::Large
    };
    fs.remount();
    if !is_large() {
        return skip("the kernel gives ext4 no large folios");
    }
    // Page by page.
    fs.remount();
    std::fs::read(&library).unwrap();
    let name = service.programs().into_iter().find(|name| name.ends_with("reader.py")).unwrap();
    assert!(service.ask(&["pin", &name]).status.success());
    wait_until("large folios", || {
        let counters = &service.json(&["status"])["status"]["counters"];
        counters["large_folios"].as_u64().filter(|made| *made > 0)
    });
    assert!(is_large());
}

#[test]
fn clients_that_say_nothing_or_too_much_do_not_hold_the_service_up() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let service = Service::start();
    let connect = || UnixStream::connect(service.socket()).unwrap();
    // They stay open, and more than are served.
    let _silent: Vec<_> = (0..6).map(|_| connect()).collect();
    let mut answers = Vec::new();
    for said in [&b"\n"[..], b"{\"do\":\"rm\"}\n", &[b'x'; 5000], b"[[[[[[[[[[\n"] {
        let mut client = connect();
        client.write_all(said).unwrap();
        let mut answer = String::new();
        // It closes the connection when it has answered.
        let _ = client.read_to_string(&mut answer);
        answers.push(answer);
    }
    assert!(answers.iter().all(|answer| answer.contains("\"error\"")), "{answers:?}");
    assert!(service.ask(&["status"]).status.success());
    let metrics = service.ask(&["metrics"]);
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("headstartd_execs_total "));
}

#[test]
fn nothing_is_left_of_a_killed_service_and_off_ends_tracing() {
    if !is_root() {
        return skip("tracing needs root");
    }
    let mut service = Service::start();
    let pid = service.child.id();
    assert_eq!(Service::instances(pid).len(), 5);
    kill(pid.cast_signed(), 9).unwrap();
    service.child.wait().unwrap();
    service.child = Service::spawn(service.dir.path());
    service.wait_until_it_answers();
    wait_until("end of what was left", || Service::instances(pid).is_empty().then_some(()));
    let pid = service.child.id();
    assert!(service.ask(&["off"]).status.success());
    assert!(service.child.wait().unwrap().success());
    wait_until("end of tracing", || Service::instances(pid).is_empty().then_some(()));
    assert!(!service.socket().exists());
    assert_eq!(service.ask(&["status"]).status.code(), Some(1));
}
