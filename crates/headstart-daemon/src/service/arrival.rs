//! An exec arrives: which program it is, and what is done for it. Several threads do this, since
//! a look at an executable may wait for a file server.

use super::early::Started as EarlyStarted;
use super::found;
use super::handle::Handled;
use super::latency::Latencies;
use super::looks::{self, Whose};
use super::pool::Pool;
use super::shared::{Shared, moment};
use super::trees::{Root, Tree};
use super::watcher::Watched;
use crate::execs::{Exec, Seen};
use crate::programs::decide::{Conditions, Decision, decide};
use crate::programs::rates::Rates;
use crate::programs::{Id, Program};
use crate::started::Started;
use crate::started::mounts::CurrentMounts;
use crate::watch::{Counters, Watch};
use headstart::host::mounts::MountTable;
use headstart::host::proc;
use headstart::pack::key::Key;
use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Processes of headstart that are remembered, to skip the programs that they become.
const MOST_OURS: usize = 256;
/// Starts by env(1) that are remembered.
const MOST_BY_ENV: usize = 32;
/// Processes whose starts are remembered, so that they are not seen once more by their reads.
const MOST_SEEN: usize = 256;
/// A child that is the program of its parent for longer does not wait for an exec.
const SOON: Duration = Duration::from_secs(2);
/// The program whose starts need no help of the service.
const HEADSTART: &str = "headstart";

/// What the threads that look at execs share.
pub(super) struct Arrival {
    shared: Arc<Shared>,
    starts: Arc<Pool<Handled>>,
    watcher: SyncSender<Watched>,
    early: SyncSender<EarlyStarted>,
    /// Our executable.
    own: PathBuf,
    memory: Mutex<Memory>,
    latencies: Mutex<Latencies>,
}

#[derive(Default)]
struct Memory {
    rates: Rates,
    /// With the times when the processes began.
    ours: VecDeque<(u32, u64)>,
    /// Starts by env(1), which go on as another program.
    by_env: VecDeque<Started>,
    mounts: Option<CurrentMounts>,
    /// With the times when the processes began, and the file names of their packs.
    seen: VecDeque<((u32, u64), String)>,
}

impl Arrival {
    pub(super) fn new(
        shared: Arc<Shared>,
        starts: Arc<Pool<Handled>>,
        watcher: SyncSender<Watched>,
        early: SyncSender<EarlyStarted>,
    ) -> Self {
        let own = fs::read_link("/proc/self/exe").unwrap_or_default();
        Self {
            shared,
            starts,
            watcher,
            early,
            own,
            memory: Mutex::default(),
            latencies: Mutex::default(),
        }
    }

    /// Does what is to be done for an exec.
    pub(super) fn exec(&self, exec: Exec) {
        if self.shared.stops() || self.shared.paused_s().is_some() {
            return;
        }
        if exec.seen == Seen::Fork {
            self.fork(exec);
            return;
        }
        let reader = exec.pid;
        let Some(exec) = self.of_process(exec) else { return };
        let Ok(path) = fs::read_link(format!("/proc/{}/exe", exec.pid)) else {
            return self.shared.count(|counters| counters.gone += 1);
        };
        if self.is_ours(exec.pid, &path) || self.shared.config.ignores(path.as_os_str().as_bytes())
        {
            return;
        }
        let executable = path.to_string_lossy().into_owned();
        let is_known = self.shared.state().table.knows_executable(&executable);
        if !self.admits(&path, is_known, exec) {
            return self.shared.count(|counters| counters.skipped_by_rate += 1);
        }
        let Some(mut started) = Started::read(exec.pid) else {
            if exec.seen == Seen::Read {
                // Or it has no arguments yet: the kernel has given it its name, and loads it from a disk.
                self.shared.watching.again.add(reader);
            }
            return self.shared.count(|counters| counters.gone += 1);
        };
        if self.is_headstart_at(started.parent) {
            return;
        }
        if exec.seen == Seen::Read && is_as_forked(&started) {
            return self.read_as_forked(exec, &started, reader);
        }
        if self.goes_on(&started) {
            return;
        }
        if let Some(key) = self.key(&mut started) {
            if exec.seen == Seen::Read {
                self.shared.count(|counters| counters.by_reads += 1);
            }
            self.start(exec, started, key, executable, String::new());
        }
    }

