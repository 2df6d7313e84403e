//! What differs between kinds of launches, and why.
//!
//! A service gets all that a program gets. A benchmark measures what a replay gains and costs, so
//! it is prefetched whatever the benefit estimate says. [`Purpose`] says how packs are read,
//! [`Patience`] how long a start waits to be traced, [`Learning`] how a recording becomes a pack.

use crate::host::memory;
use crate::pack::Pack;
use crate::pack::history::HISTORY_STARTS;
use crate::replay::engine::Options;
use crate::replay::frequency::Frequency;
use crate::replay::model::Model;
use crate::replay::pack_strategy::read_strategy;
use crate::replay::plan::Limits;
use crate::replay::strategy::ReadStrategy;
use crate::trace::kernel_tids::KernelTids;
use std::time::Duration;

/// Which ranges of a program's or service's pack are read, by how many of the last starts touched
/// them.
pub const FREQUENT: Frequency = Frequency::HALF;

/// The same for a boot's packs. Few boots are known, and a single unusual one should change
/// nothing.
pub const FREQUENT_IN_BOOTS: Frequency = Frequency::TWO_OF_THREE;

/// From this many learned starts on, one start more adds little.
pub const WELL_KNOWN: u32 = 3;

/// What a user limits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bounds {
    /// Bytes at most, if limited.
    pub budget: Option<u64>,
    /// Threads, if given.
    pub threads: Option<usize>,
}

impl Bounds {
    /// A read strategy with the threads of these bounds.
    pub fn apply(self, strategy: ReadStrategy) -> ReadStrategy {
        ReadStrategy { threads: self.threads.unwrap_or(strategy.threads), ..strategy }
    }
}

/// What a replay is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A start of a program or service goes on in parallel.
    Start {
        /// What the user limits.
        bounds: Bounds,
        /// Whether the requests and their times are logged, which learning needs to find late
        /// pages.
        log: bool,
        /// Whether a sample of the pack was resident, so that one thread checks the rest.
        sampled: bool,
    },
    /// `headstart replay`: no program runs in parallel, so there is no in-flight limit.
    Alone {
        /// What the user limits.
        bounds: Bounds,
        /// Whether to wait until the data is there.
        wait: bool,
        /// When to stop.
        timeout: Option<Duration>,
    },
    /// The floor, the least time that the device needs: everything is read and waited for, and
    /// nothing is done for a program in parallel.
    Floor,
    /// A phase of a boot goes on in parallel.
    ///
    /// There is no benefit estimate, which was calibrated on single programs, and no sample of
    /// what is resident: the page cache is empty after power-on. Nothing is logged, since the
    /// boot's own recording has what these threads (`tids`) added to the page cache.
    Boot {
        /// Whether the boot waits for all of it.
        wait: bool,
        /// When to stop.
        limit: Duration,
        /// Tells the threads their numbers.
        tids: KernelTids,
    },
}

impl Purpose {
    /// What the user limits.
    pub fn bounds(&self) -> Bounds {
        match self {
            Self::Start { bounds, .. } | Self::Alone { bounds, .. } => *bounds,
            Self::Floor | Self::Boot { .. } => Bounds::default(),
        }
    }

    /// How often starts must have touched what is read of a pack.
    pub fn frequency(&self) -> Frequency {
        match self {
            // Its packs hold only what is chosen by [`FREQUENT_IN_BOOTS`], so that the share of
            // each is known before they are read together.
            Self::Boot { .. } => Frequency::EVER,
            _ => FREQUENT,
        }
    }

    /// What bounds a plan: the memory that may be filled too, and what this user may read.
    pub fn limits(&self) -> Limits {
        let budget = memory::budget().min(self.bounds().budget.unwrap_or(u64::MAX));
        Limits { budget, metadata: rustix::process::geteuid().is_root() }
    }

    /// How a pack is best read, by the model of its device, if that was measured.
    pub fn strategy(&self, model: Option<Model>, pack: &Pack) -> ReadStrategy {
        let best = read_strategy(model, pack);
        let strategy = match self {
            Self::Start { .. } => best,
            Self::Alone { .. } => ReadStrategy { in_flight: None, ..best },
            Self::Floor => {
                let ReadStrategy { near_us, metadata_lead, in_flight, seek, .. } =
                    ReadStrategy::default();
                ReadStrategy { near_us, metadata_lead, in_flight, seek, ..best }
            }
            // Lead and limit were measured of single programs only. A boot that does not wait
            // computes for seconds, so a rotational disk is read in several passes.
            Self::Boot { wait, .. } => {
                let strategy = ReadStrategy { metadata_lead: None, in_flight: None, ..best };
                if *wait { strategy } else { strategy.in_passes() }
            }
        };
        self.bounds().apply(strategy)
    }

