//! Whether a start waits for disks, from a few looks at the counters of its process. Pure;
//! `looks` reads them.
//!
//! A start that nobody recorded leaves these: bytes that were read from disks for it, its major
//! faults, and, where the kernel accounts delays, the time in which it waited for blocks.

use std::time::Duration;

/// What a process has cost so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Major page faults, those of ended children included.
    pub major_faults: u64,
    /// Bytes that were read from disks for it.
    pub read_bytes: u64,
    /// How often its first thread slept.
    pub sleeps: u64,
    /// Time in which it waited for blocks; zero where the kernel does not account that.
    pub blocked: Duration,
}

impl Counters {
    fn since(self, before: Self) -> Self {
        Self {
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            sleeps: self.sleeps.saturating_sub(before.sleeps),
            blocked: self.blocked.saturating_sub(before.blocked),
        }
    }
}

/// When a start is looked at, after its exec.
const LOOKS: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(400),
    Duration::from_millis(1000),
    Duration::from_millis(2500),
    Duration::from_millis(5000),
    Duration::from_millis(10_000),
];

/// A start that has read less than this by then gets no more looks: it is hot, or small.
const QUIET_FROM: Duration = Duration::from_millis(400);
const QUIET_BYTES: u64 = 128 << 10;
/// The bytes that one request has on average: readahead makes some large, but most of a start are
/// scattered pages.
const REQUEST_BYTES: u64 = 48 << 10;
/// The bytes that a request has at least.
const LEAST_REQUEST_BYTES: u64 = 4 << 10;

/// A start under observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    first: Counters,
    last: Counters,
    next: usize,
    /// The longest that it can have waited.
    lasted: Duration,
}

/// What comes after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another look, so long after the exec.
    At(Duration),
    /// The start is over.
    Over,
}

impl Watch {
    /// Begins; `first` are the counters right after the exec: a process that becomes another
    /// program keeps them.
    pub fn new(first: Counters) -> Self {
        Self { first, last: first, next: 0, lasted: Duration::MAX }
    }

    /// When the first look is, after the exec.
    pub fn begin(&self) -> Duration {
        LOOKS[0]
    }

    /// Notes a look; `now` is none when the process has ended.
    pub fn look(&mut self, now: Option<Counters>) -> Next {
        let (Some(now), Some(at)) = (now, LOOKS.get(self.next)) else { return Next::Over };
        let new = now.since(self.last);
        self.last = now;
        self.next += 1;
        let is_quiet = *at >= QUIET_FROM && new.read_bytes < QUIET_BYTES;
        match LOOKS.get(self.next) {
            Some(next) if !is_quiet => Next::At(*next),
            _ => Next::Over,
        }
    }

    /// Its process became another program, the watch of which has just begun: no more is read for this
    /// one. `lasted` is the time between the two execs, which limits its wait: on a busy machine the other watch begins
    /// so late that its first counters include reads of the program.
    pub fn becomes(&mut self, program: &Self, lasted: Duration) {
        self.last = program.first;
        self.lasted = lasted;
    }

    /// What was read from disks so far, in bytes.
    pub fn read_bytes(&self) -> u64 {
        self.last.since(self.first).read_bytes
    }

