//! The helper process of a start: it prepares the program's pack, arms the trace for the process
//! that waits to become the program, begins to prefetch, lets the program start, and learns after
//! its end.
//!
//! It has no terminal and keeps none of the program's descriptors. A failure is a note in the run
//! summary; nothing keeps the program from starting.

use crate::exact::Follower;
use crate::exit::ExitStatus;
use crate::output;
use crate::start_options::StartOptions;
use crate::summary::{Facts, Findings, LearnedStart};
use crate::until::{IDLE, Until};
use crate::waited;
use headstart::boot::machine::Machine;
use headstart::boot::record::remove_orphans;
use headstart::doctor::rights;
use headstart::host::user::User;
use headstart::host::{memory, proc};
use headstart::launch::learn::{PackTarget, Settings, locate};
use headstart::launch::lifecycle::{Armed, EndedLaunch, Launch};
use headstart::launch::listing::Output;
use headstart::launch::policy::Patience;
use headstart::launch::prepare::LaunchSpec;
use headstart::launch::record::Coverage;
use headstart::pack::key::Key;
use headstart::pack::store::claim::{Claim, claim};
use headstart::trace::capture::{BufferSize, Recorder, Scope};
use headstart::trace::tracefs::Tracefs;
use headstart_sys::descriptors;
use headstart_sys::helper::{Helper, Started};
use headstart_sys::interrupt::Interrupt;
use headstart_sys::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the activity detector is checked.
const IDLE_CHECK: Duration = Duration::from_millis(250);
/// How often it is checked whether the replay has ended.
const REPLAY_CHECK: Duration = Duration::from_millis(50);

/// Helps with a start, reports on it through `report`, and ends.
pub fn help(helper: Helper, options: StartOptions, report: Option<OwnedFd>) -> ! {
    if report.is_none() {
        // Processes that wait for the program to close them must not wait for us. Without /proc
        // they stay open until we end.
        let _ = descriptors::let_go_of_inherited();
    }
    // The program keeps its own limit.
    descriptors::allow_most();
    // Without memory, the kernel should kill this process, not the program. If this fails, it
    // chooses the largest one.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // A file beyond RLIMIT_FSIZE should be an error, not a fatal signal.
    signals::ignore(Signal::XFSZ.as_raw());
    let interrupt = Interrupt::catch().ok();
    let start = Start { helper: Arc::new(helper), interrupt, options, notes: Vec::new() };
    let findings = start.go();
    if let Some(report) = report {
        let line = serde_json::to_vec(&findings).unwrap_or_default();
        // A failure means that the parent has ended.
        let _ = File::from(report).write_all(&[&line[..], b"\n"].concat());
    }
    descriptors::close_all();
    std::process::exit(0)
}

/// A start.
struct Start {
    helper: Arc<Helper>,
    /// Termination signals; `None` if they can't be caught.
    interrupt: Option<Interrupt>,
    options: StartOptions,
    notes: Vec<String>,
}

/// How a start was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StartEnd {
    /// The program goes on.
    Early,
    /// It has ended, or we are to end.
    Ended,
    /// There was none.
    NotStarted,
}

impl Start {
    fn go(mut self) -> Findings {
        let key = match &self.options.name {
            Some(name) => Key::of_name(name),
            None => Key::of_command(&self.options.command, locate),
        };
        self.leave_directory();
        let mut launch = Launch::prepare(self.spec(&key));
        let prepared = launch.prepared();
        self.options.learn &= !prepared.is_some_and(|prepared| prepared.skip_recording);
        let path = prepared.map(|prepared| prepared.path.clone());
        let claim = self.claim(path);
        let (armed_in, follower) = self.arm(&mut launch);
        let mut waits = self.waits();
        launch.wait_for_head();
        let was_armed = launch.recorder().is_some();
        // It did not wait any longer where this fails.
        if launch.release(|| self.helper.go()).is_err() && was_armed {
            self.notes.push(TOO_LATE.into());
        }
        waits.iter_mut().for_each(waited::Recording::note_threads);
        let exec_after = launch.released_after();
        remove_orphans(&Machine::at("/"));
        let over = self.wait(&mut launch);
        if over == StartEnd::NotStarted {
            launch.abandon();
            return Findings::default();
        }
        let is_idle = |recorder: &Recorder| recorder.idle_for() >= IDLE;
        let whole = over == StartEnd::Ended || launch.recorder().is_some_and(is_idle);
        let coverage = match self.options.window.until {
            _ if whole => Coverage::Whole,
            Until::Time => Coverage::Partial,
            Until::Exit | Until::Idle => Coverage::CutOff,
        };
        let followed = || follower.and_then(Follower::end);
        let mut ended =
            launch.end(over != StartEnd::Early, followed, || self.has_ended(REPLAY_CHECK));
        self.notes.splice(0..0, std::mem::take(&mut ended.notes));
        let waited = waits.and_then(|waits| {
            let why = |error| self.notes.push(format!("its waits are not known: {error:#}"));
            let pid = self.helper.program().as_raw_nonzero().get();
            waits.end_of(pid, &ended.requests()).map_err(why).ok()
        });
        waited.iter().for_each(|waited| ended.note_waited(waited.clone()));
        let start = self.learn(&key, &mut ended, coverage);
        drop(claim);
        let findings = Findings::of(Facts {
            exec_after,
            armed_in,
            expected: ended.expected,
            report: ended.report.as_ref(),
            start: start.as_ref(),
            waited,
            notes: std::mem::take(&mut self.notes),
        });
        ended.clear_away();
        if start.is_some_and(|start| start.learned.written) {
            ended.know_device();
        }
        if self.options.large_folios {
            large_folios_later(&ended.path);
        }
        findings
    }

