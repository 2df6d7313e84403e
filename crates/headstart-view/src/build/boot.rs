//! A boot: seconds from the kernel's start, phases, what came into memory, idle times, and a lane for
//! each unit in the order of their starts, as in `systemd-analyze plot`.

use super::flow;
use crate::picture::{
    Axis, Colour, Column, Flow, Frame, Kind, Lanes, Mark, Marks, Panel, Picture, Series, Span,
    Subject, Table, Text, Unit, View, Y,
};
use crate::text_boot::{summary, title};
use crate::units::{amount, grouped, millis};
use headstart::boot::analysis::Analysis;
use headstart::boot::bins::{Bins, Row};
use headstart::boot::history::us_of_ms;
use headstart::boot::unit_times::{Bar, UnitTimes};

/// Rows of a table.
const ROWS: usize = 40;
/// ns of a µs, in which times of boots are.
const US: u64 = 1000;

/// Numbers of [`kinds`].
const STARTED: u64 = 0;
const ACTIVE: u64 = 1;
const ENDING: u64 = 2;
const PHASE: u64 = 3;
const USED: usize = 4;
const WASTED: usize = 5;
const DEMAND: usize = 6;
const LATE: usize = 7;
const MISSING: usize = 8;

fn kinds() -> Vec<Kind> {
    vec![
        Kind::new("a unit is being started", Colour::Amber, Mark::Hatched),
        Kind::new("is active", Colour::Sky, Mark::Plain),
        Kind::new("is being ended", Colour::Green, Mark::Outline),
        Kind::new("phase", Colour::Green, Mark::Plain),
        Kind::new("prefetched, touched", Colour::Blue, Mark::Plain),
        Kind::new("prefetched, wasted", Colour::Pink, Mark::Hatched),
        Kind::new("by the boot itself", Colour::Red, Mark::Hatched),
        Kind::new("late", Colour::Amber, Mark::Plain),
        Kind::new("missing", Colour::Red, Mark::Hatched),
    ]
}

/// The picture of a boot.
pub fn picture(boot: &Analysis) -> Picture {
    let units = drawn_units(boot);
    let mut panels = vec![lanes("phases", 0)];
    if let Some(timeline) = &boot.timeline {
        let idle = spans(boot, timeline.recorded_from_us);
        panels.extend(flows(&timeline.bins, boot).into_iter().map(|(title, flow)| Panel {
            spans: idle.clone(),
            ..flow::panel(title, Unit::BytesPerSecond, flow)
        }));
    }
    if !units.is_empty() {
        panels.push(lanes("units", 1));
    }
    let mut said = vec![Text::from(summary(boot)), skipped(boot, units.len())];
    said.extend(boot.boot.problems.iter().map(Text::from));
    said.retain(|words| !words.as_str().is_empty());
    Picture {
        title: title(boot).into(),
        summary: said,
        kinds: kinds(),
        frames: vec![phases(boot), unit_rows(&units)],
        views: vec![View {
            title: "Boot".into(),
            help: "From top to bottom: the phases, what came into memory, what the boot touched before \
                   it was there, and the units in the order of their starts. Nothing came into memory \
                   in the shaded times."
                .into(),
            x: Axis::new("time from the beginning of the boot", Unit::Ns, 0.0, end_ns(boot) as f64),
            subjects: vec![Subject { name: "".into(), summary: "".into(), x_high: None, panels }],
        }],
        tables: vec![phase_table(boot), gap_table(boot), unit_table(boot)],
    }
}

fn end_ns(boot: &Analysis) -> u64 {
    boot.end_us.saturating_mul(US)
}

fn lanes(title: &str, frame: usize) -> Panel {
    let mut panel = Panel::new(title, Y::Lanes(Lanes { frame, column: 2, all: frame == 0 }));
    panel.marks = Some(Marks { frame, x: Some(0), length: Some(1), y: 2, kind: 3, only: None });
    panel
}

