//! A picture of one start: the touched pages by class, what was read and by whom, and how far ahead
//! prefetching was. Below them are the most affected files.

use super::axis::Axis;
use super::svg::{COLOURS, Escaped, Px, levels, line, open, put, shortened, text};
use super::units::{grouped, millis};
use headstart::outcome::last_run::{FileRun, LastRun, OverTime};

const WIDTH: f64 = 920.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 64.0;
/// Height of a panel, and the room around it.
const PANEL: f64 = 120.0;
const ABOVE: f64 = 40.0;
const BELOW: f64 = 14.0;
const ROW: f64 = 20.0;
/// Files that are named.
const FILES: usize = 15;
/// Right ends of the columns of numbers.
const ENDS: [f64; 4] = [LEFT + 10.0, 150.0, 220.0, 290.0];

/// Indices of colours.
const READY: usize = 2;
const AHEAD: usize = 1;
const LATE: usize = 5;
const MISSING: usize = 3;
const WASTED: usize = 4;
const TOUCHED: usize = 0;

/// Something drawn over time.
struct Row {
    name: &'static str,
    colour: usize,
    pages: Vec<u64>,
}

/// The picture, as an SVG file's text.
pub fn svg(run: &LastRun) -> String {
    let o = &run.over_time;
    let rows = run.files.len().min(FILES);
    let tops: [f64; 3] = std::array::from_fn(|i| TOP + ABOVE + (PANEL + ABOVE + BELOW) * i as f64);
    let table = tops[2] + PANEL + 62.0;
    let height = table + ROW * (rows.max(1) + usize::from(run.files.len() > rows)) as f64 + 24.0;
    let mut out = String::new();
    let title = if run.name.is_empty() { "A start" } else { &run.name };
    open(&mut out, "last-run", title, (WIDTH, height), &COLOURS);
    text(&mut out, 24.0, 53.0, "m", &summary(run));
    let end = o.ms(o.len()).max(1e-3);
    let time = Time { axis: Axis::new(&[0.0, end / 1.06], LEFT, RIGHT), end };
    let mib = run.page_size as f64 / f64::from(1 << 20);

    let touched = [
        row("ready", READY, &o.ready),
        row("late", LATE, &o.late),
        row("missing", MISSING, &o.missing),
    ];
    stacked(&mut out, tops[0], "touched by the program", &touched, o, &time, mib);
    let own: Vec<u64> = [&o.late, &o.missing, &o.untouched, &o.metadata]
        .into_iter()
        .fold(vec![0; o.len()], |sum, row| added(&sum, row));
    let used = o.prefetched.iter().zip(&o.wasted).map(|(a, w)| a.saturating_sub(*w)).collect();
    let brought = [
        Row { name: "prefetched", colour: AHEAD, pages: used },
        row("of it wasted", WASTED, &o.wasted),
        Row { name: "by the program", colour: MISSING, pages: own },
    ];
    stacked(&mut out, tops[1], "brought in", &brought, o, &time, mib);
    let all = added(&added(&o.ready, &o.late), &o.missing);
    let sums = [row("prefetched", AHEAD, &o.prefetched), row("touched", TOUCHED, &all)];
    in_all(&mut out, tops[2], &sums, o, &time, mib);
    time.draw(&mut out, tops[2] + PANEL);
    files(&mut out, table, run, rows);
    out.push_str("</svg>\n");
    out
}

fn row(name: &'static str, colour: usize, pages: &[u64]) -> Row {
    Row { name, colour, pages: pages.to_vec() }
}

fn added(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| a.saturating_add(*b)).collect()
}