    fn spec(&self, key: &Key) -> LaunchSpec {
        LaunchSpec {
            user: User::own(),
            explicit: self.options.pack.clone(),
            file_names: key.file_names(),
            prefetch: self.options.prefetch,
            learn: self.options.learn,
            set_aside: false,
            began: self.options.began,
            max_delay: self.options.max_delay,
        }
    }

    /// Begins to record the program, if it is learned. Returns how long that took, and the tracer
    /// for `--exact`.
    fn arm(&mut self, launch: &mut Launch) -> (Option<Duration>, Option<Follower>) {
        if !self.options.learn {
            return (None, None);
        }
        let follower = self.follower();
        let from = Instant::now();
        self.start_recording(launch);
        if launch.recorder().is_none() {
            return (None, None);
        }
        let armed_in = from.elapsed();
        let follower = follower.and_then(|mut follower| {
            let pid = self.helper.program().as_raw_nonzero().get();
            let attached = follower.attach(pid);
            attached.map_err(|error| self.fault_around_stays(&error)).map(|()| follower).ok()
        });
        (Some(armed_in), follower)
    }

    /// Begins to record what the program waits for, if that is wanted.
    fn waits(&mut self) -> Option<waited::Recording> {
        if !self.options.waits {
            return None;
        }
        let pid = self.helper.program().as_raw_nonzero().get();
        let why = |error| self.notes.push(format!("its waits are not known: {error:#}"));
        waited::Recording::begin(pid, self.helper.end()).map_err(why).ok()
    }

    /// Learns the start, if it was recorded.
    fn learn(
        &mut self,
        key: &Key,
        ended: &mut EndedLaunch,
        coverage: Coverage,
    ) -> Option<LearnedStart> {
        let settings = self.settings(key, ended.path.clone());
        let uid = rustix::process::geteuid().as_raw();
        let is_unwanted = || self.interrupt.as_ref().is_some_and(Interrupt::came);
        let learned = ended.learn(settings, uid, coverage, is_unwanted)?;
        ended.remove_instance();
        let why = |e| format!("this start is not learned: {:#}", anyhow::Error::from(e));
        let learned = learned.map_err(|error| self.notes.push(why(error))).ok();
        learned.map(|(learned, outcome)| LearnedStart { learned, outcome })
    }

    /// Leaves the current directory, whose file system could not be unmounted otherwise.
    fn leave_directory(&mut self) {
        let StartOptions { pack, trace_out, events, .. } = &mut self.options;
        let events = events.as_mut().and_then(|listing| match &mut listing.to {
            Output::Path(path) => Some(path),
            Output::Open(_) => None,
        });
        for path in [pack.as_mut(), trace_out.as_mut(), events].into_iter().flatten() {
            // It fails for an empty path, which names no file.
            *path = std::path::absolute(&*path).unwrap_or_default();
        }
        let _ = rustix::process::chdir("/");
    }

    fn settings(&self, key: &Key, path: PathBuf) -> Settings {
        let file_name = path.file_name().unwrap_or_default();
        let narrower = key.narrower(file_name).filter(|_| self.options.pack.is_none());
        let target = PackTarget::of(&key.of_pack(file_name), path.clone());
        Settings {
            narrower: narrower.map(|key| PackTarget::of(&key, path.with_file_name(&key.file_name))),
            keep: self.options.keep,
            walk: self.options.walk,
            share: self.options.share,
            bounded: self.options.pack.is_none(),
            trace_out: self.options.trace_out.clone(),
            events: self.options.events.clone(),
            force: self.options.force,
            ..Settings::of(target)
        }
    }

