//! `headstart replay`: prefetches packs or lists, and does nothing else.

use crate::apart::apart;
use crate::exit::ExitStatus;
use crate::packs::by_name;
use crate::priority::{self, io_priority};
use crate::summary::{add_hitches, add_report};
use crate::{args, output};
use anyhow::{Context, bail};
use headstart::host::contents;
use headstart::host::diskstats::{self, DiskStats};
use headstart::host::mounts::{MountTable, Mounts};
use headstart::launch::policy::{Bounds, Purpose};
use headstart::launch::prefetch;
use headstart::pack::store::silent::ServerCall;
use headstart::pack::{Pack, store};
use headstart::replay::engine::resident_pages;
use headstart::replay::folios::refill::{Refilled, refill};
use headstart::replay::list::{Entry, parse_list};
use headstart::replay::metadata::{self, Devices};
use headstart::replay::plan::Plan;
use headstart::replay::report::Report;
use headstart::replay::step::Target;
use headstart_sys::descriptors;
use headstart_sys::ioprio::IoPriority;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take to look up the sizes of the files of a list.
const PATIENCE: Duration = Duration::from_secs(10);

/// The arguments of `headstart replay`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A list has a line `name offset:length,offset:length` for each file, in bytes, as \
`headstart show --list` and `headstart pages --list` write it; a line with a name \
only means the whole file; if a file does not exist, the exit status is 1. Files that changed \
since they were learned are skipped, the others are used. Metadata is read through the block \
device, which needs root.

Without --wait the command ends when all pages are requested; they are resident a little later.")]
pub struct ReplayArgs {
    /// Packs, programs that have one, or lists of files
    #[arg(required = true, value_name = "PACK|NAME|LIST")]
    files: Vec<PathBuf>,

    /// Wait until the pages are resident
    #[arg(long)]
    wait: bool,

    /// Return immediately and continue in the background
    #[arg(long, conflicts_with_all = ["dry_run", "diskstats", "verify", "json"])]
    background: bool,

    /// Set the nice value, -20 to 19
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,

    /// Set the I/O priority: idle, best-effort[:0-7], realtime[:0-7]
    #[arg(long, value_name = "CLASS[:LEVEL]", value_parser = io_priority)]
    ioprio: Option<IoPriority>,

    /// Prefetch at most this much [default and limit: half of the available memory,
    /// or three quarters of what the control group leaves, whichever is less]
    #[arg(long, value_name = "BYTES", value_parser = args::bytes)]
    budget: Option<u64>,

    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = args::duration)]
    timeout: Option<Duration>,

    /// Threads that prefetch [default: by the device model]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// First put the densely mapped parts of big files into large folios: drops resident pages
    /// and reads them again, so use it when no program waits
    #[arg(long, conflicts_with = "dry_run")]
    large_folios: bool,

    /// Print the plan and read nothing
    #[arg(long)]
    dry_run: bool,

    /// Print what the disks read meanwhile (implies --wait)
    #[arg(long)]
    diskstats: bool,

    /// Print how much of the plan is resident afterwards (implies --wait)
    #[arg(long)]
    verify: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print no summary
    #[arg(short, long)]
    quiet: bool,
}

/// All figures of a replay.
#[derive(Serialize)]
struct Figures<'a> {
    schema: &'static str,
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    large_folios: Option<Refilled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disks: Option<&'a DiskStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

/// How much of a plan is in memory.
#[derive(Clone, Copy, Serialize)]
struct Verified {
    planned_pages: u64,
    resident_pages: u64,
}

/// One step of a plan, for --dry-run.
#[derive(Serialize)]
struct PlannedStep {
    #[serde(flatten)]
    path: output::JsonPath,
    metadata: bool,
    offset: u64,
    length: u64,
}

#[derive(Serialize)]
struct DryRun {
    schema: &'static str,
    bytes: u64,
    over_budget_bytes: u64,
    seldom_bytes: u64,
    steps: Vec<PlannedStep>,
}

impl ReplayArgs {
    fn purpose(&self) -> Purpose {
        Purpose::Alone {
            bounds: Bounds { budget: self.budget, threads: self.threads },
            wait: self.wait || self.diskstats || self.verify,
            timeout: self.timeout,
        }
    }
}