    /// How long the start waited for disks so far: what the kernel accounted, or the requests that
    /// it must have made, each of this time.
    pub fn waited(&self, latency: Duration) -> Duration {
        let spent = self.last.since(self.first);
        let by_bytes = spent.read_bytes.div_ceil(REQUEST_BYTES);
        // A program that reads many small files sleeps for each. Major faults of memory that was
        // compressed, and sleeps for other reasons, read nothing from disks.
        let waits = spent.major_faults.max(spent.sleeps);
        let by_waits = waits.min(spent.read_bytes / LEAST_REQUEST_BYTES);
        let requests = u32::try_from(by_bytes.max(by_waits)).unwrap_or(u32::MAX);
        spent.blocked.max(latency.saturating_mul(requests)).min(self.lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn read(kib: u64) -> Counters {
        Counters { read_bytes: kib << 10, ..Counters::default() }
    }

    /// The looks that a process with these counters gets, and what it then has waited.
    fn watched(counters: &[Option<Counters>], latency: Duration) -> (usize, Duration) {
        let mut watch = Watch::new(Counters::default());
        assert_eq!(watch.begin(), LOOKS[0]);
        for (number, now) in counters.iter().enumerate() {
            if watch.look(*now) == Next::Over {
                return (number + 1, watch.waited(latency));
            }
        }
        (counters.len(), watch.waited(latency))
    }

    #[test]
    fn a_start_is_looked_at_while_it_reads_and_its_wait_is_estimated() {
        let blocked = Counters { blocked: 700 * MS, ..read(480) };
        for (name, counters, latency, looks, waited) in [
            ("ends before the first look", vec![None], MS, 1, Duration::ZERO),
            ("a hot one", vec![Some(read(0)); 9], MS, 3, Duration::ZERO),
            ("a short cold one", vec![Some(read(480)), None], 5 * MS, 2, 50 * MS),
            (
                "a long cold one",
                (1..=9).map(|n| Some(read(n * 4800))).collect(),
                5 * MS,
                LOOKS.len(),
                3500 * MS,
            ),
            (
                "many faults",
                vec![Some(Counters { major_faults: 70, ..read(480) }), None],
                MS,
                2,
                70 * MS,
            ),
            (
                "many small files",
                vec![Some(Counters { sleeps: 200, ..read(480) }), None],
                5 * MS,
                2,
                600 * MS,
            ),
            (
                "sleeps for other reasons",
                vec![Some(Counters { sleeps: 9000, ..read(16) }), None],
                MS,
                2,
                4 * MS,
            ),
            (
                "of memory",
                vec![Some(Counters { major_faults: 9000, ..read(0) }), None],
                MS,
                2,
                Duration::ZERO,
            ),
            ("accounted", vec![Some(blocked), None], MS, 2, 700 * MS),
            (
                "reads just enough",
                (1..=9).map(|n| Some(read(n * 128))).collect(),
                MS,
                LOOKS.len(),
                19 * MS,
            ),
            ("dies down", vec![Some(read(480)), Some(read(960)), Some(read(960))], MS, 3, 20 * MS),
        ] {
            assert_eq!(watched(&counters, latency), (looks, waited), "{name}");
        }
    }

    #[test]
    fn what_the_process_read_as_another_program_does_not_count() {
        let mut watch = Watch::new(read(4800));
        assert_eq!(watch.look(Some(read(4848))), Next::At(LOOKS[1]));
        assert_eq!((watch.waited(MS), watch.read_bytes()), (MS, 48 << 10));
    }

    #[test]
    fn what_a_wrapper_read_until_its_process_became_another_program_counts_for_the_wrapper() {
        let mut wrapper = Watch::new(read(0));
        let mut program = Watch::new(read(480));
        wrapper.becomes(&program, 20 * MS);
        program.look(Some(read(528)));
        assert_eq!((wrapper.waited(MS), program.waited(MS)), (10 * MS, MS));
        // Some of that was read by the program, before its first counters.
        wrapper.becomes(&program, 3 * MS);
        assert_eq!(wrapper.waited(MS), 3 * MS);
    }

    #[test]
    fn what_a_process_slept_before_it_became_the_program_is_no_wait() {
        let mut watch = Watch::new(Counters { sleeps: 9000, ..read(0) });
        // Sleeps of a program that has read nothing are not looked at.
        watch.look(Some(read(0)));
        watch.look(Some(Counters { sleeps: 9020, ..read(480) }));
        assert_eq!(watch.waited(MS), 20 * MS);
    }

    #[test]
    fn counters_that_go_back_are_no_wait() {
        let mut watch = Watch::new(read(4800));
        watch.look(Some(read(0)));
        assert_eq!(watch.waited(MS), Duration::ZERO);
    }
}
