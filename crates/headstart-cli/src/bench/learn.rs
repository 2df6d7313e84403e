//! Starts that are learned: for a program without a pack, to classify the pages of a prefetched
//! start, and to see when a hot one touches what. They are not measured, since tracing costs time.

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use headstart::cache::residency::page_size;
use headstart::launch::learn::{PackTarget, Settings, locate};
use headstart::launch::lifecycle::Launch;
use headstart::launch::record::{Coverage, buffer_of, start_recording_now};
use headstart::pack::key::Key;
use headstart::trace::capture::Scope;
use headstart_bench::arm::CacheState;
use headstart_bench::report::Accuracy;

use super::measure::{Bench, released, spec};
use super::start::{Leftovers, WaitEnd};

/// Makes a start from this state and joins it into the pack at `path`, which a prefetched one prefetches
/// in parallel, as `run` does. Returns the classification of the pages; `None` after an interrupt.
pub fn traced_start(
    bench: &Bench,
    path: &Path,
    state: CacheState,
) -> anyhow::Result<Option<Accuracy>> {
    let watcher = bench.get_ready_for(state)?;
    let prefetch = state == CacheState::Prefetched;
    let mut launch = Launch::prepare(spec(path, prefetch, true, Instant::now()));
    // It is this thread that forks.
    let pack = launch.prepared().and_then(|prepared| prepared.pack.at_hand());
    let recorder = start_recording_now(Scope::Descendants, buffer_of(pack), false)?;
    launch.armed(recorder);
    let launch = released(launch)?;
    let mut running = bench.starter.spawn(&bench.words, watcher)?;
    let (over, _) = bench.starter.wait(&mut running)?;
    let mut ended = launch.end(true, || None, || true);
    let key = Key::of_command(&bench.words, locate);
    let settings =
        Settings { bounded: false, ..Settings::of(PackTarget::of(&key, path.to_owned())) };
    let pages = ended.pack().map_or(0, |pack| pack.expected_bytes() / pack.page_size());
    // While the program lives, its open files have names.
    let uid = rustix::process::geteuid().as_raw();
    let learned = ended.learn(settings, uid, Coverage::Partial, || false).transpose();
    let finished = bench.starter.finish(running, over, Leftovers::End)?;
    if over == WaitEnd::Interrupted {
        return Ok(None);
    }
    if let Some(why) = finished.failure {
        bail!("The program failed while it was learned: {why}");
    }
    // `ended` removes the instance and waits for that, so that it does not delay the next start.
    Ok(learned?.map(|(_, outcome)| Accuracy::of(&outcome, pages, page_size())))
}
