//! Learns in a thread, which is left behind if it takes too long: it may wait for a file system
//! that does not answer.

use super::LaunchError;
use super::learn::{LaunchFacts, Learned, Settings, learn};
use super::record::Recorded;
use crate::outcome::counts::PageCounts;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long learning may take. A large recording takes a second or two.
const LIMIT: Duration = Duration::from_secs(30);
/// How long it may go on after a signal: learning mostly takes a tenth of a second, and a service
/// manager that ends the control group should not prevent it.
const GRACE: Duration = Duration::from_secs(3);
/// How often it is checked whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// What a start added to its pack, and the classification of its pages.
type LearnResult = Result<(Learned, PageCounts), LaunchError>;

/// A start that is being learned.
#[derive(Debug)]
pub struct Learner {
    result: Receiver<LearnResult>,
    until: Instant,
}

impl Learner {
    /// Begins to learn a start, which `began` then, as [`learn`] does.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        recorded: Recorded,
        began: Instant,
        settings: Settings,
        facts: LaunchFacts,
        uid: u32,
    ) -> Result<Self, LaunchError> {
        let (send, result) = channel();
        // Nobody wants it any more when it fails.
        let work = move || drop(send.send(learn(recorded, began, &settings, facts, uid)));
        let thread = thread::Builder::new().name("learn".into()).spawn(work);
        thread.map_err(LaunchError::Thread)?;
        Ok(Self { result, until: Instant::now() + LIMIT })
    }

    /// Waits for its end, for a moment once it `is_unwanted`, and not for longer than its limit.
    ///
    /// # Errors
    /// Those of [`learn`], and what ended the waiting.
    pub fn finish(self, is_unwanted: impl Fn() -> bool) -> LearnResult {
        let is_over = |end| Instant::now() >= end;
        let mut end = None;
        loop {
            if end.is_none() && is_unwanted() {
                end = Some(Instant::now() + GRACE);
            }
            match self.result.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(LaunchError::LearningDied),
                Err(RecvTimeoutError::Timeout) if end.is_some_and(is_over) => {
                    return Err(LaunchError::LearningEnded);
                }
                Err(RecvTimeoutError::Timeout) if is_over(self.until) => {
                    return Err(LaunchError::LearningTooLong(LIMIT.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_ends_with_its_result_its_thread_or_when_it_is_unwanted_or_too_long() {
        let late = || Instant::now() + LIMIT;
        let learner = |until| {
            let (send, result) = channel();
            (send, Learner { result, until })
        };
        let (send, finished) = learner(Instant::now());
        send.send(Ok(Default::default())).unwrap();
        assert!(finished.finish(|| true).is_ok(), "what is there counts");
        let (send, died) = learner(late());
        drop(send);
        assert!(matches!(died.finish(|| false), Err(LaunchError::LearningDied)));
        let (_send, unwanted) = learner(late());
        let from = Instant::now();
        assert!(matches!(unwanted.finish(|| true), Err(LaunchError::LearningEnded)));
        assert!(from.elapsed() >= GRACE, "it is not ended at once");
        let (_send, stuck) = learner(Instant::now());
        assert!(matches!(stuck.finish(|| false), Err(LaunchError::LearningTooLong(30))));
    }
}
