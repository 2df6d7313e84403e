//! The floor: which read strategy is the fastest for a start's pages, found by trial. Pure; the
//! driver times each strategy.

use serde::Serialize;

use headstart::replay::strategy::{Order, ReadStrategy};

/// One timed read strategy.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Trial {
    /// The read strategy.
    pub strategy: ReadStrategy,
    /// How long it took; `None` when it failed.
    pub seconds: Option<f64>,
}

/// How often a promising strategy is tried.
const TRIES: usize = 2;
/// A strategy that took so many times the best is not tried again.
const HOPELESS: f64 = 1.3;
/// Where the best takes longer than this, in seconds, once is enough: what
/// disturbs a machine for moments hardly matters then.
const LONG: f64 = 3.0;

/// A search through read strategies: order first, then threads, then batched readahead, then
/// steps and gaps, each with the best found before.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Search {
    /// What a replay would do, which is tried first: from another begin the search may end
    /// where no single change gets there.
    #[serde(skip)]
    pub usual: ReadStrategy,
    /// What was tried, in this order.
    pub trials: Vec<Trial>,
}

impl Search {
    /// What to try next; `None` when the search is over.
    pub fn next_strategy(&self) -> Option<ReadStrategy> {
        let start = |order, threads| ReadStrategy { order, threads, ..ReadStrategy::default() };
        let [touch, disk, pass] = [(Order::Touch, 4), (Order::Elevator, 4), (Order::Elevator, 1)]
            .map(|(o, t)| start(o, t));
        self.open(&[self.usual, touch, disk, pass])
            .or_else(|| {
                let best = self.best()?;
                let threads = [1, 4, 16, 64].map(|threads| start(best.order, threads));
                self.open(&threads)
            })
            .or_else(|| {
                let best = self.best()?;
                self.open(&[false, true].map(|batched| ReadStrategy { batched, ..best }))
            })
            .or_else(|| {
                let best = self.best()?;
                let sizes = [(128, 0), (512, 32), (1024, 64), (2048, 256)].map(|(step, gap)| {
                    ReadStrategy { step_bytes: step << 10, gap_bytes: gap << 10, ..best }
                });
                self.open(&sizes)
            })
    }

    /// The first of these that should still be tried.
    fn open(&self, strategies: &[ReadStrategy]) -> Option<ReadStrategy> {
        let best = self.times().map(|(_, time)| time).fold(f64::INFINITY, f64::min);
        let is_open = |strategy: &&ReadStrategy| {
            let tried: Vec<_> =
                self.trials.iter().filter(|trial| trial.strategy == **strategy).collect();
            let hopeless = |trial: &&Trial| trial.seconds.is_none_or(|time| time > HOPELESS * best);
            let tries = if best > LONG && best.is_finite() { 1 } else { TRIES };
            tried.len() < tries && !tried.iter().any(hopeless)
        };
        strategies.iter().find(is_open).copied()
    }

    /// The fastest strategy so far.
    pub fn best(&self) -> Option<ReadStrategy> {
        self.times().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(strategy, _)| strategy)
    }

    fn times(&self) -> impl Iterator<Item = (ReadStrategy, f64)> {
        self.trials.iter().filter_map(|trial| Some((trial.strategy, trial.seconds?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Lets a search try strategies that take as long as `cost` says.
    fn searched(cost: impl Fn(ReadStrategy) -> Option<f64>) -> Search {
        searched_from(ReadStrategy::default(), cost)
    }

    fn searched_from(usual: ReadStrategy, cost: impl Fn(ReadStrategy) -> Option<f64>) -> Search {
        let mut search = Search { usual, ..Search::default() };
        while let Some(strategy) = search.next_strategy() {
            search.trials.push(Trial { strategy, seconds: cost(strategy) });
            assert!(search.trials.len() < 50, "the search does not end");
        }
        search
    }

    #[test]
    fn the_search_finds_what_suits_a_disk_and_what_suits_a_network() {
        let disk = searched(|strategy| {
            let order = if strategy.order == Order::Elevator { 1.0 } else { 3.0 };
            Some(order + strategy.threads as f64 * 0.1 + 100.0 / strategy.step_bytes as f64)
        });
        let best = disk.best().unwrap();
        assert_eq!((best.order, best.threads, best.step_bytes), (Order::Elevator, 1, 2048 * KIB));
        let network = searched(|strategy| {
            Some(64.0 / strategy.threads as f64 + strategy.gap_bytes as f64 / 1e6)
        });
        let best = network.best().unwrap();
        assert_eq!((best.threads, best.gap_bytes), (64, 0));
        assert!(disk.trials.len() <= 20 && network.trials.len() <= 20);
    }

    #[test]
    fn the_search_begins_with_what_a_replay_would_do() {
        let usual = ReadStrategy { threads: 2, batched: true, ..ReadStrategy::default() };
        // Many threads are a little better, and few are much better in batches.
        let cost = |strategy: ReadStrategy| {
            let time = if strategy.batched && strategy.threads <= 4 { 0.2 } else { 1.0 };
            Some(time - strategy.threads as f64 / 1000.0)
        };
        assert!(!searched(cost).best().unwrap().batched);
        let best = searched_from(usual, cost).best().unwrap();
        assert_eq!((best.threads, best.batched), (2, true));
    }

    #[test]
    fn what_takes_long_is_tried_once() {
        let times = |seconds| searched(|_| Some(seconds)).trials.len();
        assert!(2 * times(LONG + 1.0) == times(LONG - 1.0), "{}", times(LONG + 1.0));
    }

    #[test]
    fn strategies_that_fail_end_the_search_without_a_best() {
        let search = searched(|_| None);
        assert_eq!(search.best(), None);
        assert_eq!(search.trials.len(), 3, "each order once");
    }
}
