//! The last start of a program: touched pages by class, what was read and by whom, how far ahead
//! prefetching was; and the files with late, missing and wasted pages.

use super::flow;
use crate::picture::{
    Axis, Colour, Column, Flow, Frame, Kind, Lanes, Mark, Marks, Panel, Picture, Series, Subject,
    Table, Text, Unit, View, Y,
};
use crate::units::{amount, grouped, millis};
use headstart::outcome::last_run::{FileRun, LastRun, PageClass};

/// Files in the table.
const FILES: usize = 40;

/// Numbers of [`kinds`].
const READY: usize = 0;
const USED: usize = 1;
const LATE: usize = 2;
const MISSING: usize = 3;
const WASTED: usize = 4;
const OWN: usize = 5;
const TOUCHED: usize = 6;

fn kinds() -> Vec<Kind> {
    vec![
        Kind::new("ready", Colour::Green, Mark::Plain),
        Kind::new("prefetched", Colour::Sky, Mark::Plain),
        Kind::new("late", Colour::Amber, Mark::Up),
        Kind::new("missing", Colour::Red, Mark::Hatched),
        Kind::new("wasted", Colour::Pink, Mark::Outline),
        Kind::new("by the program", Colour::Red, Mark::Hatched),
        Kind::new("touched", Colour::Blue, Mark::Plain),
    ]
}

/// The picture of the last start.
pub fn picture(run: &LastRun) -> Picture {
    let title = if run.name.is_empty() { "A start" } else { &run.name };
    let time = Axis::new("time from the start", Unit::Ns, 0.0, end_ns(run));
    let mut views = vec![over_time(run, time.clone())];
    let frame = ranges(run);
    if frame.rows > 0 {
        views.extend([all_files(time.clone()), each_file(run, time)]);
    }
    let mut said = vec![Text::from(summary(run))];
    if run.lost_events > 0 {
        let lost = grouped(run.lost_events as f64, 0);
        said.push(format!("{lost} events were lost: not all is seen here.").into());
    }
    if run.files_skipped > 0 || run.ranges_skipped > 0 {
        let skipped = [run.files_skipped, run.ranges_skipped].map(|n| grouped(n as f64, 0));
        said.push(format!("{} files and {} ranges are not kept.", skipped[0], skipped[1]).into());
    }
    let tables = vec![files(run)];
    Picture {
        title: title.into(),
        summary: said,
        kinds: kinds(),
        frames: vec![frame],
        views,
        tables,
    }
}

/// The end of what was recorded.
fn end_ns(run: &LastRun) -> f64 {
    let o = &run.over_time;
    let at = run.files.iter().flat_map(|file| &file.ranges).map(|range| range.at_us);
    let ranges = at.max().unwrap_or(0) as f64 * 1e3;
    (o.ms(o.len()) * 1e6).max(ranges)
}

fn summary(run: &LastRun) -> String {
    let t = &run.totals;
    let pages = |n: u64| grouped(n as f64, 0);
    let replay = if run.replayed { "" } else { "nothing was prefetched; " };
    format!(
        "Start {} in {} ms; {replay}{} pages touched: {} ready, {} late, {} missing; {} \
         prefetched, {} of them wasted.",
        run.starts,
        millis(run.duration_us as f64 / 1000.0),
        pages(t.touched),
        pages(t.ready),
        pages(t.late),
        pages(t.missing),
        pages(t.prefetched),
        pages(t.wasted),
    )
}

fn added(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.saturating_add(*b)).collect()
}

fn over_time(run: &LastRun, x: Axis) -> View {
    let o = &run.over_time;
    let own: Vec<u64> = [&o.late, &o.missing, &o.untouched, &o.metadata]
        .into_iter()
        .fold(vec![0; o.len()], |sum, row| added(&sum, row));
    let used = o.prefetched.iter().zip(&o.wasted).map(|(a, w)| a.saturating_sub(*w)).collect();
    let touched = added(&added(&o.ready, &o.late), &o.missing);
    let panel = |title: &str, flow| flow::panel(title, Unit::Bytes, flow);
    let each = millis(o.ms(1));
    let by_class = [(READY, o.ready.clone()), (LATE, o.late.clone()), (MISSING, o.missing.clone())];
    let brought = [(USED, used), (WASTED, o.wasted.clone()), (OWN, own)];
    let panels = vec![
        panel(&format!("touched by the program, in each {each} ms"), over(run, true, &by_class)),
        panel(&format!("came into memory, in each {each} ms"), over(run, true, &brought)),
        panel(
            "in all up to then",
            over(run, false, &[(USED, o.prefetched.clone()), (TOUCHED, touched)]),
        ),
    ];
    View {
        title: "Pages over time".into(),
        help: "Ready pages were there, or in flight, when the program first touched them; late ones it \
               requested before the replay did; missing ones are not in the pack. Wasted ones were \
               prefetched and not touched. Where the line of what is touched meets that of what is \
               prefetched, the program waits."
            .into(),
        x,
        subjects: vec![Subject { name: "".into(), summary: "".into(), x_high: None, panels }],
    }
}

