//! A picture of a boot, with the axis and the look of `systemd-analyze plot`: seconds from the
//! kernel's start, a bar for each unit in the order of their starts, and lines where phases end.
//! Above them are the pages that were read, and the idle times.

use super::svg::{COLOURS, Escaped, Px, line, open, put, shortened, text};
use super::svg_boot_flow::{Columns, DEMAND, LEFT, PANEL, RIGHT, Time, WIDTH, bar, key, panels};
use super::units::{grouped, millis};
use crate::text_boot::{summary, title};
use headstart::boot::analysis::Analysis;
use headstart::boot::unit_times::{Bar, UnitTimes};

const TOP: f64 = 70.0;
/// Room above a panel for its title.
const ABOVE: f64 = 34.0;
/// Height of a strip of phases, and of one of idle times.
const STRIP: f64 = 18.0;
/// From one unit to the next, and the height of its bar.
const ROW: f64 = 17.0;
const BAR: f64 = 13.0;
/// Units that are drawn.
const UNITS: usize = 400;

/// Indices of colours.
const ACTIVE: usize = 1;
const ENDING: usize = 2;

const HALO: &str = "<style>.boot .unit{paint-order:stroke;stroke:#fff;stroke-opacity:.75;\
                    stroke-width:3px}@media (prefers-color-scheme:dark){.boot .unit{stroke:#17171b}}\
                    </style>\n";

/// The picture, as an SVG file's text.
pub fn svg(boot: &Analysis) -> String {
    let end = (boot.end_us as f64 / 1e6).max(0.001);
    let time = Time::until(end);
    let units = drawn_units(boot);
    let panels_of = boot.timeline.as_ref().map(|t| panels(&t.bins, boot.boot.replayed));
    let flows = panels_of.as_ref().map_or(0.0, |panels| panels.len() as f64);
    let phases = TOP + 26.0;
    let top_panel = phases + STRIP + 12.0;
    let idle = top_panel + flows * (PANEL + ABOVE);
    let rows = idle + if flows > 0.0 { STRIP + 26.0 } else { 8.0 };
    let bottom = rows + ROW * units.len() as f64 + 6.0;

    let mut out = String::new();
    open(&mut out, "boot", &title(boot), (WIDTH, bottom + 84.0), &COLOURS);
    // Names lie on bars and lines.
    out.push_str(HALO);
    text(&mut out, 24.0, 53.0, "m", &summary(boot));
    time.draw(&mut out, TOP + 14.0, (phases, bottom));
    draw_phases(&mut out, boot, &time, phases, bottom);
    if let Some(timeline) = &boot.timeline {
        let columns = Columns::of(&timeline.bins, boot.end_us);
        for (i, (title, parts)) in panels_of.iter().flatten().enumerate() {
            let top = top_panel + ABOVE + (PANEL + ABOVE) * i as f64;
            columns.draw(&mut out, top, title, parts, &time);
        }
        draw_idle(&mut out, boot, &time, idle + 8.0);
        if timeline.recorded_from_us > 0 {
            let until = time.x(timeline.recorded_from_us as f64 / 1e6);
            let y = top_panel + ABOVE + 12.0;
            text(&mut out, LEFT + 6.0, y, "m", "not recorded");
            line(&mut out, "line", (until, top_panel + ABOVE), (until, idle));
        }
    }
    for (i, (unit, bar)) in units.iter().enumerate() {
        draw_unit(&mut out, unit, *bar, rows + ROW * i as f64, &time);
    }
    line(&mut out, "line", (LEFT, bottom), (RIGHT, bottom));
    time.labels(&mut out, bottom + 16.0);
    text(
        &mut out,
        (LEFT + RIGHT) / 2.0,
        bottom + 34.0,
        "m mid",
        "seconds from the beginning of the boot",
    );
    legend(&mut out, bottom + 62.0, skipped(boot, units.len()));
    out.push_str("</svg>\n");
    out
}

/// Units in the order in which they were started. Devices and slices only appear.
fn drawn_units(boot: &Analysis) -> Vec<(&UnitTimes, Bar)> {
    let units = boot.timeline.iter().flat_map(|timeline| &timeline.units);
    let works = |unit: &&UnitTimes| ![".device", ".slice"].iter().any(|s| unit.name.ends_with(s));
    let bars = units.filter(works).filter_map(|unit| Some((unit, unit.bar(boot.end_us)?)));
    bars.take(UNITS).collect()
}