    /// The key of what a process runs, also in a container; none if it is not handled.
    pub(super) fn key(&self, started: &mut Started) -> Option<Key> {
        let mounts = self.mounts()?;
        if !started.is_elsewhere(&mounts) {
            return started.key(&mounts);
        }
        let Some((image, dev)) = started.image(&mounts) else {
            self.shared.count(|counters| counters.elsewhere += 1);
            return None;
        };
        self.shared.count(|counters| counters.in_containers += 1);
        started.is_in_image = true;
        // That of an overlay is no device.
        started.executable.dev = dev.unwrap_or(started.executable.dev);
        let key = started.key(&mounts)?;
        Some(key.in_image(&image.identity, &image.name))
    }

    /// The same for the process of a thread that reads, if that has begun lately and was not seen before.
    fn of_process(&self, exec: Exec) -> Option<Exec> {
        if exec.seen == Seen::Exec {
            return Some(exec);
        }
        let thread = i32::try_from(exec.pid).ok()?;
        let process = u32::try_from(proc::status(thread, "Tgid")?).ok()?;
        let began = proc::start_time(process.cast_signed())?;
        let is_new =
            began_lately(began, self.shared.config.window) && !self.was_seen((process, began));
        is_new.then_some(Exec { pid: process, ..exec })
    }

    /// A child reads while it still is the program of its parent. Mostly the disk that the program is on which it
    /// executes: of a name that is executed often that exec is not reported, but later reads are. Else it does a
    /// job of its own.
    fn read_as_forked(&self, exec: Exec, child: &Started, reader: u32) {
        if proc::is_in_exec(child.pid.cast_signed()) || proc::age(child.start_time) < SOON {
            return self.shared.watching.again.add(reader);
        }
        self.fork(exec);
    }

