//! Measures one arm once: prepares the cache, starts the program, and counts. All arms are measured
//! by the same code; only what runs in parallel with the program differs.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use headstart::host::user::User;
use headstart::launch::lifecycle::Launch;
use headstart::launch::prepare::{LaunchSpec, PrefetchOptions};
use headstart::outcome::waited::RequestsOf;
use headstart::pack::{Pack, store};
use headstart_bench::arm::{Arm, CacheState, Peer, PeerMode};
use headstart_bench::run::{Prefetch, Run};
use headstart_sys::process::Usage;

use super::cool::{Cooler, shell};
use super::disks::Disks;
use super::floor::Floor;
use super::ready::Watcher;
use super::start::{Leftovers, Running, Starter, WaitEnd};
use crate::args;
use crate::run::DEFAULT_MAX_DELAY;
use crate::waited;

/// All that it takes to measure an arm.
#[derive(Debug)]
pub struct Bench {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Starts it.
    pub starter: Starter,
    /// Empties the cache.
    pub cooler: Cooler,
    /// Where its files are.
    pub disks: Disks,
    /// What is to run before every start.
    pub prepare: Option<String>,
    /// What it is compared with.
    pub peers: Vec<Peer>,
    /// Its pack.
    pub pack: Option<PathBuf>,
    /// The fastest read strategy for the pack.
    pub floor: Option<Floor>,
    /// Whether the waits of starts are recorded.
    pub records_waits: Cell<bool>,
}

/// What runs in parallel with the program.
enum Parallel<'a> {
    Nothing,
    Launch(Box<Launch>),
    Peer(&'a Peer, Running),
}

impl Bench {
    /// Measures an arm; `None` after an interrupt.
    ///
    /// # Errors
    /// The cache can't be emptied, or the program not be executed. A start that fails is a [`Run`]
    /// with its failure.
    pub fn measure(&self, arm: Arm) -> anyhow::Result<Option<Run>> {
        if arm == Arm::Floor {
            return self.measure_floor();
        }
        let words = match arm {
            Arm::Other { peer, .. } => command_words(&self.peers[peer].command),
            _ => self.words.clone(),
        };
        if matches!(
            arm,
            Arm::Program { state: CacheState::Hot } | Arm::Other { state: CacheState::Hot, .. }
        ) {
            let warm_up = self.start(arm, &words, Cache::AsItIs)?;
            if warm_up.as_ref().is_none_or(|run| run.failure.is_some()) {
                return Ok(warm_up);
            }
            return self.start(arm, &words, Cache::AsItIs);
        }
        let selective = arm == Arm::Program { state: CacheState::Selective };
        self.start(arm, &words, if selective { Cache::Selective } else { Cache::Cold })
    }

    /// The same, and records what the program waits for.
    ///
    /// # Errors
    /// Likewise, or that can't be recorded.
    pub fn measure_waits(&self, arm: Arm) -> anyhow::Result<Option<Run>> {
        self.records_waits.set(true);
        let run = self.measure(arm);
        self.records_waits.set(false);
        run
    }

