//! `headstart boot record`: learns the boot under way.

use crate::exit::ExitStatus;
use crate::{args, output};
use anyhow::Context;
use headstart::boot::history::BootRecord;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::mounted::Mounted;
use headstart::boot::packs;
use headstart::boot::record::{INSTANCE, Wanted, discard, record};
use headstart::replay::models::Models;
use headstart_sys::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart boot record`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It takes over what the kernel recorded, if its command line says so, or begins, and \
ends when the last phase of the boot is over. Then each phase joins its packs in \
/var/lib/headstart/boot, one for each file system, and the boot joins the history, of \
which the last eight are kept. A boot of which events were lost never changes a clean pack.")]
pub struct RecordArgs {
    /// End after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = args::duration)]
    timeout: Duration,

    /// Take this trace instance over, if it is there
    #[arg(long, value_name = "NAME", default_value = INSTANCE)]
    instance: String,

    /// Keep packs, history and state below this directory, for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Records.
pub fn run(args: &RecordArgs) -> anyhow::Result<ExitStatus> {
    let machine = Machine::at(&args.root);
    if let Some(Unwanted(why)) = machine.is_off() {
        discard(&machine, &args.instance);
        output::message(format_args!("this boot is not learned: {why}"));
        return Ok(ExitStatus::Done);
    }
    let wanted = Wanted { instance: args.instance.clone(), limit: args.timeout };
    // Who switches off soon after the boot ends the recording, but not the learning.
    let interrupt = Interrupt::catch().context("Can't catch signals")?;
    let record = record(&machine, &wanted, &|limit| interrupt.wait(limit))?;
    if args.root == Path::new("/") {
        measure(&machine, &record);
    }
    output::message(summary(&record));
    Ok(ExitStatus::Done)
}

/// Measures the devices of the packs that were learned, unless they were.
fn measure(machine: &Machine, record: &BootRecord) {
    let learned = record.phases.iter().filter(|phase| phase.learned);
    let learned: Vec<&str> = learned.map(|phase| phase.name.as_str()).collect();
    let mut mounted = Mounted::default();
    // Without /proc no device is found either. What can't be used was told before.
    let _ = mounted.look();
    let packs = packs::known(machine, &learned, &mut mounted, &mut Vec::new());
    let models = Models::here();
    for known in packs.iter().filter(|known| known.is_mounted && known.file.is_own) {
        models.measure_for_boots(&known.pack);
    }
}

fn summary(record: &BootRecord) -> String {
    let learned: Vec<&str> =
        record.phases.iter().filter(|p| p.learned).map(|p| p.name.as_str()).collect();
    let mut parts = vec![match learned.is_empty() {
        true => "nothing of this boot was learned".to_owned(),
        false => format!("learned this boot: {}", learned.join(", ")),
    }];
    parts.push(format!("recorded from {}", record.source));
    if record.missed_ms > 0 {
        parts.push(format!("{} ms of user space missed", record.missed_ms));
    }
    if record.replayed {
        let outcome = record.outcome();
        parts.push(format!(
            "{:.1} % of {} touched were ready, {} late, {} missing",
            outcome.ready_share() * 100.0,
            output::counted(outcome.touched_pages, "page"),
            outcome.late_pages,
            outcome.missing_pages,
        ));
    }
    if record.lost_events > 0 {
        parts.push(format!("{} lost", output::counted(record.lost_events, "event")));
    }
    parts.extend(record.problems.iter().cloned());
    parts.join("; ")
}
