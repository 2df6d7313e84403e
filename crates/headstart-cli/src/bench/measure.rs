//! Measures one arm once: prepares the cache, starts what is to be started, and
//! counts. Every arm takes this same way; only what happens beside the program
//! differs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use headstart::launch::policy::Bounds;
use headstart::launch::prepare::{self, Ahead};
use headstart::pack::{Pack, store};
use headstart::replay::engine::Replay;
use headstart_bench::arm::{Arm, How, Peer, State};
use headstart_bench::run::{ReadAhead, Run};
use headstart_sys::process::Usage;

use super::cool::{Cooler, shell};
use super::disks::Disks;
use super::floor::Floor;
use super::ready::Watcher;
use super::start::{Over, Rest, Running, Starter};
use crate::args;
use crate::run::DEFAULT_MAX_DELAY;

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
    /// The fastest way to read the pack.
    pub floor: Option<Floor>,
}

/// What goes on beside the program.
enum Beside<'a> {
    Nothing,
    Replay(Replay),
    Peer(&'a Peer, Running),
}

impl Bench {
    /// Measures an arm; `None` when we are to stop.
    ///
    /// # Errors
    /// What makes the whole benchmark pointless: a cache that can't be emptied,
    /// a program that can't be executed. A start that fails is a [`Run`] with
    /// its failure.
    pub fn measure(&self, arm: Arm) -> anyhow::Result<Option<Run>> {
        if arm == Arm::Floor {
            return self.measure_floor();
        }
        let words = match arm {
            Arm::Other { peer, .. } => command_words(&self.peers[peer].command),
            _ => self.words.clone(),
        };
        if matches!(arm, Arm::Program { state: State::Hot } | Arm::Other { state: State::Hot, .. })
        {
            let warm_up = self.start(arm, &words, Cache::AsItIs)?;
            if warm_up.as_ref().is_none_or(|run| run.failure.is_some()) {
                return Ok(warm_up);
            }
            return self.start(arm, &words, Cache::AsItIs);
        }
        let selective = arm == Arm::Program { state: State::Selective };
        self.start(arm, &words, if selective { Cache::Selective } else { Cache::Cold })
    }

    /// Starts a program once.
    fn start(&self, arm: Arm, words: &[OsString], cache: Cache) -> anyhow::Result<Option<Run>> {
        let watcher = self.get_ready(cache)?;
        let counting = self.disks.count()?;
        let mut run = Run::default();
        let began = Instant::now();
        let beside = match arm {
            Arm::Program { state: State::Readahead } => {
                Beside::Replay(read_ahead(&self.known_pack()?, began)?)
            }
            Arm::Helped { peer } => {
                let peer = &self.peers[peer];
                let beside = self.help(peer, &mut run)?;
                run.peer_s = (peer.how == How::Before).then(|| began.elapsed().as_secs_f64());
                beside
            }
            _ => Beside::Nothing,
        };
        let mut running = self.starter.spawn(words, watcher)?;
        let (over, at) = self.starter.wait(&mut running)?;
        match beside {
            Beside::Nothing => {}
            Beside::Replay(replay) => {
                // As `run` does: nobody is left to profit from the rest.
                replay.stop();
                run.read_ahead = Some(ReadAhead::from(&replay.finish()));
            }
            Beside::Peer(peer, running) => {
                // One that goes on is ended; one that has ended is judged.
                let over = match over {
                    Over::Interrupted => over,
                    _ if running.has_ended()? => Over::Ended,
                    _ => Over::Ready,
                };
                let finished = self.starter.finish(running, over, Rest::Keep)?;
                run.failure = finished.failure.map(|why| format!("{}: {why}", peer.name));
            }
        }
        let finished = self.starter.finish(running, over, Rest::End)?;
        if over == Over::Interrupted {
            return Ok(None);
        }
        self.disks.settle()?;
        let read = counting.read()?;
        run.failure = run.failure.or(finished.failure);
        run.wall_s = run.failure.is_none().then(|| at.duration_since(began).as_secs_f64());
        run.read_bytes = read.map(|disk| disk.bytes);
        run.read_requests = read.map(|disk| disk.requests);
        run.exit_code = finished.exit_code.filter(|_| over == Over::Ended);
        run.left_behind = finished.left_behind;
        take_over(&mut run, finished.usage);
        Ok(Some(run))
    }

    /// Prepares what is to hold when the clock starts. What watches the program
    /// starts first: it may bring files in.
    fn get_ready(&self, cache: Cache) -> anyhow::Result<Watcher> {
        if let Some(command) = &self.prepare {
            shell(command)?;
        }
        let watcher = self.starter.watch()?;
        self.cool(cache)?;
        self.starter.leave_alone();
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

    /// Prepares a cold start.
    pub fn get_ready_cold(&self) -> anyhow::Result<Watcher> {
        self.get_ready(Cache::Cold)
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
    fn help<'a>(&self, peer: &'a Peer, run: &mut Run) -> anyhow::Result<Beside<'a>> {
        let words = command_words(&peer.command);
        if words.is_empty() {
            return Ok(Beside::Nothing);
        }
        let mut helper = self.starter.spawn(&words, Watcher::End)?;
        if peer.how == How::Beside {
            return Ok(Beside::Peer(peer, helper));
        }
        let (over, _) = self.starter.wait(&mut helper)?;
        let finished = self.starter.finish(helper, over, Rest::Keep)?;
        run.failure = finished.failure.map(|why| format!("{}: {why}", peer.name));
        Ok(Beside::Nothing)
    }

    /// Reads the pack in the fastest way known, with nothing else going on.
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
            read_ahead: Some(ReadAhead::from(&report)),
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

/// Begins to read a pack ahead, as `run` does, and returns when the program may
/// start.
pub fn read_ahead(pack: &Pack, began: Instant) -> anyhow::Result<Replay> {
    let ahead = Ahead {
        bounds: Bounds::default(),
        always: true,
        learn: false,
        began,
        max_delay: args::duration(DEFAULT_MAX_DELAY).unwrap_or_default(),
    };
    prepare::read_ahead(pack, &ahead).context("Can't start to prefetch")
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