/// A bar in a lane, with its begin and end in µs.
struct Step {
    from: u64,
    to: u64,
    lane: u64,
    kind: u64,
}

fn rows(title: &str, labels: Vec<Text>, steps: &[Step]) -> Frame {
    let values = |of: &dyn Fn(&Step) -> u64| steps.iter().map(of).collect::<Vec<u64>>();
    Frame::new(vec![
        Column::numbers("from", Unit::Ns, US, values(&|step| step.from)),
        Column::numbers("took", Unit::Ns, US, values(&|step| step.to.saturating_sub(step.from))),
        Column::labels(title, labels, values(&|step| step.lane)),
        Column {
            unit: Unit::Kind,
            ..Column::numbers("", Unit::Count, 1, values(&|step| step.kind))
        },
    ])
}

fn phases(boot: &Analysis) -> Frame {
    let us = |ms: f64| us_of_ms(ms).min(boot.end_us);
    let row = |(lane, phase): (u64, &headstart::boot::history::PhaseRecord)| {
        let (begin, end) = (us(phase.begin_ms?), us(phase.end_ms?));
        Some(Step { from: begin, to: end.max(begin), lane, kind: PHASE })
    };
    let drawn: Vec<_> = (0..).zip(&boot.boot.phases).filter_map(row).collect();
    rows("phase", boot.boot.phases.iter().map(|phase| (&phase.name).into()).collect(), &drawn)
}

/// Units in the order in which they were started. Devices and slices only appear.
fn drawn_units(boot: &Analysis) -> Vec<(&UnitTimes, Bar)> {
    let units = boot.timeline.iter().flat_map(|timeline| &timeline.units);
    let works = |unit: &&UnitTimes| ![".device", ".slice"].iter().any(|s| unit.name.ends_with(s));
    units.filter(works).filter_map(|unit| Some((unit, unit.bar(boot.end_us)?))).collect()
}

fn unit_rows(units: &[(&UnitTimes, Bar)]) -> Frame {
    let steps = (0..).zip(units).flat_map(|(lane, (_, bar))| {
        let Bar { from, active, deactivating, to } = *bar;
        [(from, active, STARTED), (active, deactivating, ACTIVE), (deactivating, to, ENDING)]
            .map(|(from, to, kind)| Step { from, to, lane, kind })
    });
    let drawn: Vec<_> = steps.filter(|step| step.to > step.from || step.kind == STARTED).collect();
    let label = |(unit, _): &(&UnitTimes, Bar)| {
        // Targets and mounts of the kernel are there at once.
        let took = unit.took_us().filter(|us| *us >= 100);
        let took = took.map_or_else(String::new, |us| format!(" ({} ms)", millis(us as f64 / 1e3)));
        format!("{}{took}", unit.name).into()
    };
    rows("unit", units.iter().map(label).collect(), &drawn)
}

/// How many units have no lane, in words.
fn skipped(boot: &Analysis, drawn: usize) -> Text {
    let kept = boot.timeline.as_ref().map_or(0, |t| t.units.len().saturating_sub(drawn));
    let skipped = boot.timeline.as_ref().map_or(0, |t| t.units_skipped).saturating_add(kept as u64);
    if skipped == 0 {
        return Text::default();
    }
    format!("{} devices, slices and late units are not drawn.", grouped(skipped as f64, 0)).into()
}