    /// Starts a program once.
    fn start(&self, arm: Arm, words: &[OsString], cache: Cache) -> anyhow::Result<Option<Run>> {
        let watcher = self.get_ready(cache)?;
        let mut waits =
            self.records_waits.get().then(waited::Recording::of_children).transpose()?;
        let counting = self.disks.count()?;
        let mut run = Run::default();
        let began = Instant::now();
        let beside = match arm {
            Arm::Program { state: CacheState::Prefetched } => {
                let path = self.pack.as_deref().context("There is no pack to prefetch")?;
                let mut spec = spec(path, true, false, began);
                spec.prefetch.iter_mut().for_each(|how| how.log = waits.is_some());
                Parallel::Launch(Box::new(released(Launch::prepare(spec))?))
            }
            Arm::Helped { peer } => {
                let peer = &self.peers[peer];
                let beside = self.help(peer, &mut run)?;
                run.peer_s = (peer.how == PeerMode::Before).then(|| began.elapsed().as_secs_f64());
                beside
            }
            _ => Parallel::Nothing,
        };
        let mut running = self.starter.spawn(words, watcher)?;
        waits.iter_mut().for_each(waited::Recording::note_threads);
        let (over, at) = self.starter.wait(&mut running)?;
        let mut requests = RequestsOf::new();
        match beside {
            Parallel::Nothing => {}
            Parallel::Launch(launch) => {
                let ended = launch.end(true, || None, || true);
                run.prefetch = ended.report.as_ref().map(Prefetch::from);
                requests = ended.requests();
            }
            Parallel::Peer(peer, running) => {
                // A running peer is ended; an ended one is judged by its status.
                let over = match over {
                    WaitEnd::Interrupted => over,
                    _ if running.has_ended()? => WaitEnd::Ended,
                    _ => WaitEnd::Ready,
                };
                let finished = self.starter.finish(running, over, Leftovers::Keep)?;
                run.failure = finished.failure.map(|why| format!("{}: {why}", peer.name));
            }
        }
        let pid = running.pid();
        run.waited = waits.map(|waits| waits.end_of(pid, &requests)).transpose()?;
        let finished = self.starter.finish(running, over, Leftovers::End)?;
        if over == WaitEnd::Interrupted {
            return Ok(None);
        }
        self.disks.settle()?;
        let read = counting.read()?;
        run.failure = run.failure.or(finished.failure);
        run.wall_s = run.failure.is_none().then(|| at.duration_since(began).as_secs_f64());
        run.read_bytes = read.map(|disk| disk.bytes);
        run.read_requests = read.map(|disk| disk.requests);
        run.exit_code = finished.exit_code.filter(|_| over == WaitEnd::Ended);
        run.left_behind = finished.left_behind;
        take_over(&mut run, finished.usage);
        Ok(Some(run))
    }

    /// Prepares the state before the clock starts. What watches the program
    /// starts first: it may bring files in.
    fn get_ready(&self, cache: Cache) -> anyhow::Result<Watcher> {
        if let Some(command) = &self.prepare {
            shell(command)?;
        }
        let watcher = self.starter.watch()?;
        self.cool(cache)?;
        self.starter.keep_children();
        Ok(watcher)
    }

    fn cool(&self, cache: Cache) -> anyhow::Result<()> {
        self.disks.settle()?;
        match cache {
            Cache::AsItIs => {}
            Cache::Cold => self.cooler.cold()?,
            Cache::Selective => self.cooler.selective()?,
        }
        self.disks.settle()
    }

    /// Prepares a start from this state.
    pub fn get_ready_for(&self, state: CacheState) -> anyhow::Result<Watcher> {
        self.get_ready(match state {
            CacheState::Hot => Cache::AsItIs,
            CacheState::Selective => Cache::Selective,
            CacheState::Cold | CacheState::Prefetched => Cache::Cold,
        })
    }

    /// Empties the cache for something else than a start.
    pub fn get_cold(&self) -> anyhow::Result<()> {
        self.cool(Cache::Cold)
    }

    /// The program's pack, as it is now.
    pub fn known_pack(&self) -> anyhow::Result<Pack> {
        let path = self.pack.as_ref().context("There is no pack to prefetch")?;
        Ok(store::read(path, rustix::process::geteuid().as_raw())?)
    }

