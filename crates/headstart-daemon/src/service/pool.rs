//! A bounded number of threads with a bounded queue. What does not fit is refused. A value wakes one thread:
//! with a channel that they share it would be two, and a wake-up is most of what an exec costs.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that do the same for each of the values that they get.
#[derive(Debug)]
pub(super) struct Pool<T> {
    queue: Arc<Queue<T>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    /// A value came, or the end.
    changes: Condvar,
    most: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    values: VecDeque<T>,
    is_closed: bool,
}

impl<T: Send + 'static> Pool<T> {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        name: &str,
        threads: usize,
        most: usize,
        work: impl Fn(T) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let waiting = Mutex::new(Waiting { values: VecDeque::new(), is_closed: false });
        let queue = Arc::new(Queue { waiting, changes: Condvar::new(), most });
        let mut pool = Self { queue, threads: Vec::new() };
        let work = Arc::new(work);
        for _ in 0..threads {
            let (queue, work) = (Arc::clone(&pool.queue), Arc::clone(&work));
            let work = move || std::iter::from_fn(|| queue.next()).for_each(|value| work(value));
            pool.threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        }
        Ok(pool)
    }

    /// Has a value worked on, if there is room for it to wait.
    pub(super) fn give(&self, value: T) -> Result<(), T> {
        let mut waiting = self.queue.lock();
        if waiting.values.len() >= self.queue.most {
            return Err(value);
        }
        waiting.values.push_back(value);
        drop(waiting);
        self.queue.changes.notify_one();
        Ok(())
    }

    /// Lets the threads end when they have done what waits. The handles tell when they have.
    pub(super) fn end(mut self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.threads)
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changes.notify_all();
    }
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next value, once there is one; none after the last.
    fn next(&self) -> Option<T> {
        let is_idle = |waiting: &mut Waiting<T>| waiting.values.is_empty() && !waiting.is_closed;
        let waiting = self.changes.wait_while(self.lock(), is_idle);
        waiting.unwrap_or_else(PoisonError::into_inner).values.pop_front()
    }
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
