//! The helper process of a start: it gets the program's pack ready, starts the trace for the
//! process that waits to become the program, begins to prefetch, lets the program start, and
//! learns after its end.
//!
//! It belongs to no terminal and holds nothing that the program was started with. Whatever fails
//! here is a note for whoever wants to be told; nothing keeps the program from starting.

use crate::ahead::{large_folios_later, remove_orphans};
use crate::exact::Follower;
use crate::exit::ExitStatus;
use crate::session::Session;
use crate::summary::{Facts, Findings, Lesson};
use crate::until::{IDLE, Until};
use headstart::doctor::rights;
use headstart::host::{memory, proc};
use headstart::launch::LaunchError;
use headstart::launch::learn::{Known, Settings, Target, know_device, locate};
use headstart::launch::learner::Learner;
use headstart::launch::prepare::{Preparation, Prepared, WELL_KNOWN, Wanted};
use headstart::launch::record::{self, Recorded, Recording, buffer_of, give_up};
use headstart::pack::key::Key;
use headstart::pack::store::claim::{Claim, claim};
use headstart::replay::engine::Replay;
use headstart::replay::models::Models;
use headstart::replay::report::Report;
use headstart::trace::capture::{BufferSize, Recorder, Scope};
use headstart::trace::tracefs::Tracefs;
use headstart_sys::descriptors;
use headstart_sys::helper::{Helper, Started};
use headstart_sys::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked at whether reading has died down.
const IDLE_CHECK: Duration = Duration::from_millis(250);
/// How often it is looked whether all was prefetched for a program that goes on.
const REPLAY_CHECK: Duration = Duration::from_millis(50);

/// How long a program of which [`WELL_KNOWN`] starts were learned waits to be traced.
/// Starting takes 5 ms; it takes up to 100 ms while the kernel removes the
/// instance of an earlier start.
const PATIENCE: Duration = Duration::from_millis(20);

/// Helps with a start, tells what became of it through `told`, and ends.
pub fn help(helper: Helper, session: Session, told: Option<OwnedFd>) -> ! {
    if told.is_none() {
        // Whoever waits for the program to close them must not have to wait for us. Without
        // /proc they stay open until we end.
        let _ = descriptors::let_go_of_inherited();
    }
    // Where memory runs out the kernel is to end this process, not the program. Where it can't be
    // told, it chooses the largest.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let interrupt = Interrupt::catch().ok();
    let start = Start {
        helper: Arc::new(helper),
        interrupt,
        session,
        is_told: told.is_some(),
        notes: Vec::new(),
        late: None,
    };
    let findings = start.go();
    if let Some(told) = told {
        let line = serde_json::to_vec(&findings).unwrap_or_default();
        // Whoever wanted to know has gone otherwise.
        let _ = File::from(told).write_all(&[&line[..], b"\n"].concat());
    }
    descriptors::close_all();
    std::process::exit(0)
}

/// A start.
struct Start {
    helper: Arc<Helper>,
    /// Tells when this process is to end; nothing does where it can't be caught.
    interrupt: Option<Interrupt>,
    session: Session,
    /// Whether somebody waits for what became of the start.
    is_told: bool,
    notes: Vec<String>,
    /// What came too late to record, until it has been cleared away.
    late: Option<JoinHandle<()>>,
}

/// How a start was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    /// The program goes on.
    Early,
    /// It has ended, or we are to end.
    Ended,
    /// There was none.
    NotStarted,
}

