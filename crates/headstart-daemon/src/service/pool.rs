//! A bounded number of threads with a bounded queue. What does not fit is refused.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that do the same for each of the values that they get.
#[derive(Debug)]
pub(super) struct Pool<T> {
    queue: SyncSender<T>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Pool<T> {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        name: &str,
        threads: usize,
        waiting: usize,
        work: impl Fn(T) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (queue, values) = sync_channel(waiting);
        let (values, work) = (Arc::new(Mutex::new(values)), Arc::new(work));
        let start = |_| {
            let (values, work) = (Arc::clone(&values), Arc::clone(&work));
            thread::Builder::new().name(name.into()).spawn(move || {
                while let Some(value) = next(&values) {
                    work(value);
                }
            })
        };
        let threads = (0..threads).map(start).collect::<io::Result<_>>()?;
        Ok(Self { queue, threads })
    }

    /// Has a value worked on, if there is room for it to wait.
    pub(super) fn give(&self, value: T) -> Result<(), T> {
        self.queue.try_send(value).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(value)
            | std::sync::mpsc::TrySendError::Disconnected(value) => value,
        })
    }

    /// Lets the threads end when they have done what waits. The handles tell when they have.
    pub(super) fn end(self) -> Vec<JoinHandle<()>> {
        self.threads
    }
}

fn next<T>(values: &Mutex<Receiver<T>>) -> Option<T> {
    values.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    #[test]
    fn what_does_not_fit_is_refused_and_what_fits_is_done_before_the_end() {
        let (done, results) = channel();
        let gate = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&gate);
        let pool = Pool::start("test", 1, 2, move |number: u32| {
            if number == 0 {
                theirs.wait();
            }
            done.send(number).unwrap();
        })
        .unwrap();
        // The thread takes the first one and waits at the gate, at the latest when it is asked.
        pool.give(0).unwrap();
        let refused = (1..9).filter(|number| pool.give(*number).is_err()).count();
        assert!((6..=7).contains(&refused), "{refused}");
        gate.wait();
        let threads = pool.end();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(results.iter().count(), 9 - refused);
    }
}