    /// Whether a start of this process, by its number and when it began, was handled lately.
    pub(super) fn was_seen(&self, process: (u32, u64)) -> bool {
        self.memory().seen.iter().any(|(seen, _)| *seen == process)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// A program was executed: it is a part of a start, or begins one. `forker`: what the kernel calls its
    /// parent, if it is no exec.
    pub(super) fn start(
        &self,
        exec: Exec,
        started: Started,
        key: Key,
        executable: String,
        forker: String,
    ) {
        if !self.is_new(&started, &key) {
            return self.shared.count(|counters| counters.again += 1);
        }
        let id = Id { uid: started.uid, file_name: key.file_name.clone() };
        let at_ms = exec.at / 1_000_000;
        let root = self.shared.trees().of(&started, at_ms, self.shared.config.window);
        let (led_by, began_ms) = match root {
            Some((Root::Handled(tree), _)) if tree.is_undone_by(&started) => (None, at_ms),
            Some((Root::Handled(tree), began_ms)) if tree.id == id || tree.has(&started) => {
                return self.belongs(&tree, began_ms, &id, key, started);
            }
            Some((Root::Watched(by), began_ms)) => (Some(by).filter(|by| *by != id), began_ms),
            _ => (None, at_ms),
        };
        let conditions = self.shared.conditions();
        let new = Program { name: key.name.clone(), executable, forker, ..Program::default() };
        let new = new.with_short_names();
        let executable = new.executable.clone();
        let mut program = Program::default();
        self.shared.change(
            &id,
            || new,
            |known| {
                // Not known if only its pack was found.
                known.executable = executable;
                program = known.clone();
                known.note_start(conditions.now);
            },
        );
        let mut decision = self.decide(&id, &program, conditions);
        let is_new = matches!(decision, Decision::Watch | Decision::Record);
        if let Some(at) = is_new.then(|| self.learned_at(&id, &key)).flatten() {
            self.shared.change(&id, Program::default, |known| {
                known.note_found(at);
                program = known.clone();
            });
            decision = self.decide(&id, &program, conditions);
        }
        if program.is_remembered() {
            self.note_early(&id, exec);
        }
        // A job that then executes a program was none, and no wrapper either.
        if !program.is_slow()
            && !started.is_job
            && let Some((of, program, decision)) = self.led_to(&program, id.uid, conditions)
        {
            self.note_early(&of, exec);
            let key = Key {
                name: program.name.clone(),
                file_name: of.file_name.clone(),
                words: vec![(&program.executable).into()],
                subcommand: Vec::new(),
            };
            let tree = Tree::new(of, Some(id));
            return self.handle(exec, started, key, program, decision, tree);
        }
        if matches!(decision, Decision::Skip | Decision::Watch) && !started.is_job {
            let root = Root::Watched(led_by.clone().unwrap_or_else(|| id.clone()));
            self.shared.trees().join(&started, began_ms, root);
        }
        match decision {
            Decision::Skip => self.shared.count(|counters| counters.skipped += 1),
            Decision::Watch => self.watch(exec, started, id, key, led_by),
            Decision::Record | Decision::Prefetch { .. } => {
                self.shared.note_led(led_by.as_ref(), &id);
                let tree = Tree::new(id, None);
                tree.came(key.clone(), started.clone());
                self.handle(exec, started, key, program, decision, tree);
            }
        }
    }

    /// Whether this is not what another thread has found at the same process: a wrapper may have become its
    /// program before the wrapper's own exec is looked at.
    fn is_new(&self, started: &Started, key: &Key) -> bool {
        let start = ((started.pid, started.start_time), key.file_name.clone());
        let mut memory = self.memory();
        let is_new = !memory.seen.contains(&start);
        if is_new {
            memory.seen.truncate(MOST_SEEN - 1);
            memory.seen.push_front(start);
        }
        is_new
    }

    /// Has a start counted among what follows others.
    fn note_early(&self, id: &Id, exec: Exec) {
        let started = EarlyStarted { id: id.clone(), at_ms: exec.at / 1_000_000 };
        // One that does not fit is not counted.
        let _ = self.early.try_send(started);
    }

    /// Takes an exec within a start that is handled.
    fn belongs(&self, tree: &Arc<Tree>, began_ms: u64, id: &Id, key: Key, started: Started) {
        self.shared.count(|counters| counters.in_starts += 1);
        self.shared.trees().join(&started, began_ms, Root::Handled(Arc::clone(tree)));
        if tree.id == *id && tree.came(key, started) {
            self.shared.note_led(tree.by.as_ref(), id);
        }
    }

    /// The slow program that this one leads to, and what is done for a start of it.
    fn led_to(
        &self,
        program: &Program,
        uid: u32,
        conditions: Conditions,
    ) -> Option<(Id, Program, Decision)> {
        let of = Id { uid, file_name: program.leads()?.to_owned() };
        let led_to = self.shared.state().table.get(&of).filter(|to| to.is_slow()).cloned()?;
        let decision = self.decide(&of, &led_to, conditions);
        matches!(decision, Decision::Record | Decision::Prefetch { .. }).then(|| {
            self.shared.change(&of, Default::default, |to| to.note_start(conditions.now));
            (of, led_to, decision)
        })
    }

    /// What is done for a start of this program. One that was hot again and again is skipped only as long as
    /// it is in memory.
    fn decide(&self, id: &Id, program: &Program, at: Conditions) -> Decision {
        let decision = decide(program, at);
        if decision != Decision::Skip || program.quiet_until_ms <= at.now_ms {
            return decision;
        }
        let sample = self.shared.hot().of(id);
        match sample.is_none_or(|sample| sample.stays()) {
            true => decision,
            false => decide(&Program { quiet_until_ms: 0, ..program.clone() }, at),
        }
    }

    /// Has a start recorded or prefetched.
    fn handle(
        &self,
        exec: Exec,
        started: Started,
        key: Key,
        program: Program,
        decision: Decision,
        tree: Arc<Tree>,
    ) {
        // First: another thread may look at what the process becomes.
        let root = Root::Handled(Arc::clone(&tree));
        self.shared.trees().join(&started, exec.at / 1_000_000, root);
        let records = !matches!(decision, Decision::Prefetch { record: false });
        // At once: what the program touches before is not seen.
        let tracer = self.shared.tracer.as_ref().ok().filter(|_| records);
        let pack_bytes = || self.shared.pack_file_bytes(&tree.id);
        let ticket = tracer.and_then(|tracer| tracer.add(&[exec.pid], pack_bytes()));
        if records && ticket.is_none() {
            self.shared.count(|counters| counters.not_recorded += 1);
            if decision == Decision::Record {
                return tree.end();
            }
        }
        let began = moment(exec.at);
        let recorded_at = Instant::now();
        let handled =
            Handled { tree, key, started, program, began, recorded_at, ticket, is_rest: false };
        if let Err(handled) = self.starts.give(handled) {
            handled.tree.end();
            self.shared.count(|counters| counters.crowded += 1);
            if let (Some(ticket), Some(tracer)) = (handled.ticket, tracer) {
                tracer.drop(ticket);
            }
        }
    }

    /// When somebody else learned a pack of a program that is not known, such as `headstart run`.
    fn learned_at(&self, id: &Id, key: &Key) -> Option<u64> {
        let of = |file_name| self.shared.pack_of(&Id { uid: id.uid, file_name });
        key.file_names().into_iter().find_map(|name| found::learned_at(&of(name)))
    }

    fn watch(&self, exec: Exec, started: Started, id: Id, key: Key, led_by: Option<Id>) {
        let Some(counters) = looks::counters(started.pid, started.start_time, Whose::Family) else {
            return self.shared.count(|counters| counters.gone += 1);
        };
        let first = match exec.seen {
            // A wrapper that becomes a program may have slept often, whether it has read or not.
            Seen::Exec => Counters { sleeps: looks::sleeps(started.pid), ..counters },
            // A child has read nothing before; and a process that is seen by its reads has made some.
            Seen::Fork | Seen::Read => Counters::default(),
        };
        let watched = Watched {
            id,
            key,
            led_by,
            at: exec.at,
            watch: Watch::new(first),
            latency: self.latency(&started),
            // They may be long, and are in the key as far as they count.
            started: Started { argv: Vec::new(), ..started },
        };
        if self.watcher.try_send(watched).is_err() {
            self.shared.count(|counters| counters.crowded += 1);
        }
    }

    /// How long a request takes to the slowest of its devices: nobody tells from which it reads.
    fn latency(&self, started: &Started) -> Duration {
        let own = || vec![started.executable.dev];
        let devices = self.mounts().map_or_else(own, |mounts| started.devices(&mounts));
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        devices.into_iter().map(|dev| latencies.of(dev)).max().unwrap_or_default()
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the interpreter of a script whose start was seen as that of env(1).
    fn goes_on(&self, started: &Started) -> bool {
        let mut memory = self.memory();
        if started.path.file_name().is_some_and(|name| name == "env") {
            memory.by_env.truncate(MOST_BY_ENV - 1);
            memory.by_env.push_front(started.clone());
        }
        memory.by_env.iter().any(|earlier| started.continues(earlier))
    }

    /// The mounts of this machine.
    fn mounts(&self) -> Option<Arc<MountTable>> {
        let mut memory = self.memory();
        if memory.mounts.is_none() {
            memory.mounts = CurrentMounts::read().ok();
        }
        memory.mounts.as_mut().map(|mounts| Arc::clone(mounts.now()))
    }

    /// Whether this exec is looked at. Reads are counted apart: thousands of hot starts must not hide them.
    fn admits(&self, path: &Path, is_known: bool, exec: Exec) -> bool {
        let mut hasher = DefaultHasher::new();
        (path, exec.seen).hash(&mut hasher);
        let is_known = is_known || exec.seen == Seen::Read;
        self.memory().rates.admits(hasher.finish(), is_known, exec.at / 1_000_000)
    }

    /// Whether headstart itself starts this program, or is it. The process of `headstart run`
    /// becomes the program.
    fn is_ours(&self, pid: u32, path: &Path) -> bool {
        let is_headstart = self.is_headstart(path);
        let mut memory = self.memory();
        if !is_headstart && memory.ours.iter().all(|(ours, _)| *ours != pid) {
            return false;
        }
        let began = i32::try_from(pid).ok().and_then(proc::start_time);
        let process = (pid, began.unwrap_or(0));
        let is_known = memory.ours.contains(&process);
        if is_headstart && !is_known {
            memory.ours.truncate(MOST_OURS - 1);
            memory.ours.push_front(process);
        }
        is_headstart || is_known
    }

    fn is_headstart_at(&self, pid: u32) -> bool {
        let path = fs::read_link(format!("/proc/{pid}/exe"));
        path.is_ok_and(|path| self.is_headstart(&path))
    }

    pub(super) fn is_headstart(&self, path: &Path) -> bool {
        path == self.own || path.file_name().is_some_and(|name| name == HEADSTART)
    }
}

/// Whether a process still is the program of its parent.
fn is_as_forked(child: &Started) -> bool {
    Started::read(child.parent).is_some_and(|parent| child.is_as_forked(&parent))
}

/// Whether a process that began then, in clock ticks since boot, may still start.
pub(super) fn began_lately(start_time: u64, window: Duration) -> bool {
    proc::age(start_time) < window
}
