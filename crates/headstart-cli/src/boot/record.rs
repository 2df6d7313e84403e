//! `headstart boot record`: learns the boot under way.

use crate::exit::ExitStatus;
use crate::summary::add_outcome;
use crate::{args, output};
use anyhow::Context;
use headstart::boot::history::BootRecord;
use headstart::boot::machine::{Machine, Unwanted};
use headstart::boot::mounted::Mounted;
use headstart::boot::packs;
use headstart::boot::record::{INSTANCE, RecordOptions, discard, record};
use headstart::replay::models::Models;
use headstart_sys::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The arguments of `headstart boot record`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It continues the kernel's own recording, if the kernel's command line starts one, or begins \
a recording, and ends with the last phase of the boot. Then each phase is merged into its packs \
in /var/lib/headstart/boot, one for each file system, and the boot is added to the history, which \
keeps the last eight. A boot of which events were lost never changes a clean pack.")]
pub struct RecordArgs {
    /// End after this time at the latest
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = args::duration)]
    timeout: Duration,

    /// Continue with this trace instance, if it exists
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
    let options = RecordOptions { instance: args.instance.clone(), limit: args.timeout };
    // A shutdown soon after the boot ends the recording, but not the learning.
    let interrupt = Interrupt::catch().context("Can't catch signals")?;
    let record = record(&machine, &options, &|limit| interrupt.wait(limit))?;
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
    // Without /proc no device is found either. Unusable packs were reported before.
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
        add_outcome(&mut parts, &record.outcome());
    }
    if record.lost_events > 0 {
        parts.push(format!("{} lost", output::counted(record.lost_events, "event")));
    }
    parts.extend(record.problems.iter().cloned());
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::boot::history::PhaseRecord;
    use headstart::outcome::counts::PageCounts;

    #[test]
    fn a_boot_says_of_its_pages_what_a_start_says() {
        let phase = |late_pages| PhaseRecord {
            learned: true,
            outcome: PageCounts {
                touched_pages: 8,
                ready_pages: 4,
                late_pages,
                ..PageCounts::default()
            },
            ..PhaseRecord::default()
        };
        let mut wasted = phase(2);
        wasted.outcome.wasted_pages = 3;
        wasted.outcome.missing_pages = 1;
        let phases = vec![phase(1), wasted];
        for replayed in [true, false] {
            let record = BootRecord { replayed, phases: phases.clone(), ..BootRecord::default() };
            let said = summary(&record);
            let pages = "50.0 % of 16 pages touched were ready, 3 late, 1 missing, 3 wasted";
            assert_eq!(said.contains(pages), replayed, "{said}");
        }
    }
}
