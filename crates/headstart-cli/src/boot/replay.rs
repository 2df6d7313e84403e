//! `headstart boot replay`: prefetches what boots touch, in the running system or in the initramfs
//! for the system that it is about to start.

use crate::exit::ExitStatus;
use crate::summary::{add_hitches, add_report};
use crate::{args, output};
use anyhow::Context;
use headstart::boot::first_boot;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::replay::{BootReplay, ReplayOptions, replay};
use headstart::boot::switch_root;
use headstart::replay::report::Report;
use headstart_sys::descriptors;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The arguments of `headstart boot replay`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It prefetches the packs of the phases in order, from /var/lib/headstart/boot or else \
/usr/lib/headstart/boot: the ranges that at least two of the last three boots touched. \
Files on file systems that are not mounted yet are prefetched when they appear. \
No boot waits for it. The rest of a phase that has ended is skipped, unless --phase names \
the phase.

--root DIR is for an initramfs: it prefetches for the machine whose root directory is mounted \
there, in the background, and continues when the machine switches to that directory.")]
pub struct ReplayArgs {
    /// Prefetch only these phases [default: all]
    #[arg(long, value_name = "PHASE", num_args = 1..)]
    phase: Vec<String>,

    /// Prefetch for the machine whose root directory is mounted here
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Wait until the pages are resident, in the foreground
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
        // Before the caller goes on, since the directory may be moved immediately.
        switch_root::enter(root)
            .with_context(|| format!("Can't go into {}", output::shown(root)))?;
    }
    let mut phases: Vec<String> = here.phases()?.into_iter().map(|phase| phase.name).collect();
    if args.root.is_some() {
        first_boot::read_recorder(&here, &phases, first_boot::LIMIT);
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
    descriptors::allow_most();
    let options = ReplayOptions {
        phases,
        wait: args.wait,
        limit: args.timeout,
        in_initramfs: args.root.is_some(),
        over_too: !args.phase.is_empty(),
    };
    if let Some(text) = summary(&replay(&here, &options, began), options.in_initramfs) {
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

/// The result in one line; none in an initramfs, where the unit that comes later reports it.
fn summary(outcome: &BootReplay, in_initramfs: bool) -> Option<String> {
    if outcome.phases.is_empty() && outcome.problems.is_empty() {
        let why = match (&outcome.elsewhere[..], &outcome.over[..]) {
            _ if in_initramfs => return None,
            ([_, ..], _) => {
                "the file systems of what was learned are not mounted; is it of another machine?"
            }
            _ if outcome.known.is_empty() => "there are no packs yet",
            ([], [_, ..]) => "all of its phases have ended",
            ([], []) => return Some("the initramfs has prefetched all that was learned".into()),
        };
        return Some(format!("nothing is prefetched for this boot: {why}"));
    }
    let mut sum = Report::default();
    outcome.phases.iter().for_each(|phase| sum.add(&phase.report));
    let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.phase.as_str()).collect();
    let mut parts = Vec::new();
    match names.is_empty() {
        true => parts.push("nothing is prefetched for this boot".to_owned()),
        false => {
            add_report(&mut parts, &sum);
            parts[0].push_str(&format!(" for {}", names.join(", ")));
        }
    }
    if sum.followed_files > 0 {
        let files = output::counted(sum.followed_files, "file");
        parts.push(format!("{files} replaced since, and prefetched by the ranges of the old ones"));
    }
    add_hitches(&mut parts, &sum);
    if !outcome.over.is_empty() {
        parts.push(format!("skipped ended phases: {}", outcome.over.join(", ")));
    }
    if let Some(why) = outcome.cut_short {
        parts.push(format!("stopped {why}"));
    }
    parts.extend(outcome.problems.iter().cloned());
    Some(parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::boot::replay_records::ReplayRecord;

    #[test]
    fn a_boot_says_of_its_replay_what_a_start_says() {
        let mut first = ReplayRecord::new("mounts", false);
        first.report = Report { bytes: 4096, requests: 1, stale_files: 2, ..Report::default() };
        let mut second = ReplayRecord::new("system", false);
        second.report = Report { missing_files: 1, followed_files: 1, stuck: true, ..first.report };
        let outcome = BootReplay { phases: vec![first, second], ..BootReplay::default() };
        assert_eq!(
            summary(&outcome, true).unwrap(),
            "prefetched 8.0 KiB in 2 requests for mounts, system; \
             4 files changed since it was learned; 1 file gone; \
             1 file replaced since, and prefetched by the ranges of the old ones; \
             prefetching gave up on a file whose server does not answer"
        );
        assert_eq!(summary(&BootReplay::default(), true), None);
    }
}
