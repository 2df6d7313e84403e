//! What the service answers, as text.

use crate::output::{self, Align, Table, size};
use headstart_daemon::control::answer::{Answer, Kind, Start};
use std::io::{self, Write};

/// Prints the status.
pub fn status(answer: &Answer) -> anyhow::Result<()> {
    let Some(status) = &answer.status else { return Ok(()) };
    let (counters, week) = (&status.counters, &status.week);
    output::print(|out| {
        let state = match (status.paused_s, &status.not_learning) {
            (Some(0), _) => "paused".to_owned(),
            (Some(seconds), _) => format!("paused for {seconds} s more"),
            (None, Some(why)) => format!("prefetches, and does not learn: {why}"),
            (None, None) => "prefetches and learns".to_owned(),
        };
        writeln!(out, "headstartd (process {}): {state}", status.pid)?;
        writeln!(out, "programs that start slowly: {}", status.programs)?;
        writeln!(
            out,
            "this week: about {:.1} s saved{} in {} starts, {} read, {}",
            week.saved_us as f64 / 1e6,
            week.assumed(),
            week.prefetched,
            size(week.read_bytes),
            week.wasted(),
        )?;
        writeln!(
            out,
            "since {} s: {} execs, {} prefetched, {} hot, {} cold and unknown, {} learned",
            status.uptime_s,
            counters.execs,
            counters.prefetched,
            counters.hot,
            counters.cold,
            counters.learned
        )?;
        let others = [
            (counters.by_reads, "starts of names that are executed often, seen by their reads"),
            (counters.by_forks, "starts by a fork without exec"),
            (counters.in_containers, "starts in containers"),
        ];
        counted(&others, out)?;
        writeln!(
            out,
            "now: {} recordings, {} in flight at most",
            status.recording,
            size(status.in_flight_bytes)
        )?;
        if counters.logins > 0 {
            writeln!(
                out,
                "{} logins: {} read, {} of it wasted, about {:.1} s saved",
                counters.logins,
                size(counters.login_read_bytes),
                size(counters.login_wasted_bytes),
                counters.login_saved_us as f64 / 1e6
            )?;
        }
        if counters.predictions > 0 {
            writeln!(
                out,
                "{} programs predicted, of which {} started; {} read, {} of it wasted, about {:.1} s saved",
                counters.predictions,
                counters.predictions_hit,
                size(counters.predicted_read_bytes),
                size(counters.predicted_wasted_bytes),
                counters.predicted_saved_us as f64 / 1e6
            )?;
        }
        if counters.large_folios > 0 {
            writeln!(
                out,
                "{} parts of pinned programs put into large folios",
                counters.large_folios
            )?;
        }
        let missed = [
            (counters.lost_execs, "execs not reported"),
            (counters.missed_execs, "execs not looked at"),
            (counters.crowded, "starts skipped, too many at once"),
            (counters.not_recorded, "starts not recorded, too many at once or events lost"),
            (
                counters.again,
                "execs of a program by itself in its own process, which are no starts",
            ),
            (counters.without_budget, "starts without memory to prefetch"),
            (
                counters.predictions_skipped,
                "predictions skipped, on battery or without free memory",
            ),
            (counters.lost_events, "trace events lost"),
            (counters.failed, "recordings not learned"),
            (
                counters.elsewhere,
                "starts in another root directory without an image, which are not handled",
            ),
            (counters.refused_clients, "clients refused"),
        ];
        counted(&missed, out)
    })
}

/// A line for each count that is not zero.
fn counted(counts: &[(u64, &str)], out: &mut dyn Write) -> io::Result<()> {
    let mut counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.try_for_each(|(count, what)| writeln!(out, "{count} {what}"))
}

/// Prints the last starts and the programs.
pub fn top(answer: &Answer) -> anyhow::Result<()> {
    if answer.starts.is_empty() && answer.programs.is_empty() {
        output::message("no slow start was seen yet");
        return Ok(());
    }
    output::print(|out| {
        starts(&answer.starts, out)?;
        if !answer.starts.is_empty() && !answer.programs.is_empty() {
            writeln!(out)?;
        }
        programs(answer, out)
    })
}

fn starts(starts: &[Start], out: &mut dyn Write) -> io::Result<()> {
    if starts.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        ("START", Align::Left),
        ("PROGRAM", Align::Left),
        ("PID", Align::Right),
        ("WAS", Align::Left),
        ("SAVED", Align::Right),
        ("READ", Align::Right),
        ("WASTED", Align::Right),
    ]);
    for start in starts {
        let kind = match start.kind {
            Kind::Cold => "cold",
            Kind::Hot => "hot",
            Kind::Prefetched => "prefetched",
            Kind::Recorded => "recorded",
            Kind::Useless => "no benefit",
        };
        let learned = if start.learned { ", learned" } else { "" };
        table.row([
            output::time(start.at),
            output::harmless(&start.program),
            start.pid.to_string(),
            format!("{kind}{learned}"),
            seconds(start.saved_us),
            size(start.read_bytes),
            start.wasted_bytes.map_or_else(|| "-".into(), size),
        ]);
    }
    table.write(out)
}

fn programs(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    if answer.programs.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        ("PROGRAM", Align::Left),
        ("USER", Align::Right),
        ("STARTS", Align::Right),
        ("COLD", Align::Right),
        ("PREFETCHED", Align::Right),
        ("LEARNED", Align::Right),
        ("SAVED", Align::Right),
        ("READ", Align::Right),
        ("WASTED", Align::Right),
        ("PACK", Align::Left),
    ]);
    for listed in &answer.programs {
        let program = &listed.program;
        let pinned = if program.pinned { " (pinned)" } else { "" };
        table.row([
            format!("{}{pinned}", output::harmless(&program.name)),
            listed.id.uid.to_string(),
            program.starts.to_string(),
            program.cold_starts.to_string(),
            program.prefetched.to_string(),
            program.learned.to_string(),
            seconds(program.saved_us),
            size(program.read_bytes),
            size(program.wasted_bytes),
            output::harmless(&listed.id.file_name),
        ]);
    }
    table.write(out)
}

fn seconds(us: u64) -> String {
    format!("{:.2} s", us as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_was_is_counted() {
        let mut out = Vec::new();
        counted(&[(0, "execs lost"), (3, "starts by a fork"), (1, "more")], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "3 starts by a fork\n1 more\n");
    }
}
