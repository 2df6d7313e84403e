//! Divides inodes by whether their file system answers for certain. The others are looked for in a
//! thread for each, which is left behind when it takes too long: its calls may wait for a
//! server, and such a wait ends by no signal. One that another process still waits for is not
//! asked.

use super::driver::resolve_here;
use super::options::ResolveOptions;
use super::resolution::{Resolution, Unnamed};
use crate::host::id::InodeId;
use crate::pack::store::silent::{ServerCall, Silent};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread may take if no deadline is set.
const LIMIT: Duration = Duration::from_secs(2);

/// Finds a path for each inode. Duplicates are looked for once. Returns by the deadline, also
/// when a file system does not answer.
pub fn resolve(ids: &[InodeId], options: &ResolveOptions<'_>) -> Resolution {
    let started = Instant::now();
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let groups = sorted.chunk_by(|a, b| a.dev == b.dev);
    let (local, others): (Vec<_>, Vec<_>) =
        groups.partition(|group| options.mounts.answers(group[0].dev));
    let silent = Silent::here();
    let others: Vec<Apart> =
        others.iter().map(|group| Apart::start(group, &silent, options)).collect();
    let mut out = resolve_here(&local.concat(), options);
    others.into_iter().for_each(|apart| out.add(apart.finish()));
    out.files.sort_by_key(|(id, _)| *id);
    // It stays until the start is learned.
    out.files.shrink_to_fit();
    out.unnamed.sort();
    out.replaced.sort_by_key(|replaced| replaced.was);
    out.reused.sort_by_key(|reused| reused.was);
    out.elapsed = started.elapsed();
    out
}

/// Inodes of one file system that a thread looks for.
struct Apart {
    ids: Vec<InodeId>,
    /// What the thread has found, and its call of the server; nothing where there is no thread.
    found: Option<(Receiver<Resolution>, Weak<ServerCall>)>,
    until: Instant,
}

impl Apart {
    fn start(ids: &[InodeId], silent: &Silent, options: &ResolveOptions<'_>) -> Self {
        let servers = ids.first().map(|id| options.mounts.servers_of(id.dev)).unwrap_or_default();
        if silent.any(&servers) {
            return Self { ids: ids.to_vec(), found: None, until: Instant::now() };
        }
        let call = Arc::new(ServerCall::to(&servers));
        let waiting = Arc::downgrade(&call);
        let until = options.deadline.unwrap_or_else(|| Instant::now() + LIMIT);
        let mounts = options.mounts.clone();
        let live = options.live.map(|live| live.of(ids)).unwrap_or_default();
        let earlier = earlier_of(ids, options);
        let (calls, walk) = (options.calls, options.walk);
        let without_result = options.walked_without_result.to_vec();
        let (send, found) = channel();
        let theirs = ids.to_vec();
        let work = move || {
            let options = ResolveOptions {
                live: Some(&live),
                earlier: Some(&earlier),
                calls,
                walk,
                walked_without_result: &without_result,
                deadline: Some(until),
                ..ResolveOptions::new(&mounts)
            };
            // Nobody waits any more when it fails.
            let _ = send.send(resolve_here(&theirs, &options));
            drop(call);
        };
        let started = thread::Builder::new().name("names".into()).spawn(work);
        Self { ids: ids.to_vec(), found: started.ok().map(|_| (found, waiting)), until }
    }

    /// What the thread has found by the deadline: all or nothing. A server that has not answered
    /// by then is marked.
    fn finish(self) -> Resolution {
        let mut nothing = Resolution::default();
        if let Some((found, waiting)) = self.found {
            let left = self.until.saturating_duration_since(Instant::now());
            if let Ok(found) = found.recv_timeout(left) {
                return found;
            }
            waiting.upgrade().iter().for_each(|call| {
                call.mark();
            });
            nothing.walked_without_result.extend(self.ids.first().map(|id| id.dev));
        }
        nothing.unnamed = self.ids.into_iter().map(|id| (id, Unnamed::NoAnswer)).collect();
        nothing
    }
}

fn earlier_of(ids: &[InodeId], options: &ResolveOptions<'_>) -> HashMap<u64, Vec<PathBuf>> {
    let Some(earlier) = options.earlier else { return HashMap::new() };
    let of = |id: &InodeId| Some((id.ino, earlier.get(&id.ino)?.clone()));
    ids.iter().filter_map(of).collect()
}