/// Pages as bytes over time: of each interval, or all up to it.
fn over(run: &LastRun, stacked: bool, rows: &[(usize, Vec<u64>)]) -> Flow {
    let bytes = |pages: u64| pages as f64 * run.page_size as f64;
    let series = rows.iter().map(|(kind, pages)| {
        let sum = pages.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let mut so_far = 0u64;
        let value = |n: &u64| {
            so_far = so_far.saturating_add(*n);
            bytes(if stacked { *n } else { so_far })
        };
        let values = pages.iter().map(value).collect();
        Series { kind: *kind, total: amount(Unit::Bytes, bytes(sum)).into(), values }
    });
    let width = (run.over_time.bin_us.max(1) as f64) * 1e3;
    Flow { from: 0.0, width, stacked, series: series.collect() }
}

/// The ranges of all files, by time: time, size, file, offset, class.
fn ranges(run: &LastRun) -> Frame {
    let mut all: Vec<_> = (0..)
        .zip(&run.files)
        .flat_map(|(lane, file)| file.ranges.iter().map(move |range| (lane, range)))
        .collect();
    all.sort_by_key(|(_, range)| range.at_us);
    let class = |class| match class {
        PageClass::Late => LATE,
        PageClass::Missing => MISSING,
        PageClass::Wasted => WASTED,
    };
    let values = |of: &dyn Fn(u64, &headstart::outcome::last_run::RangeRun) -> u64| -> Vec<u64> {
        all.iter().map(|(lane, range)| of(*lane, range)).collect()
    };
    let page = run.page_size.max(1);
    Frame::new(vec![
        Column::numbers("at", Unit::Ns, 1000, values(&|_, range| range.at_us)),
        Column::numbers("size", Unit::Bytes, page, values(&|_, range| range.pages)),
        Column::labels(
            "file",
            run.files.iter().map(|file| file.path.shown().into()).collect(),
            values(&|lane, _| lane),
        ),
        Column::numbers("offset", Unit::Bytes, page, values(&|_, range| range.first)),
        Column {
            unit: Unit::Kind,
            ..Column::numbers("", Unit::Count, 1, values(&|_, range| class(range.class) as u64))
        },
    ])
}

fn marks(y: usize, only: Option<(usize, u64)>) -> Marks {
    Marks { frame: 0, x: Some(0), length: None, y, kind: 4, only }
}

fn all_files(x: Axis) -> View {
    let mut panel = Panel::new("files", Y::Lanes(Lanes { frame: 0, column: 2, all: false }));
    panel.marks = Some(marks(2, None));
    View {
        title: "All files".into(),
        help: "A lane is a file, those with the most late, missing and wasted pages first. A mark is a \
               range of pages, when it was touched or prefetched."
            .into(),
        x,
        subjects: vec![Subject { name: "".into(), summary: "".into(), x_high: None, panels: vec![panel] }],
    }
}

fn each_file(run: &LastRun, x: Axis) -> View {
    let page = run.page_size.max(1) as f64;
    let subject = |(lane, file): (u64, &FileRun)| {
        let end = |range: &headstart::outcome::last_run::RangeRun| {
            range.first.saturating_add(range.pages)
        };
        let high = file.ranges.iter().map(end).max()? as f64 * page;
        let mut panel = Panel::new("", Y::Value(Axis::new("offset", Unit::Bytes, 0.0, high)));
        panel.marks = Some(marks(3, Some((2, lane))));
        let counts = [file.late, file.missing, file.wasted].map(|n| grouped(n as f64, 0));
        let summary =
            format!("{} pages late, {} missing, {} wasted", counts[0], counts[1], counts[2]);
        Some(Subject {
            name: file.path.shown().into(),
            summary: summary.into(),
            x_high: None,
            panels: vec![panel],
        })
    };
    View {
        title: "One file".into(),
        help: "A mark is a range of pages: its height is the offset in the file.".into(),
        x,
        subjects: (0..).zip(&run.files).filter_map(subject).collect(),
    }
}

fn files(run: &LastRun) -> Table {
    let pages = |n: u64| if n == 0 { "–".into() } else { grouped(n as f64, 0) };
    let by = |us: u64| format!("{} ms", millis(us as f64 / 1000.0));
    let rows = run.files.iter().map(|file| {
        let late_by = file.late_by_us.filter(|us| *us > 0).map_or("–".into(), by);
        let cells =
            [file.path.shown(), pages(file.late), late_by, pages(file.missing), pages(file.wasted)];
        cells.into_iter().map(Text::from).collect()
    });
    let head = ["file", "late", "by up to", "missing", "wasted"];
    let mut table =
        Table::new("Pages of files that were late, missing or wasted", &head, rows, FILES);
    table.skipped = table.skipped.saturating_add(run.files_skipped);
    table
}
