//! One start of a program through us: what `run` and `record` share.
//!
//! The program starts whatever happens here; what could not be done is said
//! in the one line at the end.

use crate::exit::ExitStatus;
use crate::launch::{self, Ended, NotStarted};
use crate::learning::{self, Armed, DEFAULT_KEEP, Known, Learned, Settings};
use crate::{args, output};
use anyhow::Context;
use headstart::measure::outcome::Outcome;
use headstart::pack::Pack;
use headstart::pack::key::Key;
use headstart::pack::store::{self, StoreError};
use headstart::proc;
use headstart::replay::engine::{Options, Replay};
use headstart::replay::models::Models;
use headstart::replay::plan::{Limits, Plan};
use headstart::replay::report::Report;
use headstart::replay::way::Way;
use headstart::replay::{budget, metadata};
use headstart::trace::capture::{BufferSize, Recorder, Scope};
use headstart_sys::process::Change;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long hardly anything may come in until reading has died down.
const IDLE: Duration = Duration::from_secs(2);
/// How often that is looked at.
const IDLE_CHECK: Duration = Duration::from_millis(250);

/// From this many learned starts on, a program does not wait longer than
/// [`PATIENCE`] to be traced: one start more teaches little.
const WELL_KNOWN: u32 = 3;
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
    replay: Option<Replay>,
    /// What came too late to record, until it has been cleared away.
    late: Option<JoinHandle<()>>,
    exec_after_us: u64,
    /// Whether it was measured how the device of the pack behaves.
    device_known: bool,
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
    /// A trace buffer of one CPU that is kept at this size, in KiB.
    pub buffer_kb: Option<u32>,
    /// Whether this start is learned.
    pub learn: bool,
    /// Whether the line at the end is left out.
    quiet: bool,
    /// Where all figures go.
    json: Option<PathBuf>,
}

/// A pack, if there is one, and the path where it is learned.
type Found = Result<(PathBuf, Option<Pack>), Box<(PathBuf, StoreError)>>;

