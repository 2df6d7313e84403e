//! Prefetches what boots touch: the packs of the phases in order, each when its file
//! system appears.
//!
//! The driver. It never waits for a phase and nothing waits for it: it ends with its
//! packs, with its time, or when told. What is left of a phase when that is over, as the
//! recorder notes, is left out.

use super::choose::one_after_another;
use super::machine::Machine;
use super::mounted::{Changes, Mounted};
use super::phases::SESSION;
use super::queue::{Part, Queue};
use super::replayed::Replayed;
use crate::host::error::causes;
use crate::host::mounts::Mounts;
use crate::launch::policy::{limits_of_boot, strategy_of_boot};
use crate::pack::Pack;
use crate::replay::engine::{Ended, Options, Replay};
use crate::replay::frequency::Frequency;
use crate::replay::models::Models;
use crate::replay::plan::Plan;
use crate::replay::report::Report;
use crate::replay::strategy::{Order, ReadStrategy};
use crate::trace::kernel_tids::KernelTids;
use headstart_sys::ioprio::{self, DEFAULT_LEVEL, IoPriority};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether a replay is over or cancelled.
const TICK: Duration = Duration::from_millis(20);
/// The same while it only waits for file systems.
const WAITING: Duration = Duration::from_millis(200);

/// What is to be prefetched.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The phases, in order.
    pub phases: Vec<String>,
    /// Which ranges.
    pub often: Frequency,
    /// Whether to wait until the data is there.
    pub wait: bool,
    /// When to end.
    pub limit: Duration,
    /// Whether this is the initramfs, where no more file systems will appear.
    pub in_initramfs: bool,
    /// Whether what is left of a phase that is over is still read.
    pub over_too: bool,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Each phase that was prefetched.
    pub phases: Vec<Replayed>,
    /// Phases of which a pack was found.
    pub known: Vec<String>,
    /// What could not be used.
    pub problems: Vec<String>,
    /// Phases of which a part was left out, for they were over.
    pub over: Vec<String>,
    /// Phases of which nothing was read, because no file system of their packs is mounted.
    pub elsewhere: Vec<String>,
    /// Why it ended before its packs did.
    pub cut_short: Option<&'static str>,
}

struct Session<'a> {
    machine: &'a Machine,
    wanted: &'a Wanted,
    models: Models,
    tids: KernelTids,
    began: Instant,
    queue: Queue<'a>,
    replayed: Vec<Option<Replayed>>,
    out: Outcome,
}

/// Prefetches. What fails is among the problems of the outcome.
pub fn replay(machine: &Machine, wanted: &Wanted, began: Instant) -> Outcome {
    let mut session = Session {
        machine,
        wanted,
        models: Models::here(),
        tids: KernelTids::here(),
        began,
        queue: Queue::new(machine, &wanted.phases, wanted.often),
        replayed: wanted.phases.iter().map(|_| None).collect(),
        out: Outcome::default(),
    };
    if let Err(error) = session.go() {
        session.out.problems.push(error.to_string());
    }
    session.note_elsewhere();
    let known = session.queue.known().into_iter().map(|phase| wanted.phases[phase].clone());
    session.out.known = known.collect();
    session.out.phases = session.replayed.into_iter().flatten().collect();
    session.out
}

