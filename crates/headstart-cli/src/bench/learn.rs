//! Starts that teach: for a program without a pack, and to see what a read-ahead
//! start uses of what it is given. None of them is measured: tracing costs time.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, bail};
use headstart::launch::learn::{DEFAULT_KEEP, Known, Settings, Target, locate};
use headstart::launch::learner::Learner;
use headstart::launch::record::{Recorded, buffer_of, start_recording_now};
use headstart::pack::Pack;
use headstart::pack::key::Key;
use headstart::pack::store::{self, StoreError};
use headstart::replay::engine::Replay;
use headstart::trace::capture::Scope;
use headstart_bench::report::Accuracy;

use super::measure::{Bench, read_ahead};
use super::start::{Over, Rest};

/// Makes a cold start and joins it into the pack at `path`; with `ahead`, the
/// pack is prefetched beside it, as `run` does. Tells how well that met what the
/// start used; `None` when we are to stop.
pub fn lesson(bench: &Bench, path: &Path, ahead: bool) -> anyhow::Result<Option<Accuracy>> {
    let uid = rustix::process::geteuid().as_raw();
    let known = match store::read(path, uid) {
        Ok(pack) => Some(pack),
        Err(StoreError::Missing(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let watcher = bench.get_ready_cold()?;
    let buffer = buffer_of(known.as_ref());
    let replayer = Replayer::new(known.as_ref().filter(|_| ahead))?;
    // It is this thread that forks.
    let recorder = start_recording_now(Scope::Descendants, buffer, false)?;
    let began = Instant::now();
    let replay = replayer.map(Replayer::begin).transpose()?;
    let mut running = bench.starter.spawn(&bench.words, watcher)?;
    let (over, _) = bench.starter.wait(&mut running)?;
    replay.iter().for_each(Replay::stop);
    let report = replay.map(Replay::finish);
    let key = Key::of_command(&bench.words, locate);
    let settings = Settings {
        target: Target::of(&key, path.to_owned()),
        narrower: None,
        share: false,
        bounded: false,
        keep: DEFAULT_KEEP,
        walk: true,
        trace_out: None,
        ignored_tids: Vec::new(),
    };
    // While the program lives, it tells what it has open.
    let pages = known.as_ref().map_or(0, |pack| pack.expected_bytes() / pack.page_size());
    let known = Known { pack: known, replay: report, ..Known::default() };
    let learned = Recorded::end(recorder, || None).and_then(|(recorded, instance)| {
        let learning = Learner::start(recorded, began, settings, known, uid)?;
        let (_, outcome) = learning.finish(|| false)?;
        Ok((outcome, instance))
    });
    let finished = bench.starter.finish(running, over, Rest::End)?;
    if over == Over::Interrupted {
        return Ok(None);
    }
    if let Some(why) = finished.failure {
        bail!("The program failed while it was learned: {why}");
    }
    // Dropping the instance waits until it is gone, so that its removal does
    // not take time from the next start.
    let (outcome, _instance) = learned?;
    Ok(Some(Accuracy::of(&outcome, pages, rustix::param::page_size() as u64)))
}

/// A thread that begins a replay when it is told to. The recorder follows what
/// this thread starts from the moment it is armed, so a thread that starts those
/// of the replay has to be there before.
struct Replayer {
    go: Sender<()>,
    thread: JoinHandle<anyhow::Result<Replay>>,
}

impl Replayer {
    fn new(pack: Option<&Pack>) -> anyhow::Result<Option<Self>> {
        let Some(pack) = pack.cloned() else { return Ok(None) };
        let (go, told) = channel();
        let begin = move || {
            told.recv().context("Nothing was to be prefetched")?;
            read_ahead(&pack, Instant::now())
        };
        let thread = thread::Builder::new().spawn(begin).context("Can't start a thread")?;
        Ok(Some(Self { go, thread }))
    }

    fn begin(self) -> anyhow::Result<Replay> {
        // A thread that is gone is told about by the join.
        let _ = self.go.send(());
        self.thread.join().unwrap_or_else(|_| bail!("The replaying thread died"))
    }
}