/// Prefetches.
pub fn run(args: ReplayArgs) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    descriptors::allow_most();
    let source = Source::read(&args.files)?;
    let mounts = Mounts::default();
    if !args.dry_run {
        priority::apply(args.nice, args.ioprio)?;
    }
    if args.background {
        headstart_sys::process::detach().context("Can't go on in the background")?;
    } else if mounts.table().is_some_and(|table| source.needs_server(table)) {
        return apart(|| {
            let (source, plan) = plan_in_time(source, args.purpose(), &mounts)?;
            replay(&args, &source, &plan, &mounts, began)
        });
    }
    let plan = source.plan(&args.purpose(), &mounts, &ServerCall::to(&[]));
    replay(&args, &source, &plan, &mounts, began)
}

fn replay(
    args: &ReplayArgs,
    source: &Source,
    plan: &Plan,
    mounts: &Mounts,
    began: Instant,
) -> anyhow::Result<ExitStatus> {
    if args.dry_run {
        print_plan(plan, mounts, args.json)?;
        return Ok(ExitStatus::Done);
    }
    let purpose = args.purpose();
    let before = args.diskstats.then(disk_stats).transpose()?;
    let large_folios =
        args.large_folios.then(|| refill_all(source, purpose.limits().budget)).transpose()?;
    let report = prefetch::start(plan.clone(), &purpose, mounts.clone(), began)
        .context("Can't start to prefetch")?
        .finish();
    let disks = match before {
        Some(before) => Some(diskstats::between(&before, &disk_stats()?)),
        None => None,
    };
    let verified = (args.verify && !report.stuck).then(|| {
        let (planned_pages, resident_pages) = resident_pages(plan, mounts);
        Verified { planned_pages, resident_pages }
    });
    if args.json {
        let figures = Figures {
            schema: "headstart/replay/2",
            report: &report,
            large_folios,
            disks: disks.as_ref(),
            verified,
        };
        output::print_json(&figures)?;
    } else {
        print_figures(disks.as_ref(), verified)?;
        if !args.quiet && !args.background {
            output::message(summary(&report, large_folios));
        }
    }
    // What a pack names may be gone; what a user names is meant.
    let gone = if matches!(source, Source::List(_)) { report.missing_files } else { 0 };
    let not_read = report.failed + report.forbidden_files + report.unserved_files + gone;
    let failed = report.stuck || not_read > 0;
    Ok(if failed { ExitStatus::Failed } else { ExitStatus::Done })
}

/// What is prefetched.
enum Source {
    Packs(Vec<Pack>),
    List(Vec<Entry>),
}

impl Source {
    fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let (mut packs, mut entries) = (Vec::new(), Vec::new());
        let uid = rustix::process::geteuid().as_raw();
        for file in files {
            let file = &by_name(file)?;
            if store::is_pack(file) {
                packs.push(store::read(file, uid)?);
                continue;
            }
            let text = contents::bytes(file)
                .with_context(|| format!("Can't read {}", output::shown(file)))?;
            let list = parse_list(&text).with_context(|| {
                format!("{} is neither a headstart pack nor a list of files", output::shown(file))
            })?;
            entries.extend(list);
        }
        if packs.is_empty() {
            for entry in &mut entries {
                entry.path = std::path::absolute(&entry.path)?;
            }
            return Ok(Self::List(entries));
        }
        if !entries.is_empty() {
            bail!("Packs and lists can't be mixed; replay one after the other");
        }
        Ok(Self::Packs(packs))
    }

    /// Whether any of its files is reached by a server, which may not answer.
    fn needs_server(&self, mounts: &MountTable) -> bool {
        let points = mounts.served();
        match self {
            Self::Packs(packs) => {
                packs.iter().any(|pack| pack.paths.below(&points).contains(&true))
            }
            Self::List(entries) => entries.iter().any(|entry| !mounts.path_answers(&entry.path)),
        }
    }

    fn plan(&self, purpose: &Purpose, mounts: &Mounts, call: &ServerCall) -> Plan {
        match self {
            Self::Packs(packs) => prefetch::plan_here(packs, mounts, purpose),
            Self::List(entries) => prefetch::plan_of_list(entries, purpose, mounts, call),
        }
    }
}

/// The plan of files that need a server: lists need their sizes, and it may not answer.
fn plan_in_time(
    source: Source,
    purpose: Purpose,
    mounts: &Mounts,
) -> anyhow::Result<(Source, Plan)> {
    let (send, planned) = channel();
    let mounts = mounts.clone();
    let call = Arc::new(ServerCall::to(&[]));
    let waiting = Arc::downgrade(&call);
    let work = move || {
        let plan = source.plan(&purpose, &mounts, &call);
        // Nobody waits any more when it fails.
        drop(send.send((source, plan)));
    };
    thread::Builder::new().name("plan".into()).spawn(work).context("Can't start a thread")?;
    let late = "The sizes of the files can't be had: their file server does not answer";
    planned.recv_timeout(PATIENCE).context(late).inspect_err(|_| {
        waiting.upgrade().iter().for_each(|call| {
            call.mark();
        });
    })
}

