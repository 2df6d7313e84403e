//! Prefetches what boots touch: the packs of the phases in order, each when its file system is
//! mounted. The driver.
//!
//! It waits for no phase, and no phase waits for it. It ends when all is read, after a time limit,
//! or when it is cancelled. It skips what is left of a phase that is over, as the recorder notes.

use super::across_phases::chain_times;
use super::machine::Machine;
use super::mounted::{Changes, Mounted};
use super::phases::SESSION;
use super::queue::{NextPack, Queue};
use super::replay_records::ReplayRecord;
use crate::host::error::causes;
use crate::host::mounts::Mounts;
use crate::launch::policy::Purpose;
use crate::launch::prefetch;
use crate::pack::Pack;
use crate::replay::engine::Ended;
use crate::replay::models::Models;
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

/// The options of a replay for a boot.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The phases, in order.
    pub phases: Vec<String>,
    /// Whether to wait until the data is there.
    pub wait: bool,
    /// When to end.
    pub limit: Duration,
    /// Whether this is the initramfs, where no more file systems will appear.
    pub in_initramfs: bool,
    /// Whether the rest of a phase that is over is still read.
    pub over_too: bool,
}

/// The result of a replay for a boot.
#[derive(Debug, Default)]
pub struct BootReplay {
    /// Each phase that was prefetched.
    pub phases: Vec<ReplayRecord>,
    /// Phases of which a pack was found.
    pub known: Vec<String>,
    /// What could not be used.
    pub problems: Vec<String>,
    /// Phases of which a part was skipped, because they had ended.
    pub over: Vec<String>,
    /// Phases of which nothing was read, because no file system of their packs is mounted.
    pub elsewhere: Vec<String>,
    /// Why it ended before its packs did.
    pub cut_short: Option<&'static str>,
}

struct Replayer<'a> {
    machine: &'a Machine,
    options: &'a ReplayOptions,
    models: Models,
    tids: KernelTids,
    began: Instant,
    queue: Queue<'a>,
    replayed: Vec<Option<ReplayRecord>>,
    out: BootReplay,
}

/// Prefetches. What fails is among the problems of the outcome.
pub fn replay(machine: &Machine, options: &ReplayOptions, began: Instant) -> BootReplay {
    let mut replayer = Replayer {
        machine,
        options,
        models: Models::here(),
        tids: KernelTids::here(),
        began,
        queue: Queue::new(machine, &options.phases),
        replayed: options.phases.iter().map(|_| None).collect(),
        out: BootReplay::default(),
    };
    if let Err(error) = replayer.go() {
        replayer.out.problems.push(error.to_string());
    }
    replayer.note_elsewhere();
    let known = replayer.queue.known().into_iter().map(|phase| options.phases[phase].clone());
    replayer.out.known = known.collect();
    replayer.out.phases = replayer.replayed.into_iter().flatten().collect();
    replayer.out
}

