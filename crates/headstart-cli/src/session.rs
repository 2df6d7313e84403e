//! One start of a program through us: what `run` and `record` share.
//!
//! The program starts whatever happens here; what could not be done is said
//! in the one line at the end.

use crate::ahead::large_folios_later;
use crate::exact::Follower;
use crate::exit::ExitStatus;
use crate::launch::{self, Ended, NotStarted};
use crate::learning::{self, Armed, DEFAULT_KEEP, Known, Recorded, Settings};
use crate::prepare::{Ahead, Preparation, Prepared, WELL_KNOWN, Wanted};
use crate::told::{Lesson, Told};
use crate::{args, output};
use headstart::doctor::rights;
use headstart::host::proc;
use headstart::pack::key::Key;
use headstart::replay::engine::Replay;
use headstart::replay::models::Models;
use headstart::replay::report::Report;
use headstart::trace::capture::{BufferSize, Recorder, Scope};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long hardly any page may come in or into use until reading has died down.
const IDLE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const IDLE_CHECK: Duration = Duration::from_millis(250);
/// How often it is looked whether all was read ahead for a program that goes on.
const REPLAY_CHECK: Duration = Duration::from_millis(50);

/// How long a program of which [`WELL_KNOWN`] starts were learned waits to be traced.
/// Arming takes 5 ms; it takes up to 100 ms while the kernel removes the
/// instance of an earlier start.
const PATIENCE: Duration = Duration::from_millis(20);
/// When a start is over, at the latest after its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Until {
    /// When the program has ended
    Exit,
    /// When it has ended or has hardly read anything for two seconds
    Idle,
    /// After the time of --for, also when the program ends earlier
    Time,
}

/// The arguments that `run` and `record` share.
#[derive(clap::Args, Debug)]
pub struct StartArgs {
    /// Keep the program under this name instead of one made from its command
    #[arg(long)]
    name: Option<String>,

    /// The start is over after this time at the latest
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = args::duration)]
    duration: Duration,

    /// Let other users replay what is learned: they get a copy of the pack without the
    /// command and without files that they may not read
    #[arg(long)]
    share: bool,

    /// Do not search a file system for the names of files that nothing else
    /// tells
    #[arg(long)]
    no_walk: bool,

    /// Print no summary
    #[arg(short, long)]
    quiet: bool,

    /// Write all figures to this file as one JSON document
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

/// A start, being prepared.
#[derive(Debug)]
pub struct Session {
    command: Vec<OsString>,
    began: Instant,
    uid: u32,
    notes: Vec<String>,
    /// What came too late to record, until it has been cleared away.
    late: Option<JoinHandle<()>>,
    exec_after_us: u64,
    /// What the learner is told.
    pub settings: Settings,
    /// When the start is over.
    pub until: Until,
    /// When it is over at the latest.
    limit: Duration,
    /// How long the program is held back at most until its first pages were
    /// asked for.
    pub hold: Duration,
    /// Whether the whole machine is recorded.
    pub system: bool,
    /// Whether each page is to show by itself.
    pub exact: bool,
    /// A trace buffer of one CPU that is kept at this size, in KiB.
    pub buffer_kb: Option<u32>,
    /// Whether this start is learned.
    pub learn: bool,
    /// Whether the program waits for that as long as it takes.
    pub must_learn: bool,
    /// Whether the program's big files are put into large folios after its end.
    pub large_folios: bool,
    /// Whether the line at the end is left out.
    quiet: bool,
    /// Where all figures go.
    json: Option<PathBuf>,
}