/// What came in, and what was waited for. Before anything is prefetched all is missing.
fn flows(bins: &Bins, boot: &Analysis) -> Vec<(&'static str, Flow)> {
    let drawn = usize::try_from(boot.end_us.div_ceil(bins.bin_us.max(1))).unwrap_or(usize::MAX);
    let flow = |series: Vec<(usize, Vec<u64>)>| Flow {
        from: 0.0,
        width: bins.bin_us.max(1).saturating_mul(US) as f64,
        stacked: true,
        series: series
            .into_iter()
            .map(|(kind, bytes)| {
                let sum = bytes.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
                let rate = |n: &u64| *n as f64 * 1e6 / bins.bin_us.max(1) as f64;
                let values = bytes.iter().take(drawn).map(rate).collect();
                Series { kind, total: amount(Unit::Bytes, sum as f64).into(), values }
            })
            .collect(),
    };
    let row = |kind, row| (kind, bins.row(row).to_vec());
    let demand = row(DEMAND, Row::Demand);
    if !boot.boot.replayed {
        return vec![("came into memory", flow(vec![demand]))];
    }
    let ahead = bins.prefetched.iter().zip(&bins.wasted);
    let used = ahead.map(|(ahead, wasted)| ahead.saturating_sub(*wasted)).collect();
    let came = vec![(USED, used), row(WASTED, Row::Wasted), demand];
    let waited = vec![row(LATE, Row::Late), row(MISSING, Row::Missing)];
    vec![("came into memory", flow(came)), ("touched before it was there", flow(waited))]
}

/// Idle times, and what was not recorded.
fn spans(boot: &Analysis, recorded_from_us: u64) -> Vec<Span> {
    let span = |from_us: u64, to_us: u64, name: String| Span {
        from: from_us.saturating_mul(US) as f64,
        to: to_us.saturating_mul(US) as f64,
        name: name.into(),
    };
    let unseen = recorded_from_us.min(boot.end_us);
    let unseen = (unseen > 0).then(|| span(0, unseen, "not recorded".into()));
    let idle = boot.idle.iter().map(|gap| {
        let ms = millis((gap.to_us - gap.from_us) as f64 / 1e3);
        span(gap.from_us, gap.to_us, format!("idle, {ms} ms"))
    });
    unseen.into_iter().chain(idle).collect()
}

fn seconds(us: Option<f64>) -> String {
    us.map_or("–".into(), |us| format!("{:.3}", us / 1e6))
}

fn texts<const N: usize>(cells: [String; N]) -> Vec<Text> {
    cells.into_iter().map(Text::from).collect()
}

fn phase_table(boot: &Analysis) -> Table {
    let head = [
        "phase",
        "begins, s",
        "ends, s",
        "prefetched",
        "pages touched",
        "ready",
        "late",
        "missing",
        "wasted",
    ];
    let rows = boot.boot.phases.iter().map(|phase| {
        let pages = |n: u64| grouped(n as f64, 0);
        let outcome = &phase.outcome;
        let at = |ms: Option<f64>| seconds(ms.map(|ms| ms * 1e3));
        texts([
            phase.name.clone(),
            at(phase.begin_ms),
            at(phase.end_ms),
            amount(Unit::Bytes, phase.prefetched_bytes as f64),
            pages(outcome.touched_pages),
            pages(outcome.ready_pages),
            pages(outcome.late_pages),
            pages(outcome.missing_pages),
            pages(outcome.wasted_pages),
        ])
    });
    Table::new("Phases", &head, rows, ROWS)
}

fn gap_table(boot: &Analysis) -> Table {
    let mut gaps = boot.idle.clone();
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.to_us - gap.from_us));
    let rows = gaps.iter().map(|gap| {
        let [from, to] = [gap.from_us, gap.to_us].map(|us| seconds(Some(us as f64)));
        texts([from, to, millis((gap.to_us - gap.from_us) as f64 / 1e3)])
    });
    let title = "Times in which nothing came into memory, the longest first";
    Table::new(title, &["from, s", "to, s", "ms"], rows, ROWS)
}

fn unit_table(boot: &Analysis) -> Table {
    let slowest = boot.slowest();
    let rows = slowest.iter().map(|(unit, took)| {
        let at = |us: Option<u64>| seconds(us.map(|us| us as f64));
        texts([
            unit.name.clone(),
            millis(*took as f64 / 1e3),
            at(unit.activating_us),
            at(unit.active_us),
            at(unit.inactive_us),
        ])
    });
    let head = ["unit", "took, ms", "started, s", "active, s", "ended, s"];
    Table::new("Units, the slowest first", &head, rows, 500)
}