fn summary(run: &LastRun) -> String {
    let t = &run.totals;
    let pages = |n: u64| grouped(n as f64, 0);
    let replay = if run.replayed { "" } else { "nothing was prefetched; " };
    format!(
        "start {} in {} ms; {replay}{} pages touched: {} ready, {} late, {} missing; {} \
         prefetched, {} of them wasted",
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

/// The axis that all panels share.
struct Time {
    axis: Axis,
    end: f64,
}

impl Time {
    fn x(&self, ms: f64) -> f64 {
        self.axis.pixel(ms.min(self.end))
    }

    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        self.axis.ticks().into_iter().filter(|(ms, _)| *ms <= self.end)
    }

    fn draw(&self, out: &mut String, bottom: f64) {
        for (ms, label) in self.ticks() {
            text(out, self.x(ms), bottom + 18.0, "m mid", &label);
        }
        text(
            out,
            (LEFT + RIGHT) / 2.0,
            bottom + 36.0,
            "m mid",
            "ms from the beginning of the start",
        );
    }
}

/// Grid, title and legend of a panel whose highest value is `most`.
fn panel(
    out: &mut String,
    top: f64,
    title: &str,
    rows: &[Row],
    most: f64,
    time: &Time,
    mib: f64,
) -> Axis {
    let bottom = top + PANEL;
    let axis = Axis::new(&[0.0, most], bottom, top);
    levels(out, &axis, LEFT, RIGHT);
    for (ms, _) in time.ticks() {
        let x = time.x(ms);
        line(out, "grid", (x, top), (x, bottom));
    }
    line(out, "line", (LEFT, bottom), (RIGHT, bottom));
    text(out, LEFT, top - 12.0, "", title);
    let mut x = LEFT + 270.0;
    for row in rows {
        let pages: u64 = row.pages.iter().fold(0, |sum, n| sum.saturating_add(*n));
        let (at, y) = (Px(x), Px(top - 21.0));
        put(
            out,
            format_args!(
                r#"<rect class="c{}" fill="currentColor" x="{at}" y="{y}" width="10" height="10"/>"#,
                row.colour
            ),
        );
        let words = format!("{}: {} MiB", row.name, millis(pages as f64 * mib));
        text(out, x + 15.0, top - 12.0, "m", &words);
        x += 30.0 + 6.6 * words.chars().count() as f64;
    }
    axis
}

/// Bars over each other.
fn stacked(
    out: &mut String,
    top: f64,
    title: &str,
    rows: &[Row],
    o: &OverTime,
    time: &Time,
    mib: f64,
) {
    let height = |bin: usize| rows.iter().map(|r| r.pages[bin] as f64 * mib).sum::<f64>();
    let most = (0..o.len()).map(height).fold(0.0, f64::max);
    let title = format!("{title}, MiB in {} ms", millis(o.ms(1)));
    let axis = panel(out, top, &title, rows, most, time, mib);
    let mut below = vec![0.0; o.len()];
    for row in rows {
        let mut path = String::new();
        for (bin, pages) in row.pages.iter().enumerate().filter(|(_, pages)| **pages > 0) {
            let from = below[bin];
            below[bin] += *pages as f64 * mib;
            // What is there is seen, however little it is.
            let (y, to) = (axis.pixel(from), axis.pixel(below[bin]).min(axis.pixel(from) - 1.0));
            let (left, right) = (time.x(o.ms(bin)), time.x(o.ms(bin + 1)));
            let (left, right) = (Px(left), Px(right.max(left + 1.0)));
            path += &format!("M{left} {}H{right}V{}H{left}z", Px(y), Px(to));
        }
        put(
            out,
            format_args!(
                r#"<path class="c{}" fill="currentColor" d="{path}"><title>{}</title></path>"#,
                row.colour, row.name
            ),
        );
    }
}

/// Sums up to each time.
fn in_all(out: &mut String, top: f64, rows: &[Row], o: &OverTime, time: &Time, mib: f64) {
    let sum = |row: &Row| row.pages.iter().fold(0.0, |sum, n| sum + *n as f64 * mib);
    let most = rows.iter().map(sum).fold(0.0, f64::max);
    let axis = panel(out, top, "in all up to then, MiB", rows, most, time, mib);
    for row in rows {
        let mut path = format!("M{} {}", Px(time.x(0.0)), Px(axis.pixel(0.0)));
        let mut so_far = 0.0;
        for (bin, pages) in row.pages.iter().enumerate() {
            so_far += *pages as f64 * mib;
            path += &format!("L{} {}", Px(time.x(o.ms(bin + 1))), Px(axis.pixel(so_far)));
        }
        put(
            out,
            format_args!(
                r#"<path class="c{}" fill="none" stroke="currentColor" stroke-width="2" d="{path}"><title>{}</title></path>"#,
                row.colour, row.name
            ),
        );
    }
}

/// The files with the most pages that did not fare well.
fn files(out: &mut String, top: f64, run: &LastRun, rows: usize) {
    for (end, title) in ENDS.into_iter().zip(["late", "by up to", "missing", "wasted"]) {
        text(out, end, top, "m end", title);
    }
    text(out, 306.0, top, "m", "pages of file");
    for (i, file) in run.files.iter().take(rows).enumerate() {
        let y = top + ROW * (i + 1) as f64;
        for (end, cell) in ENDS.into_iter().zip(cells(file)) {
            text(out, end, y, "end", &cell);
        }
        let path = file.path.shown();
        let (x, y, name, path) = (Px(306.0), Px(y), tail(&path, 84), Escaped(&path));
        let name = Escaped(&name);
        put(out, format_args!(r#"<text x="{x}" y="{y}"><title>{path}</title>{name}</text>"#));
    }
    let more = (run.files.len() - rows) as u64;
    let more = more.saturating_add(run.files_skipped);
    let y = top + ROW * (rows + 1) as f64;
    if rows == 0 {
        text(out, 306.0, y, "m", "none was late, missing or wasted");
    } else if more > 0 {
        text(out, 306.0, y, "m", &format!("and {} more", grouped(more as f64, 0)));
    }
}

fn cells(file: &FileRun) -> [String; 4] {
    let pages = |n: u64| if n == 0 { "–".into() } else { grouped(n as f64, 0) };
    let by = |us: u64| format!("{} ms", millis(us as f64 / 1000.0));
    let late_by = file.late_by_us.filter(|us| *us > 0).map_or("–".into(), by);
    [pages(file.late), late_by, pages(file.missing), pages(file.wasted)]
}

/// The last characters: directories that many files share say least.
fn tail(path: &str, most: usize) -> String {
    let length = path.chars().count();
    if length <= most {
        return shortened(path, most);
    }
    ['…'].into_iter().chain(path.chars().skip(length + 1 - most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart::host::range::PageRange;
    use headstart::host::usage::How;
    use headstart::outcome::counts::Classification;
    use headstart::outcome::last_run::timeline::{PrefetchedSpan, Timeline};
    use headstart::profile::spans::Spans;
    use proptest::prelude::*;
    use std::path::Path;

    fn set(pages: &[(u64, u64)]) -> Spans {
        let mut spans = Spans::default();
        for &(page, ms) in pages {
            spans.touch(PageRange::of(page, 1), ms * 1_000_000, How::READ);
        }
        spans
    }

    #[test]
    fn all_classes_of_pages_are_in_the_picture_and_so_are_the_files() {
        let mut timeline = Timeline::new(100_000_000);
        let classes = Classification {
            late: set(&[(1, 10)]),
            missing: set(&[(5, 90)]),
            ..Classification::default()
        };
        let prefetched = [PrefetchedSpan { pages: PageRange::of(1, 2), at: 12_000_000 }];
        timeline.add(Some(Path::new("/<lib>.so")), &classes, &prefetched);
        let run = LastRun { page_size: 4096, name: "app".into(), ..timeline.finish() };
        let svg = svg(&run);
        for part in [
            "<title>app</title>",
            "<title>late</title>",
            "<title>missing</title>",
            "<title>of it wasted</title>",
            ">2.00 ms<",
            "<title>/&lt;lib&gt;.so</title>",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn a_start_that_needed_nothing_says_so() {
        let run = LastRun { page_size: 4096, ..Timeline::new(0).finish() };
        assert!(svg(&run).contains("none was late, missing or wasted"));
        assert!(svg(&LastRun::default()).ends_with("</svg>\n"));
    }

    proptest! {
        #[test]
        fn any_record_makes_a_picture_of_finite_numbers_and_escaped_text(
            name in any::<String>(),
            path in any::<String>(),
            page_size in any::<u64>(),
            bin_us in 1..u64::MAX,
            pages in prop::collection::vec(any::<u64>(), 0..9),
        ) {
            let lists = || pages.clone();
            let over_time = OverTime {
                bin_us,
                ready: lists(),
                late: lists(),
                missing: lists(),
                untouched: lists(),
                metadata: lists(),
                prefetched: lists(),
                wasted: lists(),
                lead_us: vec![None; pages.len()],
            };
            let path = Path::new(&path).into();
            let file = FileRun { path, late: 1, late_by_us: Some(u64::MAX), ..FileRun::default() };
            let files = vec![file; 20];
            let picture = svg(&LastRun { name, page_size, over_time, files, ..LastRun::default() });
            for tag in ["text", "style", "svg", "title", "path"] {
                let count = |what: &str| picture.matches(what).count();
                let closed = count(&format!("</{tag}>"));
                if tag != "path" {
                    prop_assert_eq!(count(&format!("<{tag}>")) + count(&format!("<{tag} ")), closed);
                }
            }
            for attribute in ["x", "y", "d", "width", "height"] {
                for value in picture.split(&format!(" {attribute}=\"")).skip(1) {
                    let value = value.split('"').next().unwrap_or("");
                    prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{}", value);
                }
            }
        }
    }
}