impl Session {
    /// A start as `args` describe it, in a process that `began` then. From here
    /// on signals are kept for the program, so no thread may run yet.
    pub fn new(args: StartArgs, began: Instant) -> Self {
        launch::prepare(&args.command);
        let key = match &args.name {
            Some(name) => Key::of_name(name),
            None => Key::of_command(&args.command, learning::locate),
        };
        let settings = Settings {
            name: key.name,
            file_name: key.file_name,
            command: key.words,
            pack: PathBuf::new(),
            keep: DEFAULT_KEEP,
            walk: !args.no_walk,
            share: args.share,
            trace_out: None,
            ignored_tids: Vec::new(),
        };
        Self {
            command: args.command,
            began,
            uid: rustix::process::geteuid().as_raw(),
            notes: Vec::new(),
            late: None,
            exec_after_us: 0,
            settings,
            until: Until::Exit,
            limit: args.duration,
            hold: Duration::ZERO,
            system: false,
            exact: false,
            buffer_kb: None,
            learn: true,
            must_learn: false,
            large_folios: false,
            quiet: args.quiet,
            json: args.json,
        }
    }

    /// What is to be got ready for it.
    pub fn wanted(&self, explicit: Option<PathBuf>, replay: Option<Ahead>) -> Wanted {
        Wanted { explicit, file_name: self.settings.file_name.clone(), replay }
    }

    /// Starts the program, waits for its end, and learns beside it. What is not ready
    /// in time comes later.
    pub fn go(mut self, mut preparation: Preparation) -> anyhow::Result<ExitStatus> {
        let hold_from = Instant::now();
        let prepared = preparation.within(self.hold).map(|prepared| &*prepared);
        let held = hold_from.elapsed();
        self.learn &= !prepared.is_some_and(|prepared| prepared.spare_learning);
        let buffer = self.buffer(prepared);
        let patience = self.patience(prepared);
        let follower = self.follower();
        // In a PID namespace the kernel knows the program by another number
        // than we do; it follows what is forked after arming.
        let early = self.learn && !self.system && !proc::in_first_pid_namespace();
        let armed = early.then(|| self.arm(Scope::Descendants, buffer, patience));
        let program = match launch::hold(&self.command) {
            Ok(program) => program,
            Err(error) => {
                if let Some(recorder) = armed.flatten() {
                    learning::give_up(recorder);
                }
                drop(follower);
                output::message(format_args!("{error:#}; the program starts without help"));
                return Ok(self.not_started(&launch::become_program(&self.command)));
            }
        };
        let recorder = armed.unwrap_or_else(|| {
            let scope = if self.system { Scope::System } else { Scope::Tree(program.pid()) };
            if self.learn { self.arm(scope, buffer, patience) } else { None }
        });
        let follower = follower.filter(|_| recorder.is_some()).and_then(|mut follower| {
            let attached = follower.attach(program.pid());
            attached.map_err(|error| self.neighbours_show(&error)).map(|()| follower).ok()
        });
        self.wait_for_head(&mut preparation, self.hold.saturating_sub(held));
        let began = Instant::now();
        self.exec_after_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let running = launch::release(program);
        let learner = Learner {
            recorder,
            follower,
            preparation,
            began,
            released_us: self.exec_after_us,
            settings: self.settings.clone(),
            uid: self.uid,
            until: self.until,
            limit: self.limit,
        };
        let (tell, told) = channel();
        let learner =
            thread::Builder::new().name("learn".into()).spawn(move || learner.follow(&told));
        if self.json.is_none() && self.settings.trace_out.is_none() {
            // The files to be written may be /dev/fd/N.
            launch::let_go_of_descriptors();
        }
        let end = match running.wait()? {
            Ok(end) => end,
            Err(failure) => {
                let _ = tell.send(News::NotStarted);
                // What it was about to learn does not matter.
                let _ = learner.map(JoinHandle::join);
                self.clear_away();
                return Ok(self.not_started(&failure));
            }
        };
        // It is gone where it had nothing to learn.
        let _ = tell.send(News::Ended);
        end.obey_signals(move || drop(tell.send(News::Enough)));
        let outcome = learner.map(|thread| thread.join().unwrap_or_default());
        let Followed { report, lesson, notes, device_known, path } = outcome.unwrap_or_default();
        self.notes.splice(0..0, notes);
        let lesson = lesson.and_then(|lesson| {
            lesson.map_err(|e| self.notes.push(format!("this start is not learned: {e:#}"))).ok()
        });
        self.tell(&end, report.as_ref(), lesson.as_ref());
        self.clear_away();
        if lesson.is_some_and(|lesson| lesson.learned.written) && !device_known {
            learning::know_device(&path, &Models::here());
        }
        if self.large_folios {
            large_folios_later(&path);
        }
        Ok(end.status())
    }