/// The pack of a session's program: `explicit`, or the one of its key.
pub fn known_pack(session: &Session, explicit: Option<&Path>) -> Found {
    if let Some(path) = explicit {
        return match store::read(path, session.uid) {
            Ok(pack) => Ok((path.into(), Some(pack))),
            Err(StoreError::Missing(_)) => Ok((path.into(), None)),
            Err(error) => Err(Box::new((path.into(), error))),
        };
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    store::find(&session.settings.file_name, session.uid, variable)
}

/// The way in which packs are read: by so many threads, if so told, and else as
/// suits their device, if that was measured.
pub fn way(known: Option<Way>, threads: Option<usize>) -> Way {
    let way = known.unwrap_or_default();
    Way { threads: threads.unwrap_or(way.threads), ..way }
}

/// What bounds a plan of at most this many bytes, if so limited.
pub fn limits(budget: Option<u64>) -> Limits {
    let budget = budget::available().min(budget.unwrap_or(u64::MAX));
    Limits { budget, metadata: rustix::process::geteuid().is_root() }
}

/// What is known of devices.
pub fn models() -> Models {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    Models::new(rustix::process::geteuid().as_raw(), variable)
}

/// Begins to read ahead beside a program.
pub fn read_ahead(plan: Plan, began: Instant) -> std::io::Result<Replay> {
    let options = Options { wait: false, timeout: None };
    Replay::start(plan, options, metadata::devices, began)
}

impl Session {
    /// A start as `args` describe it, in a process that `began` then. From here
    /// on signals are kept for the program, so no thread may run yet.
    pub fn new(args: StartArgs, began: Instant) -> Self {
        launch::prepare();
        let key = match &args.name {
            Some(name) => Key::of_name(name),
            None => Key::of_command(&args.command, learning::locate),
        };
        let settings = Settings {
            name: key.name,
            file_name: key.file_name,
            command: args.command.clone(),
            pack: PathBuf::new(),
            keep: DEFAULT_KEEP,
            walk: !args.no_walk,
            trace_out: None,
        };
        Self {
            command: args.command,
            began,
            uid: rustix::process::geteuid().as_raw(),
            notes: Vec::new(),
            replay: None,
            late: None,
            exec_after_us: 0,
            device_known: false,
            settings,
            until: Until::Exit,
            limit: args.duration,
            hold: Duration::ZERO,
            system: false,
            buffer_kb: None,
            learn: true,
            quiet: args.quiet,
            json: args.json,
        }
    }

    /// Takes over what [`known_pack`] found.
    pub fn adopt(&mut self, found: Found) -> Option<Pack> {
        let (path, pack) = match found {
            Ok(found) => found,
            Err(failure) => {
                let (path, error) = *failure;
                self.notes.push(output::causes(&error));
                (path, None)
            }
        };
        self.settings.pack = path;
        pack
    }

    /// Begins to read a pack ahead.
    pub fn replay(&mut self, pack: &Pack, budget: Option<u64>, threads: Option<usize>) {
        let known = models().way(pack);
        self.device_known = known.is_some();
        let packs = std::slice::from_ref(pack);
        let plan = Plan::of_packs(packs, limits(budget), way(known, threads));
        match read_ahead(plan, self.began) {
            Ok(replay) => self.replay = Some(replay),
            Err(error) => self.notes.push(format!("nothing was read ahead: {error}")),
        }
    }

    /// Starts the program, waits for its end, and learns beside it. `pack` is
    /// what was known of it.
    pub fn go(mut self, pack: Option<Pack>) -> anyhow::Result<ExitStatus> {
        // In a PID namespace the kernel knows the program by another number
        // than we do; it follows what is forked after arming.
        let early = self.learn && !self.system && !proc::in_first_pid_namespace();
        let armed = early.then(|| self.arm(Scope::Descendants, pack.as_ref()));
        let program = match launch::hold(&self.command) {
            Ok(program) => program,
            Err(error) => {
                if let Some(recorder) = armed.flatten() {
                    learning::give_up(recorder);
                }
                output::message(format_args!("{error:#}; the program starts without help"));
                return Ok(self.not_started(&launch::become_program(&self.command)));
            }
        };
        if self.json.is_none() && self.settings.trace_out.is_none() {
            // The files to be written may be /dev/fd/N.
            launch::let_go_of_descriptors();
        }
        let recorder = armed.unwrap_or_else(|| {
            let scope = if self.system { Scope::System } else { Scope::Tree(program.pid()) };
            if self.learn { self.arm(scope, pack.as_ref()) } else { None }
        });
        if let Some(replay) = &self.replay {
            replay.wait_for_head(self.hold);
        }
        let began_ns = learning::now_ns();
        self.exec_after_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let running = launch::release(program);
        let learner = Learner {
            learn: self.learn,
            recorder,
            replay: self.replay.take(),
            began_ns,
            settings: self.settings.clone(),
            pack,
            uid: self.uid,
            until: self.until,
            limit: self.limit,
        };
        let (tell, told) = channel();
        let learner =
            thread::Builder::new().name("learn".into()).spawn(move || learner.follow(&told));
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
        let Followed { report, lesson } = outcome.unwrap_or_default();
        let lesson = lesson.and_then(|lesson| {
            lesson.map_err(|e| self.notes.push(format!("this start is not learned: {e:#}"))).ok()
        });
        self.tell(&end, report.as_ref(), lesson.as_ref());
        self.clear_away();
        if lesson.is_some_and(|lesson| lesson.learned.written) && !self.device_known {
            learning::know_device(&self.settings.pack, &models());
        }
        Ok(end.status())
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

    /// A recorder, or a note why there is none.
    fn arm(&mut self, scope: Scope, pack: Option<&Pack>) -> Option<Recorder> {
        let patience = match pack {
            Some(pack) if pack.origin.starts >= WELL_KNOWN => PATIENCE,
            _ => Duration::MAX,
        };
        let buffer = match (self.buffer_kb, pack.map_or(0, |p| p.origin.buffer_kb)) {
            (Some(fixed), _) => BufferSize::Fixed(fixed),
            (None, 0) => BufferSize::Default,
            (None, needed) => BufferSize::From(needed),
        };
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
                    ExitStatus::PermissionMissing => {
                        "this start is not learned: recording needs root, use sudo".into()
                    }
                    _ => format!("this start is not learned: {error:#}"),
                });
                None
            }
        }
    }

    fn tell(&self, end: &Ended, report: Option<&Report>, lesson: Option<&Lesson>) {
        if let Some(file) = &self.json {
            let written = serde_json::to_vec_pretty(&self.figures(end, report, lesson))
                .context("Can't make JSON of the figures")
                .and_then(|text| {
                    std::fs::write(file, text)
                        .with_context(|| format!("Can't write {}", file.display()))
                });
            if let Err(error) = written {
                output::message(format_args!("{error:#}"));
            }
        }
        if !self.quiet {
            output::message(summary(end, report, lesson, &self.notes));
        }
    }

    fn figures<'a>(
        &'a self,
        end: &Ended,
        report: Option<&'a Report>,
        lesson: Option<&'a Lesson>,
    ) -> Figures<'a> {
        let (exit_status, signal) = match end.change {
            Change::Exited(status) => (Some(status), None),
            Change::Killed(signal) | Change::Stopped(signal) => (None, Some(signal)),
        };
        Figures {
            schema: "headstart/run/1",
            command: self.command.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
            exit_status,
            signal,
            wall_ms: end.wall.as_secs_f64() * 1000.0,
            exec_after_us: self.exec_after_us,
            major_faults: end.usage.major_faults,
            minor_faults: end.usage.minor_faults,
            user_ms: end.usage.user_us as f64 / 1000.0,
            system_ms: end.usage.system_us as f64 / 1000.0,
            read_ahead: report,
            touched: lesson.map(|l| &l.outcome),
            ready_share: lesson.map(|l| l.outcome.ready_share()),
            learned: lesson.map(|l| &l.learned),
            notes: &self.notes,
        }
    }
}