    /// Claims the learning, so that other starts of the program leave it to this one; `None` if
    /// another start has claimed it.
    fn claim(&mut self, pack: Option<PathBuf>) -> Option<Claim> {
        let may_record = rights::has(rights::own(), rights::SYS_ADMIN);
        if !self.options.learn || self.options.must_learn || !may_record {
            return None;
        }
        match claim(&pack?) {
            Ok(claimed) => Some(claimed),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.options.learn = false;
                self.notes.push("another start of it is being learned, so this one is not".into());
                None
            }
            // The write of the pack reports this.
            Err(_) => None,
        }
    }

    /// Starts the tracer for `--exact`, if requested.
    fn follower(&mut self) -> Option<Follower> {
        if !self.options.exact {
            return None;
        }
        if !rights::has(rights::own(), rights::SYS_PTRACE) {
            // Without it, a traced program gets no privileges from set-uid.
            self.fault_around_stays(&anyhow::anyhow!("--exact needs root (cap_sys_ptrace)"));
            return None;
        }
        Follower::start().map_err(|error| self.fault_around_stays(&error)).ok()
    }

    fn fault_around_stays(&mut self, why: &anyhow::Error) {
        self.notes.push(format!("pages are learned with fault-around pages: {why:#}"));
    }

    /// Begins to record the program, or notes why that can't be.
    fn start_recording(&mut self, launch: &mut Launch) {
        // The end of the first process of a PID namespace ends us too, so it is learned before.
        if self.helper.program().is_init() && self.options.window.until == Until::Exit {
            self.options.window.until = Until::Idle;
        }
        let helper = Arc::clone(&self.helper);
        let scope = match self.options.system {
            true => Scope::System,
            false if proc::in_first_pid_namespace() => {
                Scope::Tree(helper.program().as_raw_nonzero().get())
            }
            false => Scope::Marked(Box::new(move |file, mark| helper.request_mark(file, mark))),
        };
        let was_mounted = matches!(Tracefs::mounted(), Ok(Some(_)));
        let buffer = self.options.buffer_kb.map(BufferSize::Fixed);
        let patience = if self.options.must_learn { Patience::ENDLESS } else { Patience::PROGRAM };
        self.notes.extend(match launch.arm(scope, buffer, true, patience) {
            Ok(Armed::InTime) => (!was_mounted).then(|| MOUNTED.into()),
            Ok(Armed::TooLate) => Some(TOO_LATE.into()),
            Err(error) => {
                let error = anyhow::Error::from(error);
                Some(match ExitStatus::from(&error) {
                    ExitStatus::PermissionMissing if !rustix::process::geteuid().is_root() => {
                        "this start is not learned: recording needs root, use sudo".into()
                    }
                    _ => format!("this start is not learned: {error:#}"),
                })
            }
        });
    }

    /// Waits until the start is over, or nothing is left to do.
    fn wait(&self, launch: &mut Launch) -> StartEnd {
        let (begin, window) = (Instant::now(), self.options.window);
        let mut started = false;
        let mut over = StartEnd::Early;
        loop {
            let elapsed = begin.elapsed();
            let recorder = launch.recorder();
            let idle_for = || recorder.map_or(Duration::ZERO, Recorder::idle_for);
            if window.is_over(elapsed, idle_for) || recorder.is_some_and(Recorder::is_full) {
                return over;
            }
            let mut nap = window.nap(elapsed, IDLE_CHECK);
            if self.may_leave(recorder) {
                // Its memory may be what the program lacks.
                if started && launch.has_prefetched() {
                    return over;
                }
                nap = nap.min(REPLAY_CHECK);
            } else if memory::group_room_for_cache().is_some() {
                nap = nap.min(IDLE_CHECK);
            }
            if over == StartEnd::Ended {
                // It stays readable.
                nap = nap.min(IDLE_CHECK);
                std::thread::sleep(nap);
            } else {
                self.sleep(nap, started);
            }
            if self.interrupt.as_ref().is_some_and(Interrupt::came) {
                return StartEnd::Ended;
            }
            if !started {
                match self.helper.started() {
                    Ok(Started::Failed) => return StartEnd::NotStarted,
                    Ok(Started::NotYet) => {}
                    Ok(Started::Yes) | Err(_) => started = true,
                }
            }
            if over == StartEnd::Early && self.has_ended(Duration::ZERO) {
                if window.until != Until::Time {
                    return StartEnd::Ended;
                }
                over = StartEnd::Ended;
            }
        }
    }

    /// Whether the start is not recorded any more and nobody waits for the report.
    fn may_leave(&self, recorder: Option<&Recorder>) -> bool {
        let records = recorder.is_some_and(|recorder| !recorder.has_failed());
        !records && self.options.report.is_none() && !self.options.large_folios
    }

    /// Sleeps until the program was executed, has ended, or we are to end.
    fn sleep(&self, time: Duration, started: bool) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.helper.end(), PollFlags::IN)];
        fds.extend(self.interrupt.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if !started {
            fds.push(PollFd::from_borrowed_fd(self.helper.start(), PollFlags::IN));
        }
        // A time that can't be expressed counts as infinite; a signal ends it sooner.
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

/// Puts a pack's big files into large folios, in a process of its own that nobody waits
/// for and that uses only idle CPUs and disks.
fn large_folios_later(pack: &Path) {
    let words = ["replay", "--large-folios", "--background", "--quiet"];
    let status = Command::new("/proc/self/exe")
        .args(words)
        .args(["--nice", "19", "--ioprio", "idle", "--"])
        .arg(pack)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // The process goes to the background, so this is only the status of its beginning.
    if !status.is_ok_and(|status| status.success()) {
        output::message(
            "Can't put files into large folios: `headstart replay --large-folios` says why",
        );
    }
}

/// The note for a start that was not recorded from its beginning.
const TOO_LATE: &str = "this start is not learned: tracing was not ready when the program had to \
                        start; the next start tries again";
/// The note after tracefs was mounted.
const MOUNTED: &str = "mounted tracefs on /sys/kernel/tracing, where recording needs it";
