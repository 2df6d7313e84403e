//! The upper part of a boot's picture: the pages that were read over time, and the axis and bars
//! that the whole picture shares.

use super::axis::Axis;
use super::svg::{Escaped, Px, levels, line, put, text};
use super::units::millis;
use headstart::boot::bins::{Bins, Row};

pub(super) const WIDTH: f64 = 1400.0;
pub(super) const LEFT: f64 = 76.0;
pub(super) const RIGHT: f64 = WIDTH - 24.0;
/// Height of a panel.
pub(super) const PANEL: f64 = 110.0;
/// Stretches of time that are drawn: each is seen.
const COLUMNS: usize = 650;

/// Indices of colours.
const AHEAD: usize = 0;
const WASTED: usize = 4;
pub(super) const DEMAND: usize = 3;
const LATE: usize = 5;

/// The axis that all of the picture shares, in seconds.
pub(super) struct Time {
    axis: Axis,
    pub(super) end: f64,
}

impl Time {
    /// Until so many seconds.
    pub(super) fn until(end: f64) -> Self {
        Self { axis: Axis::new(&[0.0, end / 1.06], LEFT, RIGHT), end }
    }

    pub(super) fn x(&self, seconds: f64) -> f64 {
        self.axis.pixel(seconds.min(self.end))
    }

    pub(super) fn us(&self, us: u64) -> f64 {
        self.x(us as f64 / 1e6)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        self.axis.ticks().into_iter().filter(|(at, _)| *at <= self.end).collect()
    }

    pub(super) fn labels(&self, out: &mut String, y: f64) {
        for (at, label) in self.ticks() {
            text(out, self.x(at), y, "m mid", &format!("{label} s"));
        }
    }

    pub(super) fn draw(&self, out: &mut String, y: f64, (from, to): (f64, f64)) {
        self.labels(out, y);
        for (at, _) in self.ticks() {
            line(out, "grid", (self.x(at), from), (self.x(at), to));
        }
    }
}

/// A bar, with what it is when it is pointed at.
pub(super) fn bar(
    out: &mut String,
    colour: usize,
    opacity: f64,
    [x, y, to, height]: [f64; 4],
    title: &str,
) {
    if to <= x {
        return;
    }
    let (width, x, y) = (Px((to - x).max(0.5)), Px(x), Px(y));
    let title = match title {
        "" => String::new(),
        words => format!("<title>{}</title>", Escaped(words)),
    };
    put(
        out,
        format_args!(
            r#"<rect class="c{colour}" fill="currentColor" fill-opacity="{opacity}" x="{x}" y="{y}" width="{width}" height="{height}">{title}</rect>"#
        ),
    );
}

/// One colour of a panel.
pub(super) struct Part {
    name: &'static str,
    colour: usize,
    bytes: Vec<u64>,
}

/// The panels with their titles. Before anything is prefetched all is missing.
pub(super) fn panels(bins: &Bins, replayed: bool) -> Vec<(&'static str, Vec<Part>)> {
    let part = |name, colour, row| Part { name, colour, bytes: bins.row(row).to_vec() };
    let ahead = bins.prefetched.iter().zip(&bins.wasted);
    let used = ahead.map(|(ahead, wasted)| ahead.saturating_sub(*wasted)).collect();
    let demand = part("by the boot itself", DEMAND, Row::Demand);
    if !replayed {
        return vec![("came into memory, MiB/s", vec![demand])];
    }
    let ahead = Part { name: "prefetched, touched", colour: AHEAD, bytes: used };
    let wasted = part("prefetched, wasted", WASTED, Row::Wasted);
    let waited = vec![part("late", LATE, Row::Late), part("missing", DEMAND, Row::Missing)];
    vec![
        ("came into memory, MiB/s", vec![ahead, wasted, demand]),
        ("touched before it was there, MiB/s", waited),
    ]
}

/// The stretches of the boot, joined so that each can be seen.
pub(super) struct Columns {
    joined: usize,
    seconds: f64,
    count: usize,
}

impl Columns {
    pub(super) fn of(bins: &Bins, end_us: u64) -> Self {
        let bins_drawn = usize::try_from(end_us.div_ceil(bins.bin_us)).unwrap_or(usize::MAX);
        let joined = bins_drawn.min(bins.len()).max(1).div_ceil(COLUMNS);
        let seconds = bins.bin_us as f64 * joined as f64 / 1e6;
        Self { joined, seconds, count: bins_drawn.min(bins.len()).div_ceil(joined) }
    }

    /// MiB in a second of each column.
    fn rates(&self, bytes: &[u64]) -> Vec<f64> {
        let rate = |bins: &[u64]| bins.iter().map(|b| *b as f64).sum::<f64>() / self.seconds;
        bytes.chunks(self.joined).take(self.count).map(|b| rate(b) / f64::from(1 << 20)).collect()
    }

    pub(super) fn draw(
        &self,
        out: &mut String,
        top: f64,
        title: &str,
        parts: &[Part],
        time: &Time,
    ) {
        let rates: Vec<Vec<f64>> = parts.iter().map(|part| self.rates(&part.bytes)).collect();
        let height = |column: usize| rates.iter().map(|rates| rates[column]).sum::<f64>();
        let most = (0..self.count).map(height).fold(0.0, f64::max);
        let bottom = top + PANEL;
        let axis = Axis::new(&[0.0, most], bottom, top);
        levels(out, &axis, LEFT, RIGHT);
        line(out, "line", (LEFT, bottom), (RIGHT, bottom));
        heading(out, top - 10.0, title, parts);
        let mut below = vec![0.0; self.count];
        for (part, rates) in parts.iter().zip(&rates) {
            let mut path = String::new();
            for (column, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
                let from = axis.pixel(below[column]);
                below[column] += rate;
                // What is there is seen, however little it is.
                let to = axis.pixel(below[column]).min(from - 0.8);
                let begin = column as f64 * self.seconds;
                if begin > time.end {
                    break;
                }
                let (left, right) = (time.x(begin), time.x(begin + self.seconds));
                let (left, right) = (Px(left), Px(right.max(left + 1.0)));
                path += &format!("M{left} {}H{right}V{}H{left}z", Px(from), Px(to));
            }
            let (colour, name) = (part.colour, part.name);
            put(
                out,
                format_args!(
                    r#"<path class="c{colour}" fill="currentColor" d="{path}"><title>{name}</title></path>"#
                ),
            );
        }
    }
}

/// The title of a panel, and what its colours mean.
fn heading(out: &mut String, y: f64, title: &str, parts: &[Part]) {
    text(out, LEFT, y, "unit", title);
    let mut x = LEFT + 260.0;
    for part in parts {
        let bytes: f64 = part.bytes.iter().map(|bytes| *bytes as f64).sum();
        let words = format!("{}: {} MiB", part.name, millis(bytes / f64::from(1 << 20)));
        x = key(out, x, y, part.colour, 1.0, &words);
    }
}

/// A square of a colour and what it means; where the next may begin.
pub(super) fn key(
    out: &mut String,
    x: f64,
    y: f64,
    colour: usize,
    opacity: f64,
    words: &str,
) -> f64 {
    bar(out, colour, opacity, [x, y - 10.0, x + 11.0, 11.0], "");
    text(out, x + 16.0, y, "m", words);
    x + 36.0 + 6.6 * words.chars().count() as f64
}