/// All figures of a start.
#[derive(Debug, Serialize)]
struct Figures<'a> {
    schema: &'static str,
    command: Vec<String>,
    exit_status: Option<i32>,
    signal: Option<i32>,
    wall_ms: f64,
    /// From the begin of headstart to the program's exec.
    exec_after_us: u64,
    major_faults: u64,
    minor_faults: u64,
    user_ms: f64,
    system_ms: f64,
    read_ahead: Option<&'a Report>,
    touched: Option<&'a Outcome>,
    ready_share: Option<f64>,
    learned: Option<&'a Learned>,
    notes: &'a [String],
}

/// What the learning thread owns.
struct Learner {
    learn: bool,
    recorder: Option<Recorder>,
    replay: Option<Replay>,
    began_ns: i64,
    settings: Settings,
    pack: Option<Pack>,
    uid: u32,
    until: Until,
    limit: Duration,
}

/// What it brings back.
#[derive(Default)]
struct Followed {
    report: Option<Report>,
    lesson: Option<anyhow::Result<Lesson>>,
}

struct Lesson {
    learned: Learned,
    outcome: Outcome,
}

impl Learner {
    /// Waits for the end of the start, then learns from it.
    fn follow(self, told: &Receiver<News>) -> Followed {
        if self.learn {
            learning::remove_orphans();
        }
        let over = self.wait(told);
        if over != Over::Early {
            // Nobody is left to profit from the rest.
            self.replay.iter().for_each(Replay::stop);
        }
        if over == Over::NotStarted {
            if let Some(recorder) = self.recorder {
                learning::give_up(recorder);
            }
            return Followed::default();
        }
        let report = self.replay.map(Replay::finish);
        let known = Known { pack: self.pack.as_ref(), replay: report };
        let lesson = self.recorder.map(|recorder| {
            let (learned, outcome, instance) =
                learning::learn(recorder, self.began_ns, &self.settings, known, self.uid)?;
            learning::remove(instance);
            Ok(Lesson { learned, outcome })
        });
        Followed { report, lesson }
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

/// The one line at the end.
fn summary(
    end: &Ended,
    report: Option<&Report>,
    lesson: Option<&Lesson>,
    notes: &[String],
) -> String {
    let mut parts = vec![format!(
        "{:.2} s, {}",
        end.wall.as_secs_f64(),
        output::counted(end.usage.major_faults, "major fault")
    )];
    if let Some(report) = report {
        add_report(&mut parts, report);
    }
    if let Some(lesson) = lesson {
        add_lesson(&mut parts, lesson, report.is_some());
    }
    parts.extend(notes.iter().cloned());
    parts.join("; ")
}

/// What was read ahead, in words.
pub fn add_report(parts: &mut Vec<String>, report: &Report) {
    parts.push(format!(
        "read ahead {} in {}",
        output::size(report.bytes),
        output::counted(report.requests, "request")
    ));
    for (count, words) in [
        (report.stale_files, "changed since it was learned"),
        (report.missing_files, "gone"),
        (report.forbidden_files, "not permitted"),
        (report.failed, "failed"),
    ] {
        if count > 0 {
            parts.push(format!("{} {words}", output::counted(count, "file")));
        }
    }
    if report.closed_devices > 0 {
        parts.push("metadata left out: its block device can't be opened".into());
    }
    if report.over_budget_bytes > 0 {
        parts.push(format!("{} over the budget", output::size(report.over_budget_bytes)));
    }
}

fn add_lesson(parts: &mut Vec<String>, Lesson { learned, outcome }: &Lesson, replayed: bool) {
    if replayed {
        parts.push(format!(
            "{:.1} % of {} touched were ready, {} late, {} missing, {} never touched",
            outcome.ready_share() * 100.0,
            output::counted(outcome.touched_pages, "page"),
            outcome.late_pages,
            outcome.missing_pages,
            outcome.never_touched_pages
        ));
    }
    if learned.written {
        parts.push(format!(
            "learned start {} ({}, {})",
            learned.starts,
            output::counted(learned.files as u64, "file"),
            output::size(learned.data_bytes)
        ));
        if learned.starts == 1 {
            parts.push("the next `headstart run` reads it ahead".into());
        }
    }
    if learned.lost_events > 0 {
        parts.push(format!("{} lost", output::counted(learned.lost_events, "event")));
    }
    parts.extend(learned.problems.iter().cloned());
}