impl Replayer<'_> {
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
            if self.options.in_initramfs || !self.expects_more(&mounted) {
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
                    self.skip_ended(&mut mounted);
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

    /// The packs that are read together next: those of one phase. On a rotational disk, those of
    /// all phases: a pass for each phase would seek more often, and programs that need a page of a
    /// later phase would wait for all passes. Sessions of users are read separately, with the usual
    /// priority.
    fn next(
        &mut self,
        mounted: &mut Mounted,
        mounts: &Mounts,
    ) -> Option<(Vec<NextPack>, ReadStrategy)> {
        self.skip_ended(mounted);
        let mut parts = self.queue.next_phase(mounted);
        let main = parts.iter().max_by_key(|part| part.pack.data_bytes())?;
        let strategy = self.strategy(main, mounts);
        if strategy.order == Order::Elevator {
            let (first, phases) = (parts[0].phase, &self.options.phases);
            let joins = |phase| is_session(phases, phase) == is_session(phases, first);
            parts.extend(std::iter::from_fn(|| self.queue.next(mounted, joins)));
        }
        Some((parts, strategy))
    }

    /// The read strategy of a part, and of those with it.
    fn strategy(&self, part: &NextPack, mounts: &Mounts) -> ReadStrategy {
        self.purpose().strategy(self.models.of_boot(&part.pack, mounts), &part.pack)
    }

    fn purpose(&self) -> Purpose {
        let limit = self.options.limit.saturating_sub(self.began.elapsed());
        Purpose::Boot { wait: self.options.wait, limit, tids: self.tids.clone() }
    }

    /// Whether file systems or packs may still appear.
    fn expects_more(&self, mounted: &Mounted) -> bool {
        let mut of_packs = self.machine.mounts_of_state().into_iter();
        self.queue.is_left() || (!self.all_over() && of_packs.any(|place| !mounted.at(&place)))
    }

    fn all_over(&self) -> bool {
        (0..self.options.phases.len()).all(|phase| is_past(self.machine, self.options, phase))
    }

    /// Skips what is left of phases that have ended.
    fn skip_ended(&mut self, mounted: &mut Mounted) {
        let Self { machine, options, queue, .. } = self;
        for phase in queue.skip_ended(mounted, |phase| is_past(machine, options, phase)) {
            self.note_over(phase);
        }
    }

    fn note_over(&mut self, phase: usize) {
        let name = &self.options.phases[phase];
        if !self.out.over.contains(name) {
            self.out.over.push(name.clone());
        }
    }

    /// Notes the phases of which no file system was ever there.
    fn note_elsewhere(&mut self) {
        let mut phases = self.queue.away();
        phases.retain(|phase| self.replayed[*phase].is_none());
        let names = phases.iter().map(|phase| self.options.phases[*phase].clone());
        self.out.elsewhere = names.collect();
    }

    /// Reads parts of packs.
    fn read(
        &mut self,
        parts: &[NextPack],
        strategy: ReadStrategy,
        mounts: Mounts,
    ) -> io::Result<()> {
        let Some(last) = parts.iter().map(|part| part.phase).max() else { return Ok(()) };
        if is_session(&self.options.phases, last) {
            // The boot proper goes before it, and others may use the machine by then. The
            // threads of the replay inherit it; the usual priority is always permitted.
            let _ = ioprio::set_for_thread(IoPriority::BestEffort(DEFAULT_LEVEL));
        }
        let mut packs: Vec<Pack> = parts.iter().map(|part| part.pack.clone()).collect();
        chain_times(parts.iter().map(|part| part.phase).zip(&mut packs));
        // Without it the recorder counts these threads to the boot.
        self.keep(parts, None);
        let purpose = self.purpose();
        let plan = prefetch::plan(&packs, strategy, &purpose);
        let replay = prefetch::start(plan, &purpose, mounts, self.began)?;
        let mut past = false;
        let is_over = || self.machine.is_cancelled() || self.began.elapsed() >= self.options.limit;
        while !replay.is_finished() && !past && !is_over() {
            past = is_past(self.machine, self.options, last);
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

    /// Notes for the recorder that these are read, or the figures of each and its threads.
    fn keep(&mut self, parts: &[NextPack], done: Option<(Vec<Report>, Vec<i32>)>) {
        for (number, part) in parts.iter().enumerate() {
            let name = &self.options.phases[part.phase];
            let new = || ReplayRecord::new(name, self.options.in_initramfs);
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

    /// Notes a problem, once.
    fn note(&mut self, problem: String) {
        if !self.out.problems.contains(&problem) {
            self.out.problems.push(problem);
        }
    }

    /// Whether it has to end here. If it only `waits` for file systems, and has read others, that
    /// is no early end: those of another root, or of a removable disk, do not come.
    fn is_over(&mut self, waits: bool) -> bool {
        let is_cancelled = self.machine.is_cancelled();
        let time_is_up = self.began.elapsed() >= self.options.limit;
        let is_done = waits && self.replayed.iter().any(Option::is_some);
        self.out.cut_short = match (is_cancelled, time_is_up) {
            (true, _) => Some("by /run/headstart/cancel"),
            (_, true) if !is_done => Some("by --timeout"),
            _ => None,
        };
        is_cancelled || time_is_up
    }
}

/// Whether the phase of this number is a user's session.
fn is_session(phases: &[String], phase: usize) -> bool {
    phases[phase] == SESSION
}

/// Whether a phase is over: its programs have read its files, and reading them now would only delay
/// the next phase.
fn is_past(machine: &Machine, options: &ReplayOptions, phase: usize) -> bool {
    !options.over_too && machine.is_over(&options.phases[phase])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::test_packs::{away, here, keep_pack};
    use std::fs;

    /// A machine without packs, and what a replay for it says within `limit`.
    fn on(limit: Duration, prepare: impl Fn(&Machine)) -> BootReplay {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::at(dir.path());
        prepare(&machine);
        let options = ReplayOptions {
            phases: vec!["mounts".into(), "system".into()],
            wait: true,
            limit,
            in_initramfs: false,
            over_too: false,
        };
        replay(&machine, &options, Instant::now())
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
        assert_eq!(waits.cut_short, Some("by --timeout"));
    }

    #[test]
    fn it_waits_for_file_systems_of_a_phase_until_that_is_over() {
        let waits = on(Duration::from_millis(1), |machine| keep_pack(machine, "mounts", &away()));
        assert_eq!((waits.cut_short, waits.over.len()), (Some("by --timeout"), 0));
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