/// Puts the dense parts of packs into large folios; what is done in them counts
/// against one budget.
fn refill_all(source: &Source, budget: u64) -> anyhow::Result<Refilled> {
    let Source::Packs(packs) = source else {
        bail!("Large folios take a pack, which knows what is mapped; a list does not")
    };
    let mut all = Refilled::default();
    for pack in packs {
        let left = budget.saturating_sub(all.made * all.part_bytes);
        all += refill(pack, left).context("Can't put files into large folios")?;
    }
    Ok(all)
}

fn disk_stats() -> anyhow::Result<DiskStats> {
    let text = contents::text("/proc/diskstats").context("Can't read /proc/diskstats")?;
    Ok(diskstats::parse(&text))
}

/// The path that a target is read from.
fn target_path(plan: &Plan, target: &Target, devices: &Devices) -> Option<PathBuf> {
    match target {
        Target::File { node, .. } => Some(plan.paths.path(*node)),
        Target::Device(fs) => devices.get(&fs.uuid?).map(PathBuf::from),
    }
}

fn print_plan(plan: &Plan, mounts: &Mounts, json: bool) -> anyhow::Result<()> {
    let devices = metadata::devices(plan, mounts);
    let steps = plan.steps.iter().filter_map(|step| {
        let target = &plan.targets[step.target as usize];
        let path = target_path(plan, target, &devices)?;
        Some((path, matches!(target, Target::Device(_)), step))
    });
    if json {
        let steps = steps.map(|(path, metadata, step)| PlannedStep {
            path: path.as_path().into(),
            metadata,
            offset: step.bytes.offset,
            length: step.bytes.length(),
        });
        return output::print_json(&DryRun {
            schema: "headstart/replay-plan/1",
            bytes: plan.bytes(),
            over_budget_bytes: plan.over_budget,
            seldom_bytes: plan.seldom,
            steps: steps.collect(),
        });
    }
    output::print(|out| {
        for (path, _, step) in steps {
            let range = step.bytes;
            let line = headstart::cache::list::line(path.as_os_str().as_encoded_bytes(), &[range]);
            out.write_all(&line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
}

fn print_figures(disks: Option<&DiskStats>, verified: Option<Verified>) -> anyhow::Result<()> {
    output::print(|out| {
        for (name, d) in disks.into_iter().flatten() {
            writeln!(
                out,
                "{name}: {} read in {}, {} merged, {} ms busy",
                output::size(d.bytes),
                output::counted(d.requests, "request"),
                d.merged,
                d.busy_ms
            )?;
        }
        if let Some(v) = verified {
            let share = 100.0 * v.resident_pages as f64 / v.planned_pages.max(1) as f64;
            let pages = output::counted(v.planned_pages, "planned page");
            writeln!(out, "{} of {pages} in memory ({share:.1} %)", v.resident_pages)?;
        }
        Ok(())
    })
}

fn summary(report: &Report, large_folios: Option<Refilled>) -> String {
    let mut parts = Vec::new();
    if let Some(refilled) = large_folios {
        parts.push(large_folios_in_words(&refilled));
    }
    add_report(&mut parts, report);
    add_hitches(&mut parts, report);
    parts.push(format!("{} in memory already", output::size(report.resident_bytes)));
    parts.push(format!("{:.2} s", report.elapsed_us as f64 / 1e6));
    if !report.complete && report.stopped.is_none() {
        parts.push("stopped before its end".into());
    }
    parts.join("; ")
}

fn large_folios_in_words(refilled: &Refilled) -> String {
    let size = output::size(refilled.part_bytes);
    let mut words = vec![format!("{} of {size} put into large folios", refilled.made)];
    for (count, what) in [
        (refilled.already, "were already"),
        (refilled.in_use, "are in use"),
        (refilled.refused, "got none from the kernel"),
        (refilled.skipped, "are of files that changed or can't be read"),
        (refilled.over_budget, "over the budget"),
    ] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    words.join(", ")
}

/// A pack that a user named.
pub fn named_pack(path: &Path) -> anyhow::Result<Pack> {
    Ok(store::read(path, rustix::process::geteuid().as_raw())?)
}
