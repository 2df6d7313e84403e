//! `headstart show --last-run`: the classification of the last start's pages, over time and by
//! file.

use crate::output::{self, Align, Table, counted};
use crate::picture;
use crate::waited;
use headstart::outcome::last_run::{self, BINS, LastRun};
use headstart::pack::Pack;
use headstart_view::build;
use headstart_view::units::millis;
use std::io::{self, Write};
use std::path::Path;

/// Files that the table names.
const FILES: usize = 20;
/// The label of a row: its name, and the pages in total.
const BESIDE: usize = 36;
/// Heights of a bar. Whatever is there is seen.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shows the record next to the pack at `path`, as a picture if a file is given; the flag lets it
/// replace any file.
pub fn run(
    path: &Path,
    pack: &Pack,
    file: Option<(&Path, bool)>,
    json: bool,
) -> anyhow::Result<()> {
    let run = last_run::file::read(path, pack, rustix::process::geteuid().as_raw())?;
    if let Some((path, force)) = file {
        return picture::write(path, &build::last_run::picture(&run), force);
    }
    if json {
        return output::print_json(&run);
    }
    let width = output::terminal_width();
    output::print(|out| {
        print_over_time(&run, width, out)?;
        print_files(&run, out)?;
        print_waited(&run, out)
    })
}

fn print_over_time(run: &LastRun, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let ms = |us: u64| millis(us as f64 / 1000.0);
    let (t, o) = (&run.totals, &run.over_time);
    let name = output::harmless(&run.name);
    write!(out, "start {} of {name} in {} ms", run.starts, ms(run.duration_us))?;
    writeln!(out, "{}", if run.replayed { "" } else { "; nothing was prefetched" })?;
    if run.lost_events > 0 {
        writeln!(out, "{} LOST: not all is seen here", counted(run.lost_events, "event"))?;
    }
    let columns = width.saturating_sub(BESIDE).clamp(1, BINS).min(o.len().max(1));
    let rows = [
        ("ready", t.ready, &o.ready),
        ("late", t.late, &o.late),
        ("missing", t.missing, &o.missing),
        ("prefetched", t.prefetched, &o.prefetched),
        ("wasted", t.wasted, &o.wasted),
        ("read, not touched", t.untouched, &o.untouched),
        ("metadata read", t.metadata, &o.metadata),
    ];
    let rows = rows.map(|(name, total, pages)| (name, total, gathered(pages, columns)));
    let most = rows.iter().flat_map(|(.., pages)| pages).copied().max().unwrap_or(0);
    writeln!(out, "\n{:>19}  {:>9}", "", "PAGES")?;
    for (name, total, pages) in &rows {
        let bars: String = pages.iter().map(|n| bar(*n, most)).collect();
        writeln!(out, "{}", format!("{name:>19}  {total:>9}  {bars}").trim_end())?;
    }
    let end = format!("{} ms", ms(o.bin_us.saturating_mul(o.len() as u64)));
    let scale = format!("{:<1$}{end}", "0", columns.saturating_sub(end.len()));
    writeln!(out, "{:>19}  {:>9}  {scale}", "", "")?;
    if t.gaps > 0 {
        let gaps = counted(t.gaps, "page");
        writeln!(out, "\n{gaps} of the wasted ones are in gaps between ranges of the pack")?;
    }
    if let (Some(least), Some(median)) = leads(run) {
        writeln!(
            out,
            "lead time before first touch: median {} ms, least {} ms",
            millis(median as f64 / 1000.0),
            millis(least as f64 / 1000.0)
        )?;
    }
    Ok(())
}

/// The least and the median time by which prefetching was in front.
fn leads(run: &LastRun) -> (Option<i64>, Option<i64>) {
    let mut leads: Vec<i64> = run.over_time.lead_us.iter().flatten().copied().collect();
    leads.sort_unstable();
    (leads.first().copied(), leads.get(leads.len() / 2).copied())
}

/// Merges intervals into fewer ones.
fn gathered(pages: &[u64], columns: usize) -> Vec<u64> {
    let mut out = vec![0u64; columns];
    for (i, n) in pages.iter().enumerate() {
        let column = i * columns / pages.len();
        out[column] = out[column].saturating_add(*n);
    }
    out
}

/// A bar of a height that goes with the square root, so that few pages are told
/// from some.
fn bar(pages: u64, most: u64) -> char {
    let share = (pages as f64 / most.max(1) as f64).sqrt();
    let height = (share * 8.0).ceil().clamp(0.0, 8.0);
    BARS[height as usize]
}

fn print_files(run: &LastRun, out: &mut dyn Write) -> io::Result<()> {
    if run.files.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new([
        ("LATE", Align::Right),
        ("BY UP TO", Align::Right),
        ("MISSING", Align::Right),
        ("WASTED", Align::Right),
        ("FILE", Align::Left),
    ]);
    let pages = |n: u64| if n == 0 { "-".to_owned() } else { n.to_string() };
    for file in run.files.iter().take(FILES) {
        let by = file.late_by_us.filter(|us| *us > 0);
        table.row([
            pages(file.late),
            by.map_or("-".into(), |us| format!("{} ms", millis(us as f64 / 1000.0))),
            pages(file.missing),
            pages(file.wasted),
            file.path.shown(),
        ]);
    }
    table.write(out)?;
    let named = run.files.len().min(FILES);
    let more = ((run.files.len() - named) as u64).saturating_add(run.files_skipped);
    if more > 0 {
        writeln!(out, "and {}; --json has more", counted(more, "file"))?;
    }
    Ok(())
}

/// What it waited for, if that was recorded.
fn print_waited(run: &LastRun, out: &mut dyn Write) -> io::Result<()> {
    let Some(waited) = &run.waited else { return Ok(()) };
    writeln!(out, "\n{}", waited::line(waited))?;
    waited::files(waited, FILES).iter().try_for_each(|line| writeln!(out, "{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::outcome::last_run::{FileRun, OverTime, Totals};

    #[test]
    fn rows_are_as_wide_as_the_terminal_and_little_is_not_nothing() {
        let bins = 240;
        let zero = || vec![0u64; bins];
        let mut over_time = OverTime {
            bin_us: 1000,
            ready: vec![100; bins],
            late: zero(),
            missing: zero(),
            untouched: zero(),
            metadata: zero(),
            prefetched: zero(),
            wasted: zero(),
            lead_us: vec![Some(2500); bins],
        };
        over_time.late[239] = 1;
        let late = FileRun { path: Path::new("/a\n").into(), late: 1, ..FileRun::default() };
        let run = LastRun {
            name: "app".into(),
            starts: 3,
            replayed: true,
            totals: Totals { ready: 24_000, late: 1, ..Totals::default() },
            over_time,
            files: vec![late],
            ..LastRun::default()
        };
        let print = |width| {
            let mut out = Vec::new();
            print_over_time(&run, width, &mut out).unwrap();
            print_files(&run, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = print(80);
        assert!(text.lines().take(11).all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("              ready      24000  ████"), "{text}");
        assert!(text.contains("▁\n"), "{text}");
        assert!(text.contains("median 2.50 ms, least 2.50 ms"), "{text}");
        assert!(text.contains("/a\\012"), "{text}");
        print(1);
    }
}