impl Session<'_> {
    fn go(&mut self) -> io::Result<()> {
        let mut mounted = Mounted::default();
        let mut changes = Changes::watch()?;
        loop {
            self.queue.forget_refused();
            self.find_packs();
            mounted.look().map_err(io::Error::other)?;
            loop {
                let mounts = Mounts::default();
                let Some((parts, strategy)) = self.next(&mut mounted, &mounts) else { break };
                self.read(&parts, strategy, mounts)?;
                if self.is_over(false) {
                    return Ok(());
                }
                if changes.wait(Duration::ZERO)? {
                    self.find_packs();
                    mounted.look().map_err(io::Error::other)?;
                }
            }
            if self.wanted.in_initramfs || !self.expects_more(&mounted) {
                return Ok(());
            }
            let mut has_changed = false;
            while !has_changed {
                has_changed = changes.wait(WAITING)?;
                // Something may be mounted all the time.
                if self.is_over(true) {
                    return Ok(());
                }
                if !has_changed {
                    self.leave_out(&mut mounted);
                    if !self.expects_more(&mounted) {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn find_packs(&mut self) {
        for problem in self.queue.find() {
            self.note(problem);
        }
    }

    /// What of the next packs is to be read now, together: those of one phase. On a rotational
    /// disk that is all there is: a pass for each phase seeks more often, and programs
    /// that miss something of a later phase wait for all of them.
    fn next(
        &mut self,
        mounted: &mut Mounted,
        mounts: &Mounts,
    ) -> Option<(Vec<Part>, ReadStrategy)> {
        self.leave_out(mounted);
        let mut parts = self.queue.next_phase(mounted);
        let main = parts.iter().max_by_key(|part| part.pack.data_bytes())?;
        let strategy = self.strategy(main, mounts);
        if strategy.order == Order::Disk {
            parts.extend(std::iter::from_fn(|| self.queue.next(mounted, |_| true)));
        }
        Some((parts, strategy))
    }

    /// How a part is read, and those with it.
    fn strategy(&self, part: &Part, mounts: &Mounts) -> ReadStrategy {
        strategy_of_boot(self.models.of_boot(&part.pack, mounts), &part.pack, self.wanted.wait)
    }

    /// Whether file systems or packs may still appear.
    fn expects_more(&self, mounted: &Mounted) -> bool {
        let mut of_packs = self.machine.mounts_of_state().into_iter();
        self.queue.is_left() || (!self.all_over() && of_packs.any(|place| !mounted.at(&place)))
    }

    fn all_over(&self) -> bool {
        (0..self.wanted.phases.len()).all(|phase| is_past(self.machine, self.wanted, phase))
    }

    /// Leaves out what is left of phases that are over.
    fn leave_out(&mut self, mounted: &mut Mounted) {
        let Self { machine, wanted, queue, .. } = self;
        for phase in queue.leave_out(mounted, |phase| is_past(machine, wanted, phase)) {
            self.note_over(phase);
        }
    }

    fn note_over(&mut self, phase: usize) {
        let name = &self.wanted.phases[phase];
        if !self.out.over.contains(name) {
            self.out.over.push(name.clone());
        }
    }

    /// Notes the phases of which no file system was ever there.
    fn note_elsewhere(&mut self) {
        let mut phases = self.queue.away();
        phases.retain(|phase| self.replayed[*phase].is_none());
        let names = phases.iter().map(|phase| self.wanted.phases[*phase].clone());
        self.out.elsewhere = names.collect();
    }

    /// Reads parts of packs.
    fn read(&mut self, parts: &[Part], strategy: ReadStrategy, mounts: Mounts) -> io::Result<()> {
        let Some(last) = parts.iter().map(|part| part.phase).max() else { return Ok(()) };
        if parts.iter().all(|part| self.wanted.phases[part.phase] == SESSION) {
            // The boot proper goes before it, and others may use the machine by then. The
            // threads of the replay inherit it; the usual priority can always be had.
            let _ = ioprio::set_for_thread(IoPriority::BestEffort(DEFAULT_LEVEL));
        }
        let mut packs: Vec<Pack> = parts.iter().map(|part| part.pack.clone()).collect();
        one_after_another(parts.iter().map(|part| part.phase).zip(&mut packs));
        let plan = Plan::of_packs(&packs, limits_of_boot(), strategy);
        // Without it the recorder counts these threads to the boot.
        self.keep(parts, None);
        let left = self.wanted.limit.saturating_sub(self.began.elapsed());
        let options = Options {
            wait: self.wanted.wait,
            timeout: Some(left),
            exact: true,
            // Most upgrades change little of where a file is read.
            follow: true,
            tids: self.tids.clone(),
            ..Options::default()
        };
        let replay = Replay::start(plan, options, mounts, self.began)?;
        let mut past = false;
        let is_over = || self.machine.is_cancelled() || self.began.elapsed() >= self.wanted.limit;
        while !replay.is_finished() && !past && !is_over() {
            past = is_past(self.machine, self.wanted, last);
            thread::sleep(TICK);
        }
        let Ended { report, threads, .. } = replay.end();
        let cut = past && !report.complete;
        self.keep(parts, Some((report.divided(&packs), threads)));
        if cut {
            self.note_over(last);
        }
        Ok(())
    }

    /// Tells the recorder that these are read, or what became of each and which threads
    /// did it.
    fn keep(&mut self, parts: &[Part], done: Option<(Vec<Report>, Vec<i32>)>) {
        for (number, part) in parts.iter().enumerate() {
            let name = &self.wanted.phases[part.phase];
            let new = || Replayed::new(name, self.wanted.in_initramfs);
            let replayed = self.replayed[part.phase].get_or_insert_with(new);
            if !replayed.packs.contains(&part.path) {
                replayed.packs.push(part.path.clone());
            }
            if let Some((reports, threads)) = &done {
                replayed.add(&reports[number], threads);
                if reports[number].complete {
                    replayed.read_packs.push(part.path.clone());
                }
            }
            if let Err(error) = replayed.keep(self.machine) {
                self.note(causes(&error));
            }
        }
    }

    /// Notes what is wrong, once.
    fn note(&mut self, problem: String) {
        if !self.out.problems.contains(&problem) {
            self.out.problems.push(problem);
        }
    }

    /// Whether it has to end here. When it only waits for file systems, and has read others,
    /// that is not before its end: those of another root, or of a disk that is not attached,
    /// do not come.
    fn is_over(&mut self, waits: bool) -> bool {
        let is_cancelled = self.machine.is_cancelled();
        let time_is_up = self.began.elapsed() >= self.wanted.limit;
        let is_done = waits && self.replayed.iter().any(Option::is_some);
        self.out.cut_short = match (is_cancelled, time_is_up) {
            (true, _) => Some("/run/headstart/cancel is there"),
            (_, true) if !is_done => Some("its time was up"),
            _ => None,
        };
        is_cancelled || time_is_up
    }
}

/// Whether a phase is over: what it touches was read by the programs themselves, and
/// reading it now would only hold up what comes next.
fn is_past(machine: &Machine, wanted: &Wanted, phase: usize) -> bool {
    !wanted.over_too && machine.is_over(&wanted.phases[phase])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::test_packs::{away, here, keep_pack};
    use std::fs;

    /// A machine without packs, and what a replay for it says within `limit`.
    fn on(limit: Duration, prepare: impl Fn(&Machine)) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        prepare(&machine);
        let wanted = Wanted {
            phases: vec!["mounts".into(), "system".into()],
            often: Frequency::TWO_OF_THREE,
            wait: true,
            limit,
            in_initramfs: false,
            over_too: false,
        };
        replay(&machine, &wanted, Instant::now())
    }

    #[test]
    fn without_packs_it_ends_at_once_unless_they_are_to_be_mounted() {
        const LONG: Duration = Duration::from_secs(600);
        assert_eq!(on(LONG, |_| ()).cut_short, None);
        let unit = "/run/systemd/generator/var-lib-headstart.mount";
        let waits = on(Duration::from_millis(1), |machine| {
            let path = machine.place(unit);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        });
        assert_eq!(waits.cut_short, Some("its time was up"));
    }

    #[test]
    fn it_waits_for_file_systems_of_a_phase_until_that_is_over() {
        let waits = on(Duration::from_millis(1), |machine| keep_pack(machine, "mounts", &away()));
        assert_eq!((waits.cut_short, waits.over.len()), (Some("its time was up"), 0));
        for (fs, there) in [(away(), false), (here("proc"), true)] {
            let ends = on(Duration::from_secs(600), |machine| {
                keep_pack(machine, "mounts", &fs);
                machine.mark_over("mounts").unwrap();
            });
            let mounts = |is: bool| if is { vec!["mounts".to_owned()] } else { vec![] };
            assert_eq!((ends.cut_short, ends.known), (None, mounts(true)));
            assert_eq!((ends.over, ends.elsewhere), (mounts(there), mounts(!there)), "{fs:?}");
        }
    }

    #[test]
    fn a_file_system_that_does_not_come_is_no_reason_to_say_that_it_ended_early() {
        let ended = on(Duration::from_secs(1), |machine| {
            keep_pack(machine, "mounts", &away());
            keep_pack(machine, "mounts", &here("proc"));
        });
        assert_eq!((ended.cut_short, ended.phases.len(), ended.elsewhere), (None, 1, vec![]));
    }
}