/// How many units have no bar.
fn skipped(boot: &Analysis, drawn: usize) -> u64 {
    let kept = boot.timeline.as_ref().map_or(0, |t| t.units.len() - drawn.min(t.units.len()));
    boot.timeline.as_ref().map_or(0, |t| t.units_skipped).saturating_add(kept as u64)
}

/// The phases as a strip, each with a line where it ends.
fn draw_phases(out: &mut String, boot: &Analysis, time: &Time, y: f64, bottom: f64) {
    text(out, LEFT - 8.0, y + 13.0, "m end", "phases");
    let mut last = f64::NEG_INFINITY;
    for (i, phase) in boot.boot.phases.iter().enumerate() {
        let Some((from, to)) = phase.begin_ms.zip(phase.end_ms) else { continue };
        let (x, x_to) = (time.x(from.max(0.0) / 1e3), time.x(to.max(0.0) / 1e3));
        let took = (to - from).max(0.0);
        let title = format!("{}: {} ms, until {:.3} s", phase.name, millis(took), to / 1e3);
        let shade = if i % 2 == 0 { 0.45 } else { 0.25 };
        bar(out, ENDING, shade, [x, y, x_to, STRIP], &title);
        // A name is skipped where it would lie on the next.
        let fits = 7.2 * phase.name.chars().count() as f64 + 8.0 <= x_to - x;
        if fits && x >= last {
            text(out, x + 4.0, y + 13.0, "", &phase.name);
            last = x + 7.0 * phase.name.chars().count() as f64;
        }
        if x_to > x {
            put(
                out,
                format_args!(
                    r#"<path class="c{ENDING}" stroke="currentColor" stroke-dasharray="4 3" d="M{x} {}V{}"><title>{}</title></path>"#,
                    Px(y),
                    Px(bottom),
                    Escaped(&title),
                    x = Px(x_to),
                ),
            );
        }
    }
}

fn draw_idle(out: &mut String, boot: &Analysis, time: &Time, y: f64) {
    text(out, LEFT - 8.0, y + 13.0, "m end", "idle");
    for gap in &boot.idle {
        let ms = (gap.to_us - gap.from_us) as f64 / 1e3;
        let title = format!("nothing came in for {} ms", millis(ms));
        let (x, to) = (time.us(gap.from_us), time.us(gap.to_us));
        put(
            out,
            format_args!(
                r#"<rect class="idle" fill="currentColor" fill-opacity=".18" x="{}" y="{}" width="{}" height="{STRIP}"><title>{title}</title></rect>"#,
                Px(x),
                Px(y),
                Px((to - x).max(0.5))
            ),
        );
        if to - x > 56.0 {
            text(out, (x + to) / 2.0, y + 13.0, "m mid", &format!("{} ms", millis(ms)));
        }
    }
}

fn draw_unit(out: &mut String, unit: &UnitTimes, bar_of: Bar, y: f64, time: &Time) {
    let Bar { from, active, deactivating, to } = bar_of;
    let [x, x_active, x_deactivating, x_to] =
        [from, active, deactivating, to].map(|at| time.us(at));
    // Targets and mounts of the kernel are there at once.
    let took = unit.took_us().filter(|us| *us >= 100);
    let took = took.map_or_else(String::new, |us| format!(" ({} ms)", millis(us as f64 / 1e3)));
    let title = format!("{}, from {:.3} s{took}", unit.name, from as f64 / 1e6);
    bar(out, DEMAND, 0.85, [x, y, x_active.max(x + 1.0), BAR], &title);
    bar(out, ACTIVE, 0.35, [x_active, y, x_deactivating, BAR], &title);
    bar(out, ENDING, 0.6, [x_deactivating, y, x_to, BAR], &title);
    let label = format!("{}{took}", shortened(&unit.name, 80));
    let width = 7.0 * label.chars().count() as f64;
    // Behind the start where there is room, else at its beginning, else before it.
    let places = [(x_active + 5.0, "unit"), (x + 5.0, "unit")];
    let fits = places.into_iter().find(|(at, _)| at + width <= RIGHT);
    let (at, class) = fits.unwrap_or((x - 5.0, "unit end"));
    text(out, at, y + 11.0, class, &label);
}