    /// How a plan is carried out.
    pub fn options(&self) -> Options {
        let all = Options { check_all: true, ..Options::default() };
        match self {
            Self::Start { log, sampled, .. } => {
                Options { log: *log, sampled: *sampled, ..Options::default() }
            }
            Self::Alone { wait, timeout, .. } => Options { wait: *wait, timeout: *timeout, ..all },
            Self::Floor => Options { wait: true, ..all },
            // Most upgrades change little of where a file is read.
            Self::Boot { wait, limit, tids } => Options {
                wait: *wait,
                timeout: Some(*limit),
                follow: true,
                tids: tids.clone(),
                ..all
            },
        }
    }
}

/// How long a start waits to be traced. Arming takes 5 ms; it takes up to 100 ms while the
/// kernel removes the instance of an earlier start, and more with many of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// While few starts are known.
    pub new: Duration,
    /// When [`WELL_KNOWN`] starts were learned.
    pub well_known: Duration,
}

impl Patience {
    /// Of a program that the user started.
    pub const PROGRAM: Self = Self { new: Duration::MAX, well_known: Duration::from_millis(20) };
    /// Of a service. Several start at boot, each with a recording.
    pub const SERVICE: Self =
        Self { new: Duration::from_secs(1), well_known: Duration::from_millis(100) };
    /// Of a start that is to be recorded, whatever it takes.
    pub const ENDLESS: Self = Self { new: Duration::MAX, well_known: Duration::MAX };

    /// The patience for a program with this many learned starts. `None`: its large pack is still
    /// being read, so it has many.
    pub fn of(self, starts: Option<u32>) -> Duration {
        match starts {
            Some(starts) if starts < WELL_KNOWN => self.new,
            _ => self.well_known,
        }
    }
}

/// How a recorded launch becomes a pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learning {
    /// Starts after whose absence a range is dropped.
    pub keep: u32,
    /// Whether I/O waits are removed from the times of touches.
    pub without_waits: bool,
    /// The longest time for resolving inodes to paths.
    pub names_limit: Duration,
}

impl Learning {
    /// For a program or service. Its caller may wait for the result, and the disk, which has just
    /// become idle, should not be kept busy for a few names.
    pub fn of_start(keep: u32) -> Self {
        Self { keep, without_waits: false, names_limit: Duration::from_secs(2) }
    }

    /// For a boot. Ranges of all known boots stay, since few boots are known. Waits are removed:
    /// they depend on how the boot was prefetched, and the times of its phases are chained. Nobody
    /// waits for the result, and a rotational disk needs long for the thousands of files of a boot.
    pub const BOOT: Self =
        Self { keep: HISTORY_STARTS, without_waits: true, names_limit: Duration::from_secs(30) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::strategy::Order;

    #[test]
    fn a_start_waits_long_for_its_trace_only_while_few_are_known() {
        for (starts, expected) in [
            (Some(0), Patience::SERVICE.new),
            (Some(WELL_KNOWN - 1), Patience::SERVICE.new),
            (Some(WELL_KNOWN), Patience::SERVICE.well_known),
            (None, Patience::SERVICE.well_known),
        ] {
            assert_eq!(Patience::SERVICE.of(starts), expected, "{starts:?}");
        }
    }

    #[test]
    fn the_purpose_says_how_a_pack_is_read() {
        let bounds = Bounds { budget: Some(1 << 20), threads: Some(3) };
        let limit = Duration::from_secs(1);
        let boot = |wait| Purpose::Boot { wait, limit, tids: KernelTids::default() };
        let start = Purpose::Start { bounds, log: true, sampled: false };
        let alone = Purpose::Alone { bounds, wait: false, timeout: Some(limit) };
        let pack = Pack::default();
        let of = |purpose: &Purpose| {
            let (strategy, options) = (purpose.strategy(None, &pack), purpose.options());
            let limited = purpose.limits().budget <= 1 << 20;
            (limited, options.wait, options.check_all, options.log, strategy.order == Order::Touch)
        };
        for (name, purpose, expected) in [
            ("start", &start, (true, false, false, true, true)),
            ("alone", &alone, (true, false, true, false, true)),
            ("floor", &Purpose::Floor, (false, true, true, false, true)),
            ("boot", &boot(true), (false, true, true, false, true)),
        ] {
            assert_eq!(of(purpose), expected, "{name}");
        }
        assert_eq!(start.strategy(None, &pack).threads, 3);
        assert_eq!(boot(true).frequency(), Frequency::EVER);
        assert_eq!(alone.options().timeout, Some(limit));
    }
}
