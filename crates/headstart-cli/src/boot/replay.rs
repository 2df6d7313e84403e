//! `headstart boot replay`: prefetches what boots touch, in the machine or for the one
//! that the initramfs is about to start.

use crate::exit::ExitStatus;
use crate::{args, output};
use anyhow::Context;
use headstart::boot::first;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::replay::{Outcome, Wanted, replay};
use headstart::boot::root;
use headstart::replay::frequency::Frequency;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The arguments of `headstart boot replay`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It reads the packs of the phases in order, from /var/lib/headstart/boot or else \
/usr/lib/headstart/boot, those ranges that at least two of the last three boots have \
touched. What lies on file systems that are not mounted yet is read when they appear. \
Nothing waits for it. What is left of a phase that is over is left out, but for \
phases that --phase names.

With --root it reads for the machine whose root directory is mounted there, as in an \
initramfs: it goes there, on in the background, and stays when the machine switches to \
that directory.")]
pub struct ReplayArgs {
    /// Read only these phases [default: all]
    #[arg(long, value_name = "PHASE", num_args = 1..)]
    phase: Vec<String>,

    /// Read for the machine whose root directory is mounted here
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Wait until the data is there, in the foreground
    #[arg(long)]
    wait: bool,

    /// End after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = args::duration)]
    timeout: Duration,
}

/// Prefetches.
pub fn run(args: ReplayArgs) -> anyhow::Result<ExitStatus> {
    let began = Instant::now();
    let here = Machine::at("/");
    if let Some(Unwanted(why)) = here.keeps_from_replay() {
        output::message(format_args!("nothing is prefetched for this boot: {why}"));
        return Ok(ExitStatus::Done);
    }
    if let Some(root) = &args.root {
        survive();
        // Before anybody goes on: the directory may be moved at once.
        root::enter(root).with_context(|| format!("Can't go into {}", output::shown(root)))?;
    }
    let mut phases: Vec<String> = here.phases()?.into_iter().map(|phase| phase.name).collect();
    if args.root.is_some() {
        first::read_recorder(&here, &phases, first::LIMIT);
        if !args.wait {
            headstart_sys::process::detach().context("Can't go on in the background")?;
        }
    }
    if let Some(unknown) = args.phase.iter().find(|name| !phases.contains(name)) {
        anyhow::bail!("There is no phase {unknown}; there are {}", phases.join(", "));
    }
    if !args.phase.is_empty() {
        phases.retain(|name| args.phase.contains(name));
    }
    let wanted = Wanted {
        phases,
        often: Frequency::TWO_OF_THREE,
        wait: args.wait,
        limit: args.timeout,
        in_initramfs: args.root.is_some(),
        over_too: !args.phase.is_empty(),
    };
    if let Some(text) = summary(&replay(&here, &wanted, began), wanted.in_initramfs) {
        output::message(text);
    }
    Ok(ExitStatus::Done)
}

/// systemd in an initramfs kills all processes before it switches, but those that are
/// marked like this (`ROOT_STORAGE_DAEMONS` of its documentation).
fn survive() {
    const MARK: u8 = b'@';
    let is_marked = std::env::args_os().next().is_some_and(|a| a.as_bytes().first() == Some(&MARK));
    let is_needed = Path::new("/etc/initrd-release").exists();
    if is_needed && !is_marked {
        let args = std::env::args_os().skip(1);
        // Unmarked it is killed at worst.
        let _ = Command::new("/proc/self/exe").arg0("@headstart").args(args).exec();
    }
}

/// What became of it in one line; none where the unit that comes later will tell.
fn summary(outcome: &Outcome, in_initramfs: bool) -> Option<String> {
    if outcome.phases.is_empty() && outcome.problems.is_empty() {
        let why = match (&outcome.elsewhere[..], &outcome.over[..]) {
            _ if in_initramfs => return None,
            ([_, ..], _) => {
                "the file systems of what was learned are not mounted; is it of another machine?"
            }
            _ if outcome.known.is_empty() => "there are no packs yet",
            ([], [_, ..]) => "all was over",
            ([], []) => return Some("the initramfs has prefetched all that was learned".into()),
        };
        return Some(format!("nothing is prefetched for this boot: {why}"));
    }
    let (mut bytes, mut requests, mut stale, mut over) = (0, 0, 0, 0);
    let (mut changing, mut followed, mut stopped) = (0, 0, 0);
    for report in outcome.phases.iter().map(|phase| &phase.report) {
        bytes += report.bytes;
        requests += report.requests;
        stale += report.stale_files;
        changing += report.changing_files;
        followed += report.followed_files;
        over += report.over_budget_bytes;
        stopped += report.stopped_bytes;
    }
    let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.phase.as_str()).collect();
    let mut parts = vec![match names.is_empty() {
        true => "nothing is prefetched for this boot".to_owned(),
        false => format!(
            "prefetched {} in {} for {}",
            output::size(bytes),
            output::counted(requests, "request"),
            names.join(", ")
        ),
    }];
    if stale > 0 {
        parts.push(format!("{} changed since they were learned", output::counted(stale, "file")));
    }
    if followed > 0 {
        let files = output::counted(followed, "file");
        parts.push(format!("{files} replaced since, and read like those before"));
    }
    if changing > 0 {
        parts.push(format!("{} changing at each boot", output::counted(changing, "file")));
    }
    if over > 0 {
        parts.push(format!("{} over the budget", output::size(over)));
    }
    if stopped > 0 {
        parts.push(format!("{} left out because of memory pressure", output::size(stopped)));
    }
    if !outcome.over.is_empty() {
        parts.push(format!("left out what was over: {}", outcome.over.join(", ")));
    }
    if let Some(why) = outcome.cut_short {
        parts.push(format!("it ended early: {why}"));
    }
    parts.extend(outcome.problems.iter().cloned());
    Some(parts.join("; "))
}