    /// Who has each page show by itself, if that is wanted.
    fn follower(&mut self) -> Option<Follower> {
        if !self.exact || !self.learn {
            return None;
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if !rights::has(rights::effective(&status), rights::SYS_PTRACE) {
            // A program that is followed without it gets no rights by being set-uid.
            self.neighbours_show(&anyhow::anyhow!("--exact needs root (cap_sys_ptrace)"));
            return None;
        }
        Follower::start().map_err(|error| self.neighbours_show(&error)).ok()
    }

    fn neighbours_show(&mut self, why: &anyhow::Error) {
        self.notes.push(format!("pages are learned with their neighbours: {why:#}"));
    }

    /// Waits for what would otherwise be left in the kernel.
    fn clear_away(&mut self) {
        // A thread that panicked leaves it to the next start.
        let _ = self.late.take().map(JoinHandle::join);
    }

    fn not_started(&self, failure: &NotStarted) -> ExitStatus {
        let name = self.command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        output::message(format_args!("Can't run {name}: {}", failure.0));
        failure.status()
    }

    /// Waits until the first pages were asked for, at most for `limit`.
    fn wait_for_head(&self, preparation: &mut Preparation, limit: Duration) {
        let from = Instant::now();
        let prepared = preparation.within(limit);
        if let Some(replay) = prepared.and_then(|prepared| prepared.replay.as_ref()) {
            replay.wait_for_head(limit.saturating_sub(from.elapsed()));
        }
    }

    /// How large the trace buffers are to be.
    fn buffer(&self, prepared: Option<&Prepared>) -> BufferSize {
        let pack = prepared.and_then(|prepared| prepared.pack.as_ref());
        match (self.buffer_kb, pack.map_or(0, |pack| pack.origin.buffer_kb)) {
            (Some(fixed), _) => BufferSize::Fixed(fixed),
            (None, 0) => BufferSize::Default,
            (None, needed) => BufferSize::From(needed),
        }
    }

    /// How long the program waits to be traced. A pack that is not ready in time is large, and
    /// so of a program that was learned before.
    fn patience(&self, prepared: Option<&Prepared>) -> Duration {
        let starts = |prepared: &Prepared| prepared.pack.as_ref().map_or(0, |p| p.origin.starts);
        let is_known = prepared.is_none_or(|prepared| starts(prepared) >= WELL_KNOWN);
        if is_known && !self.must_learn { PATIENCE } else { Duration::MAX }
    }

    /// A recorder, or a note why there is none.
    fn arm(&mut self, scope: Scope, buffer: BufferSize, patience: Duration) -> Option<Recorder> {
        let watch = self.until == Until::Idle;
        let armed = match scope {
            // It is this thread that forks.
            Scope::Descendants => learning::arm_now(scope, buffer, watch).map(Armed::Recorder),
            _ => learning::arm(scope, buffer, watch, patience),
        };
        match armed {
            Ok(Armed::Recorder(recorder)) => Some(recorder),
            Ok(Armed::Late(thread)) => {
                self.late = Some(thread);
                self.notes.push("this start is not learned: tracing was busy".into());
                None
            }
            Err(error) => {
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

    fn tell(&self, end: &Ended, report: Option<&Report>, lesson: Option<&Lesson>) {
        let told = Told { end, report, lesson, notes: &self.notes };
        if let Some(file) = &self.json
            && let Err(error) = told.write(&self.command, self.exec_after_us, file)
        {
            output::message(format_args!("{error:#}"));
        }
        if !self.quiet {
            output::message(told.summary());
        }
    }
}

/// What the learning thread owns.
struct Learner {
    recorder: Option<Recorder>,
    /// What has each page show by itself.
    follower: Option<Follower>,
    preparation: Preparation,
    began: Instant,
    /// When the program was let go, since the process began, in µs.
    released_us: u64,
    settings: Settings,
    uid: u32,
    until: Until,
    limit: Duration,
}

/// What it brings back.
#[derive(Default)]
struct Followed {
    report: Option<Report>,
    lesson: Option<anyhow::Result<Lesson>>,
    notes: Vec<String>,
    /// Whether it was measured how the device of the pack behaves.
    device_known: bool,
    /// Where the program is learned.
    path: PathBuf,
}

impl Learner {
    /// Waits for the end of the start, then learns from it.
    fn follow(mut self, told: &Receiver<News>) -> Followed {
        self.preparation.begin_late();
        learning::remove_orphans();
        let over = self.wait(told);
        let Prepared { pack, path, notes, replay, device_known, .. } = self.preparation.finish();
        if over != Over::Early {
            // Nobody is left to profit from the rest.
            replay.iter().for_each(Replay::stop);
        }
        if over == Over::NotStarted {
            if let Some(recorder) = self.recorder {
                learning::give_up(recorder);
            }
            return Followed::default();
        }
        let is_idle = |recorder: &Recorder| recorder.idle_for() >= IDLE;
        let whole = over == Over::Ended || self.recorder.as_ref().is_some_and(is_idle);
        let followed = || self.follower.and_then(Follower::end);
        let recorded = self.recorder.map(|recorder| Recorded::end(recorder, followed));
        if let Some(replay) = replay.as_ref().filter(|_| over == Over::Early) {
            // The program goes on, and what it will need is still being read.
            let timeout = Err(RecvTimeoutError::Timeout);
            while !replay.is_finished() && told.recv_timeout(REPLAY_CHECK) == timeout {}
        }
        let ended = replay.map(Replay::end);
        let report = ended.as_ref().map(|ended| ended.report);
        let known = Known {
            pack: pack.as_ref(),
            replay: report,
            log: ended.as_ref().map(|ended| &ended.log),
            released_us: self.released_us,
            whole,
        };
        let settings = Settings { pack: path.clone(), ..self.settings };
        let lesson = recorded.map(|recorded| {
            let (learned, outcome, instance) =
                learning::learn(recorded?, self.began, &settings, known, self.uid)?;
            learning::remove(instance);
            Ok(Lesson { learned, outcome })
        });
        Followed { report, lesson, notes, device_known, path }
    }

    /// Returns at the end of the start.
    fn wait(&self, told: &Receiver<News>) -> Over {
        let deadline = Instant::now().checked_add(self.limit);
        let mut over = Over::Early;
        loop {
            let left =
                deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
            let idle = |r: &Recorder| self.until == Until::Idle && r.idle_for() >= IDLE;
            if left.is_zero() || self.recorder.as_ref().is_some_and(idle) {
                return over;
            }
            let nap = if self.until == Until::Idle { left.min(IDLE_CHECK) } else { left };
            match told.recv_timeout(nap) {
                Ok(News::Ended) if self.until == Until::Time => over = Over::Ended,
                Ok(News::NotStarted) => return Over::NotStarted,
                Ok(News::Ended | News::Enough) | Err(RecvTimeoutError::Disconnected) => {
                    return Over::Ended;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// What a learner is told about the program.
#[derive(PartialEq, Eq)]
enum News {
    /// It has ended.
    Ended,
    /// It could not be executed.
    NotStarted,
    /// It has ended, and we are asked to end too.
    Enough,
}

/// How a start was over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The program goes on.
    Early,
    /// It has ended.
    Ended,
    /// There was none.
    NotStarted,
}