    /// Runs a peer, or begins to.
    fn help<'a>(&self, peer: &'a Peer, run: &mut Run) -> anyhow::Result<Parallel<'a>> {
        let words = command_words(&peer.command);
        if words.is_empty() {
            return Ok(Parallel::Nothing);
        }
        let mut helper = self.starter.spawn(&words, Watcher::End)?;
        if peer.how == PeerMode::Parallel {
            return Ok(Parallel::Peer(peer, helper));
        }
        let (over, _) = self.starter.wait(&mut helper)?;
        let finished = self.starter.finish(helper, over, Leftovers::Keep)?;
        run.failure = finished.failure.map(|why| format!("{}: {why}", peer.name));
        Ok(Parallel::Nothing)
    }

    /// Reads the pack with the fastest strategy, while nothing else runs.
    fn measure_floor(&self) -> anyhow::Result<Option<Run>> {
        let Some(floor) = &self.floor else { bail!("There is no floor to measure") };
        if self.starter.interrupt.came() {
            return Ok(None);
        }
        self.get_cold()?;
        let counting = self.disks.count()?;
        let (report, seconds) = floor.read()?;
        let read = counting.read()?;
        let failure = (!report.complete || report.failed > 0).then(|| match report.stopped {
            Some(why) => format!("reading the pack ended early: {why}"),
            None => {
                format!("{} of the requests failed; see headstart replay --verify", report.failed)
            }
        });
        Ok(Some(Run {
            wall_s: failure.is_none().then_some(seconds),
            read_bytes: read.map(|disk| disk.bytes),
            read_requests: read.map(|disk| disk.requests),
            prefetch: Some(Prefetch::from(&report)),
            failure,
            ..Run::default()
        }))
    }
}

/// What is to be in memory when the clock starts.
#[derive(Clone, Copy)]
enum Cache {
    AsItIs,
    Selective,
    Cold,
}

/// A launch as `run` makes one, with or without expected benefit.
pub fn spec(pack: &Path, prefetch: bool, learn: bool, began: Instant) -> LaunchSpec {
    LaunchSpec {
        user: User::own(),
        explicit: Some(pack.into()),
        file_names: Vec::new(),
        prefetch: prefetch.then_some(PrefetchOptions { always: true, ..Default::default() }),
        learn,
        set_aside: false,
        began,
        max_delay: args::duration(DEFAULT_MAX_DELAY).unwrap_or_default(),
    }
}

/// A launch whose program may start.
pub fn released(mut launch: Launch) -> anyhow::Result<Launch> {
    launch.wait_for_head();
    launch.release(|| Ok::<_, anyhow::Error>(()))?;
    // One without a pack that can be used would measure something else.
    if let Some(note) = launch.prepared().and_then(|prepared| prepared.notes.first()) {
        bail!("{note}");
    }
    Ok(launch)
}

fn take_over(run: &mut Run, usage: Usage) {
    let seconds = |us: u64| us as f64 / 1e6;
    run.user_s = Some(seconds(usage.user_us));
    run.system_s = Some(seconds(usage.system_us));
    run.major_faults = Some(usage.major_faults);
    run.minor_faults = Some(usage.minor_faults);
}

/// A command as words: split at spaces when it has nothing that only a shell
/// understands, since that would start a shell for nothing.
fn command_words(command: &str) -> Vec<OsString> {
    let plain = |c: char| c.is_alphanumeric() || " -_./,:+@%=".contains(c);
    let first_is_setting = command.split(' ').next().is_some_and(|word| word.contains('='));
    if command.chars().all(plain) && !first_is_setting {
        return command.split_ascii_whitespace().map(OsString::from).collect();
    }
    ["/bin/sh", "-c", command].map(OsString::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_only_started_for_what_needs_one() {
        for (command, words) in [
            ("", &[][..]),
            ("true", &["true"]),
            ("/bin/cat  a=b -x", &["/bin/cat", "a=b", "-x"]),
            ("cat a > /dev/null", &["/bin/sh", "-c", "cat a > /dev/null"]),
            ("A=b true", &["/bin/sh", "-c", "A=b true"]),
            ("echo 'a b'", &["/bin/sh", "-c", "echo 'a b'"]),
        ] {
            assert_eq!(command_words(command), words, "{command}");
        }
    }
}