/// What the colours of the bars mean.
fn legend(out: &mut String, y: f64, skipped: u64) {
    let mut x = LEFT;
    for (colour, opacity, words) in [
        (DEMAND, 0.85, "a unit is being started"),
        (ACTIVE, 0.4, "is active"),
        (ENDING, 0.6, "is being ended"),
    ] {
        x = key(out, x, y, colour, opacity, words);
    }
    if skipped > 0 {
        let words =
            format!("{} devices, slices and late units are not drawn", grouped(skipped as f64, 0));
        text(out, RIGHT, y, "m end", &words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::boot::bins::{Bins, Row};
    use headstart::boot::history::{BootRecord, PhaseRecord};
    use headstart::boot::timeline::Timeline;
    use proptest::prelude::*;

    fn unit(name: &str, from: u64, to: u64) -> UnitTimes {
        let at = Some;
        UnitTimes {
            name: name.into(),
            activating_us: at(from),
            active_us: at(to),
            ..UnitTimes::default()
        }
    }

    fn phase(name: &str, begin: f64, end: f64) -> PhaseRecord {
        let (begin_ms, end_ms) = (Some(begin), Some(end));
        PhaseRecord { name: name.into(), begin_ms, end_ms, ..PhaseRecord::default() }
    }

    #[test]
    fn phases_units_what_came_in_and_idle_times_are_in_the_picture() {
        let mut bins = Bins::default();
        bins.add(Row::Prefetched, 100_000, 3 << 20);
        bins.add(Row::Wasted, 100_000, 1 << 20);
        bins.add(Row::Late, 1_500_000, 4096);
        let units = vec![unit("a<b>.service", 200_000, 900_000), unit("dev-sda.device", 1, 1)];
        let timeline = Timeline { bins, units, has_access_events: true, ..Timeline::default() };
        let record = BootRecord {
            phases: vec![phase("mounts", 0.0, 500.0), phase("system", 500.0, 2000.0)],
            replayed: true,
            default_target_ms: Some(2000.0),
            ..BootRecord::default()
        };
        let boot = Analysis::of(3, record.clone(), Some(timeline));
        let svg = svg(&boot);
        for part in [
            "<title>Boot 3: default target after 2.00 s</title>",
            ">a&lt;b&gt;.service (700 ms)<",
            "<title>system: 1,500 ms, until 2.000 s</title>",
            "<title>nothing came in for 1,890 ms</title>",
            ">prefetched, wasted: 1.00 MiB<",
            ">prefetched, touched: 2.00 MiB<",
            ">1 devices, slices and late units are not drawn<",
            ">2.0 s<",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let old = super::svg(&Analysis::of(3, record, None));
        assert!(old.contains("were not kept of it") && !old.contains("idle"), "{old}");
        let page = crate::html_boot::html(&boot);
        assert!(page.contains("<td>a&lt;b&gt;.service</td><td>700</td>"), "{page}");
        assert!(!page.contains("<script") && !page.contains("href"), "it needs nothing else");
    }

    proptest! {
        #[test]
        fn any_boot_makes_a_picture_and_a_page_of_finite_numbers_and_escaped_text(
            names in prop::collection::vec(any::<String>(), 0..6),
            ends in prop::collection::vec(prop_oneof![any::<f64>(), 0.0..1e5f64], 0..6),
            times in prop::collection::vec(prop_oneof![any::<u64>(), 0..90_000_000u64], 0..30),
            from in prop_oneof![any::<u64>(), 0..9_000_000u64],
            replayed in any::<bool>(),
        ) {
            let mut bins = Bins::default();
            for (i, at) in times.iter().enumerate() {
                bins.add(Row::ALL[i % 5], *at, at >> (i % 60));
            }
            let units = names.iter().zip(&times).map(|(name, at)| unit(name, *at, from)).collect();
            let timeline =
                Timeline { bins, units, recorded_from_us: from, ..Timeline::default() };
            let phases =
                names.iter().zip(&ends).map(|(name, end)| phase(name, end / 2.0, *end)).collect();
            let record = BootRecord {
                kernel: names.first().cloned().unwrap_or_default(),
                problems: names.clone(),
                default_target_ms: ends.first().copied(),
                phases,
                replayed,
                ..BootRecord::default()
            };
            let boot = Analysis::of(from, record, Some(timeline));
            let page = crate::html_boot::html(&boot);
            prop_assert!(page.contains(&svg(&boot)));
            for tag in ["text", "style", "svg", "title", "td", "tr", "table", "body"] {
                let count = |what: &str| page.matches(what).count();
                let opened = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
                prop_assert_eq!(opened, count(&format!("</{tag}>")), "{}", tag);
            }
            for attribute in ["x", "y", "d", "width", "height"] {
                for value in page.split(&format!(" {attribute}=\"")).skip(1) {
                    let value = value.split('"').next().unwrap_or("");
                    prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{}", value);
                    prop_assert!(!value.starts_with('-'), "{} {}", attribute, value);
                }
            }
        }
    }
}