impl Start {
    fn go(mut self) -> Findings {
        let key = match &self.session.name {
            Some(name) => Key::of_name(name),
            None => Key::of_command(&self.session.command, locate),
        };
        self.leave_directory();
        let wanted = Wanted {
            explicit: self.session.pack.clone(),
            file_names: key.file_names(),
            replay: self.session.replay,
        };
        let hold_from = Instant::now();
        let mut preparation = match self.session.replay {
            Some(_) => Preparation::beside(wanted),
            None => Preparation::now(&wanted),
        };
        let prepared = preparation.within(self.session.max_delay).map(|prepared| &*prepared);
        let held = hold_from.elapsed();
        self.session.learn &= !prepared.is_some_and(|prepared| prepared.skip_recording);
        let path = prepared.map(|prepared| prepared.path.clone());
        let buffer = self.buffer(prepared);
        let patience = self.patience(prepared);
        let claim = self.claim(path);
        let follower = self.follower();
        let arming_from = Instant::now();
        let recorder =
            if self.session.learn { self.start_recording(buffer, patience) } else { None };
        let armed_in = recorder.is_some().then(|| arming_from.elapsed());
        let follower = follower.filter(|_| recorder.is_some()).and_then(|mut follower| {
            let pid = self.helper.program().as_raw_nonzero().get();
            let attached = follower.attach(pid);
            attached.map_err(|error| self.fault_around_stays(&error)).map(|()| follower).ok()
        });
        wait_for_head(&mut preparation, self.session.max_delay.saturating_sub(held));
        let began = Instant::now();
        let released = self.session.began.elapsed();
        // It did not wait any longer where this fails, and its first events were not recorded.
        let recorder = match self.helper.go() {
            Ok(()) => recorder,
            Err(_) => {
                self.notes.extend(recorder.is_some().then(|| BUSY.into()));
                recorder.into_iter().for_each(give_up);
                None
            }
        };
        preparation.begin_late();
        remove_orphans();
        let over = self.wait(recorder.as_ref(), &mut preparation);
        let Prepared { pack, path, notes, replay, device_known, expected, .. } =
            preparation.finish();
        if over != Over::Early {
            // Nobody is left to profit from the rest.
            replay.iter().for_each(Replay::stop);
        }
        if over == Over::NotStarted {
            recorder.into_iter().for_each(give_up);
            self.clear_away();
            return Findings::default();
        }
        self.notes.splice(0..0, notes);
        let is_idle = |recorder: &Recorder| recorder.idle_for() >= IDLE;
        let whole = over == Over::Ended || recorder.as_ref().is_some_and(is_idle);
        let cut_off = !whole && self.session.span.until != Until::Time;
        let followed = || follower.and_then(Follower::end);
        let recorded = recorder.map(|recorder| Recorded::end(recorder, followed));
        if let Some(replay) = replay.as_ref().filter(|_| over == Over::Early) {
            // The program goes on, and what it will need is still being read.
            while !replay.is_finished() && !self.has_ended(REPLAY_CHECK) {}
        }
        let ended = replay.map(Replay::end);
        let report: Option<Report> = ended.as_ref().map(|ended| ended.report);
        let known = Known {
            pack,
            replay: report,
            log: ended.map(|ended| ended.log),
            released_us: u64::try_from(released.as_micros()).unwrap_or(u64::MAX),
            whole,
            cut_off,
        };
        let settings = self.settings(&key, path.clone());
        let uid = rustix::process::geteuid().as_raw();
        let lesson = recorded.and_then(|recorded| {
            let learned = || {
                let (recorded, instance) = recorded?;
                let learning = Learner::start(recorded, began, settings, known, uid);
                let is_unwanted = || self.interrupt.as_ref().is_some_and(Interrupt::came);
                let learned = learning.and_then(|learning| learning.finish(is_unwanted));
                record::remove(instance);
                learned.map(|(learned, outcome)| Lesson { learned, outcome })
            };
            let why = |e| format!("this start is not learned: {:#}", anyhow::Error::from(e));
            learned().map_err(|e: LaunchError| self.notes.push(why(e))).ok()
        });
        drop(claim);
        let notes = std::mem::take(&mut self.notes);
        let findings = Findings::of(Facts {
            exec_after: released,
            armed_in,
            expected,
            report: report.as_ref(),
            lesson: lesson.as_ref(),
            notes,
        });
        self.clear_away();
        if lesson.is_some_and(|lesson| lesson.learned.written) && !device_known {
            know_device(&path, &Models::here());
        }
        if self.session.large_folios {
            large_folios_later(&path);
        }
        findings
    }

    /// Leaves the directory that this process was started in: its file system could not be
    /// unmounted.
    fn leave_directory(&mut self) {
        for path in [&mut self.session.pack, &mut self.session.trace_out].into_iter().flatten() {
            // It fails for an empty path, which is one nowhere.
            *path = std::path::absolute(&*path).unwrap_or_default();
        }
        let _ = rustix::process::chdir("/");
    }

    fn settings(&self, key: &Key, path: PathBuf) -> Settings {
        let file_name = path.file_name().unwrap_or_default();
        let narrower = key.narrower(file_name).filter(|_| self.session.pack.is_none());
        Settings {
            narrower: narrower.map(|key| Target::of(&key, path.with_file_name(&key.file_name))),
            target: Target::of(&key.of_pack(path.file_name().unwrap_or_default()), path),
            keep: self.session.keep,
            walk: self.session.walk,
            share: self.session.share,
            bounded: self.session.pack.is_none(),
            trace_out: self.session.trace_out.clone(),
            ignored_tids: Vec::new(),
        }
    }

    /// Whom other starts of the program leave the learning to; nobody, if another is at it.
    fn claim(&mut self, pack: Option<PathBuf>) -> Option<Claim> {
        let may_record = rights::has(rights::own(), rights::SYS_ADMIN);
        if !self.session.learn || self.session.must_learn || !may_record {
            return None;
        }
        match claim(&pack?) {
            Ok(claimed) => Some(claimed),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.session.learn = false;
                self.notes.push("another start of it is being learned, so this one is not".into());
                None
            }
            // What keeps the pack from being written is said then.
            Err(_) => None,
        }
    }

    /// Who has each page show by itself, if that is wanted.
    fn follower(&mut self) -> Option<Follower> {
        if !self.session.exact || !self.session.learn {
            return None;
        }
        if !rights::has(rights::own(), rights::SYS_PTRACE) {
            // A program that is followed without it gets no rights by being set-uid.
            self.fault_around_stays(&anyhow::anyhow!("--exact needs root (cap_sys_ptrace)"));
            return None;
        }
        Follower::start().map_err(|error| self.fault_around_stays(&error)).ok()
    }

    fn fault_around_stays(&mut self, why: &anyhow::Error) {
        self.notes.push(format!("pages are learned with fault-around pages: {why:#}"));
    }

    /// Waits for what would otherwise be left in the kernel.
    fn clear_away(&mut self) {
        // A thread that panicked leaves it to the next start.
        let _ = self.late.take().map(JoinHandle::join);
    }

    /// How large the trace buffers are to be.
    fn buffer(&self, prepared: Option<&Prepared>) -> BufferSize {
        let pack = prepared.and_then(|prepared| prepared.pack.as_ref());
        self.session.buffer_kb.map_or_else(|| buffer_of(pack), BufferSize::Fixed)
    }

    /// How long the program waits to be traced. A pack that is not ready in time is large, and
    /// so of a program that was learned before.
    fn patience(&self, prepared: Option<&Prepared>) -> Duration {
        let starts = |prepared: &Prepared| prepared.pack.as_ref().map_or(0, |p| p.origin.starts);
        let is_known = prepared.is_none_or(|prepared| starts(prepared) >= WELL_KNOWN);
        if is_known && !self.session.must_learn { PATIENCE } else { Duration::MAX }
    }

    /// A recorder, or a note why there is none.
    fn start_recording(&mut self, buffer: BufferSize, patience: Duration) -> Option<Recorder> {
        // The first process of a PID namespace ends us with it, so it has to be learned before.
        if self.helper.program().is_init() && self.session.span.until == Until::Exit {
            self.session.span.until = Until::Idle;
        }
        let helper = Arc::clone(&self.helper);
        let scope = match self.session.system {
            true => Scope::System,
            false if proc::in_first_pid_namespace() => {
                Scope::Tree(helper.program().as_raw_nonzero().get())
            }
            false => Scope::Marked(Box::new(move |file, mark| helper.ask_for_mark(file, mark))),
        };
        let was_mounted = matches!(Tracefs::mounted(), Ok(Some(_)));
        match record::start_recording(scope, buffer, true, patience) {
            Ok(Recording::Recorder(recorder)) => {
                if !was_mounted {
                    let what = "mounted tracefs on /sys/kernel/tracing, where recording needs it";
                    self.notes.push(what.into());
                }
                Some(recorder)
            }
            Ok(Recording::Late(thread)) => {
                self.late = Some(thread);
                self.notes.push(BUSY.into());
                None
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                self.notes.push(match ExitStatus::from(&error) {
                    ExitStatus::PermissionMissing if !rustix::process::geteuid().is_root() => {
                        "this start is not learned: recording needs root, use sudo".into()
                    }
                    _ => format!("this start is not learned: {error:#}"),
                });
                None
            }
        }
    }

    /// Returns at the end of the start, or when there is nothing left to do in it.
    fn wait(&self, recorder: Option<&Recorder>, preparation: &mut Preparation) -> Over {
        let (begin, span) = (Instant::now(), self.session.span);
        let idle_for = || recorder.map_or(Duration::ZERO, Recorder::idle_for);
        let mut started = false;
        let mut over = Over::Early;
        loop {
            let elapsed = begin.elapsed();
            if span.is_over(elapsed, idle_for) || recorder.is_some_and(Recorder::is_full) {
                return over;
            }
            let mut nap = span.nap(elapsed, IDLE_CHECK);
            if self.may_leave(recorder) {
                // Its memory may be what the program lacks.
                if started && preparation.is_finished() {
                    return over;
                }
                nap = nap.min(REPLAY_CHECK);
            } else if memory::group_room_for_cache().is_some() {
                nap = nap.min(IDLE_CHECK);
            }
            if over == Over::Ended {
                // It stays readable.
                nap = nap.min(IDLE_CHECK);
                std::thread::sleep(nap);
            } else {
                self.sleep(nap, started);
            }
            if self.interrupt.as_ref().is_some_and(Interrupt::came) {
                return Over::Ended;
            }
            if !started {
                match self.helper.started() {
                    Ok(Started::Failed) => return Over::NotStarted,
                    Ok(Started::NotYet) => {}
                    Ok(Started::Yes) | Err(_) => started = true,
                }
            }
            if over == Over::Early && self.has_ended(Duration::ZERO) {
                if span.until != Until::Time {
                    return Over::Ended;
                }
                over = Over::Ended;
            }
        }
    }

    /// Whether nothing is learned of the start any more and nobody waits for what became of it.
    fn may_leave(&self, recorder: Option<&Recorder>) -> bool {
        let records = recorder.is_some_and(|recorder| !recorder.has_failed());
        !records && !self.is_told && !self.session.large_folios
    }

    /// Sleeps until the program was executed, has ended, or we are to end.
    fn sleep(&self, time: Duration, started: bool) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.helper.end(), PollFlags::IN)];
        fds.extend(self.interrupt.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if !started {
            fds.push(PollFd::from_borrowed_fd(self.helper.start(), PollFlags::IN));
        }
        // Time that can't be expressed is as good as for ever; a signal ends it sooner.
        let time = Timespec::try_from(time).ok();
        let _ = poll(&mut fds, time.as_ref());
    }

    /// Whether the program ends within this time, or we are to end.
    fn has_ended(&self, within: Duration) -> bool {
        let mut fds = vec![PollFd::from_borrowed_fd(self.helper.end(), PollFlags::IN)];
        fds.extend(self.interrupt.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let time = Timespec::try_from(within).ok();
        poll(&mut fds, time.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

/// Said of a start that was not recorded from its begin.
const BUSY: &str = "this start is not learned: tracing was busy";

/// Waits until the first pages were asked for, at most for `limit`.
fn wait_for_head(preparation: &mut Preparation, limit: Duration) {
    let from = Instant::now();
    let prepared = preparation.within(limit);
    if let Some(replay) = prepared.and_then(|prepared| prepared.replay.as_ref()) {
        replay.wait_for_head(limit.saturating_sub(from.elapsed()));
    }
}
