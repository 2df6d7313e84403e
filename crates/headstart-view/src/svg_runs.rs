//! A picture of runs: every run as a dot over its number, and next to it each state's box, median
//! and interval.
//!
//! The dots show what a summary hides (drift, a slow first run, two modes); the boxes show what
//! dots hide. The colours suit red-green colour blindness, and follow the viewer's light or dark
//! setting.

use super::axis::Axis;
use super::svg::{COLOURS, Escaped, Px, line, open, put, shortened, text, two_lines};
use super::units::{decimals_for, grouped, millis};

/// The runs of one state (cold, prefetched, hot …).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State<'a> {
    /// Its name.
    pub name: &'a str,
    /// The duration of every run in milliseconds, in the order of the rounds;
    /// NaN where a run failed.
    pub millis: &'a [f64],
    /// An interval of the median of these, in milliseconds, where there is one.
    pub interval: Option<Interval>,
}

/// An interval that holds the true median with some confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds it: 0.95 for 95 %.
    pub confidence: f64,
    /// Whether that is as much as was requested.
    pub is_confident: bool,
}

const WIDTH: f64 = 920.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 372.0;
const LEGEND: f64 = BOTTOM + 76.0;
const LEGEND_ROW: f64 = 22.0;
/// Half a box.
const HALF: f64 = 13.0;
/// Right ends of the legend's columns of numbers.
const LEGEND_ENDS: [f64; 4] = [430.0, 540.0, 710.0, RIGHT];

/// One state with what is drawn of it.
struct Series<'a> {
    state: State<'a>,
    class: usize,
    /// The durations in ascending order.
    times: Vec<f64>,
}

/// The picture, as an SVG file's text.
pub fn svg(title: &str, states: &[State]) -> String {
    let series: Vec<Series> = states.iter().enumerate().map(|(i, s)| Series::new(i, *s)).collect();
    let shown: Vec<f64> =
        states.iter().flat_map(|state| state.millis.iter().copied().filter(is_time)).collect();
    let axis = Axis::new(&shown, BOTTOM, TOP);
    let slot = (380.0 / states.len().max(1) as f64).min(84.0);
    let boxes = RIGHT - slot * states.len() as f64;
    let rounds = states.iter().map(|state| state.millis.len()).max().unwrap_or(0);

    let mut out = String::new();
    head(&mut out, title, states.len(), axis.log);
    value_axis(&mut out, &axis, boxes - 24.0, boxes);
    let xs = Xs { left: LEFT + 14.0, right: boxes - 38.0, rounds };
    xs.draw(&mut out);
    for series in &series {
        series.draw_dots(&mut out, &axis, &xs, boxes - 24.0);
    }
    for (i, series) in series.iter().enumerate() {
        series.draw_box(&mut out, &axis, boxes + slot * (i as f64 + 0.5), slot);
    }
    if shown.is_empty() {
        text(&mut out, (LEFT + boxes) / 2.0, (TOP + BOTTOM) / 2.0, "m mid", "no runs");
    }
    legend(&mut out, &series);
    out.push_str("</svg>\n");
    out
}

fn is_time(ms: &f64) -> bool {
    ms.is_finite() && *ms >= 0.0
}

fn head(out: &mut String, title: &str, states: usize, log: bool) {
    let height = LEGEND + LEGEND_ROW * states as f64 + 18.0;
    open(out, "runs", title, (WIDTH, height), &COLOURS[..states.min(COLOURS.len())]);
    let scale = if log { "milliseconds, logarithmic scale" } else { "milliseconds" };
    text(out, 24.0, 53.0, "m", scale);
}

/// Grid lines through dots and boxes, labels at the left.
fn value_axis(out: &mut String, axis: &Axis, dots_end: f64, boxes: f64) {
    for (value, label) in axis.ticks() {
        let y = axis.pixel(value);
        line(out, "grid", (LEFT, y), (dots_end, y));
        line(out, "grid", (boxes, y), (RIGHT, y));
        text(out, LEFT - 8.0, y + 4.0, "m end", &label);
    }
    line(out, "line", (LEFT, BOTTOM), (dots_end, BOTTOM));
    line(out, "line", (boxes, BOTTOM), (RIGHT, BOTTOM));
}

/// Where the runs lie from left to right.
struct Xs {
    left: f64,
    right: f64,
    rounds: usize,
}

impl Xs {
    /// The pixel of a run, counted from 0.
    fn pixel(&self, run: usize) -> f64 {
        let share = if self.rounds > 1 { run as f64 / (self.rounds - 1) as f64 } else { 0.5 };
        self.left + share * (self.right - self.left)
    }

    fn draw(&self, out: &mut String) {
        let step = [1, 2, 5]
            .into_iter()
            .cycle()
            .zip((0..).map(|i| 10usize.saturating_pow(i / 3)))
            .map(|(digit, power)| power.saturating_mul(digit))
            .find(|step| self.rounds / step <= 12)
            .unwrap_or(usize::MAX);
        // Run 1 is always marked; a multiple of the step may be too close to it.
        let marked =
            |run: &usize| *run == 0 || (run + 1).is_multiple_of(step) && run * 5 >= step * 3;
        for run in (0..self.rounds).filter(marked) {
            let label = grouped((run + 1) as f64, 0);
            text(out, self.pixel(run), BOTTOM + 18.0, "m mid", &label);
        }
        text(out, (self.left + self.right) / 2.0, BOTTOM + 38.0, "m mid", "run");
    }

    fn radius(&self) -> f64 {
        match self.rounds {
            0..=60 => 3.6,
            61..=200 => 2.6,
            _ => 1.6,
        }
    }
}

impl<'a> Series<'a> {
    fn new(index: usize, state: State<'a>) -> Series<'a> {
        let mut times: Vec<f64> = state.millis.iter().copied().filter(is_time).collect();
        times.sort_by(f64::total_cmp);
        Series { state, class: index % COLOURS.len(), times }
    }

    /// The shortest run, the median and the longest.
    fn range(&self) -> Option<(f64, f64, f64)> {
        Some((*self.times.first()?, quantile(&self.times, 0.5), *self.times.last()?))
    }

    /// Of fewer than five runs a box would show nothing but the dots.
    fn quartiles(&self) -> Option<(f64, f64)> {
        let at = |share| quantile(&self.times, share);
        (self.times.len() >= 5).then(|| (at(0.25), at(0.75)))
    }

    /// The median and its interval behind the dots, then the dots.
    fn draw_dots(&self, out: &mut String, axis: &Axis, xs: &Xs, right: f64) {
        let Some((_, median, _)) = self.range() else { return };
        put(out, format_args!(r#"<g class="c{}" fill="currentColor">"#, self.class));
        if let Some(interval) = self.interval() {
            let (top, bottom) = (axis.pixel(interval.high), axis.pixel(interval.low));
            put(
                out,
                format_args!(
                    r#"<rect x="{}" y="{}" width="{}" height="{}" opacity=".13"/>"#,
                    Px(LEFT),
                    Px(top),
                    Px(right - LEFT),
                    Px(bottom - top)
                ),
            );
        }
        let y = Px(axis.pixel(median));
        let (left, right) = (Px(LEFT), Px(right));
        put(
            out,
            format_args!(
                r#"<path d="M{left} {y}H{right}" stroke="currentColor" stroke-dasharray="5 4" opacity=".6"/>"#
            ),
        );
        for (run, ms) in self.state.millis.iter().enumerate().filter(|(_, ms)| is_time(ms)) {
            put(
                out,
                format_args!(
                    r#"<circle cx="{}" cy="{}" r="{}"><title>{}, run {}: {} ms</title></circle>"#,
                    Px(xs.pixel(run)),
                    Px(axis.pixel(*ms)),
                    Px(xs.radius()),
                    Escaped(self.state.name),
                    run + 1,
                    millis(*ms)
                ),
            );
        }
        out.push_str("</g>\n");
    }

    /// Whiskers from the shortest to the longest run, the middle half as a box,
    /// the median as a line, its interval as a bar.
    fn draw_box(&self, out: &mut String, axis: &Axis, x: f64, slot: f64) {
        let most = (slot / 7.0) as usize;
        for (i, words) in two_lines(self.state.name, most).iter().enumerate() {
            text(out, x, BOTTOM + 18.0 + 15.0 * i as f64, "mid", words);
        }
        let Some((min, median, max)) = self.range() else { return };
        put(out, format_args!(r#"<g class="c{}" fill="currentColor">"#, self.class));
        let whisker = |out: &mut String, from: f64, to: f64| {
            let (from, to) = (Px(axis.pixel(from)), Px(axis.pixel(to)));
            let x = Px(x);
            put(out, format_args!(r#"<path d="M{x} {from}V{to}" stroke="currentColor"/>"#));
        };
        let bar = |out: &mut String, (low, high): (f64, f64), half: f64, look: &str| {
            let (top, bottom) = (axis.pixel(high), axis.pixel(low));
            let (left, width, height) = (Px(x - half), Px(2.0 * half), Px(bottom - top));
            let top = Px(top);
            put(
                out,
                format_args!(
                    r#"<rect x="{left}" y="{top}" width="{width}" height="{height}" {look}/>"#
                ),
            );
        };
        match self.quartiles() {
            Some((low, high)) => {
                whisker(out, min, low);
                whisker(out, high, max);
                let look = r#"rx="2" fill-opacity=".22" stroke="currentColor""#;
                bar(out, (low, high), HALF, look);
            }
            None => whisker(out, min, max),
        }
        if let Some(interval) = self.interval() {
            bar(out, (interval.low, interval.high), 4.0, "");
        }
        out.push_str("</g>\n");
        let y = axis.pixel(median);
        line(out, "mark", (x - HALF, y), (x + HALF, y));
    }
}

/// The figures behind the picture.
fn legend(out: &mut String, series: &[Series]) {
    let titles = ["runs", "median", "95 % interval", "shortest to longest"];
    for (end, title) in LEGEND_ENDS.into_iter().zip(titles) {
        text(out, end, LEGEND - 4.0, "m end", title);
    }
    for (i, series) in series.iter().enumerate() {
        let y = LEGEND + LEGEND_ROW * (i + 1) as f64 - 4.0;
        let (class, x, dot) = (series.class, Px(30.0), Px(y - 4.0));
        put(
            out,
            format_args!(
                r#"<circle class="c{class}" fill="currentColor" cx="{x}" cy="{dot}" r="5"/>"#
            ),
        );
        text(out, 44.0, y, "", &shortened(series.state.name, 44));
        for (end, cell) in LEGEND_ENDS.into_iter().zip(series.cells()) {
            text(out, end, y, "end", &cell);
        }
    }
}

impl Series<'_> {
    fn cells(&self) -> [String; 4] {
        let all = self.state.millis.len();
        let Some((min, median, max)) = self.range() else {
            return [format!("0 of {all}"), "–".into(), "–".into(), "–".into()];
        };
        let n = self.times.len();
        let runs = if n == all { n.to_string() } else { format!("{n} of {all}") };
        let decimals = self
            .state
            .interval
            .map_or(decimals_for(median), |interval| decimals_for(interval.high - interval.low));
        let ms = |value| grouped(value, decimals);
        let interval = self.state.interval.map_or("–".to_owned(), |interval| {
            let ends = format!("{} to {}", ms(interval.low), ms(interval.high));
            let only = (100.0 * interval.confidence).floor();
            if interval.is_confident { ends } else { format!("{ends} (only {only} %)") }
        });
        let range = format!("{} to {} ms", ms(min), ms(max));
        [runs, format!("{} ms", ms(median)), interval, range]
    }

    /// The interval of the median, when there are enough runs for one.
    fn interval(&self) -> Option<Interval> {
        self.state.interval.filter(|interval| interval.is_confident)
    }
}

/// The value below which a share of the ascending values lies, between
/// adjacent values in proportion (Hyndman and Fan's type 7).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + at.fract() * (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    fn interval(low: f64, high: f64, confidence: f64) -> Option<Interval> {
        Some(Interval { low, high, confidence, is_confident: confidence >= 0.95 })
    }

    #[test]
    fn every_run_is_a_dot_and_every_failed_one_a_gap_that_is_counted() {
        let cold = [900.0, f64::NAN, 910.0, 905.0, 890.0, 2000.0, 904.0];
        let hot = [300.0, 310.0, 305.0, 308.0, 299.0, 301.0, 302.0];
        let states = [
            State { name: "cold", millis: &cold, interval: interval(890.0, 2000.0, 0.96) },
            State { name: "hot", millis: &hot, interval: interval(299.0, 310.0, 0.98) },
        ];
        let svg = svg("editor", &states);
        assert_eq!(count(&svg, "<title>cold, run "), 6);
        assert_eq!(count(&svg, "<title>hot, run "), 7);
        assert!(svg.contains("<title>cold, run 6: 2,000 ms</title>"));
        assert!(!svg.contains("<title>cold, run 2:"), "run 2 failed, later runs keep their number");
        assert!(svg.contains(">6 of 7<") && svg.contains(">302 ms<"));
        assert!(!svg.contains("logarithmic"));
    }

    #[test]
    fn a_wide_span_is_drawn_on_a_logarithmic_scale_and_says_so() {
        let state = |name, millis| State { name, millis, interval: None };
        let states = [state("cold", &[18_849.0][..]), state("hot", &[702.0])];
        assert!(svg("x", &states).contains("milliseconds, logarithmic scale"));
    }

    #[test]
    fn few_runs_get_no_box_and_no_band_and_the_confidence_they_have() {
        let few = interval(10.1, 11.0, 0.75);
        let few = svg("x", &[State { name: "cold", millis: &[10.1, 11.0, 10.4], interval: few }]);
        assert!(few.contains(">10.10 to 11.00 (only 75 %)<"), "{few}");
        assert!(!few.contains("fill-opacity") && !few.contains("opacity=\".13\""));
        let millis = &[10.1, 11.0, 10.4, 10.2, 10.3, 10.5];
        let enough = interval(10.1, 11.0, 0.96);
        let enough = svg("x", &[State { name: "cold", millis, interval: enough }]);
        assert!(enough.contains("fill-opacity") && enough.contains("opacity=\".13\""));
    }

    proptest! {
        #[test]
        fn any_names_and_times_make_a_picture_of_finite_numbers_and_escaped_text(
            title in any::<String>(),
            states in prop::collection::vec(
                (any::<String>(), prop::collection::vec(prop_oneof![any::<f64>(), 0.0..1e5f64], 0..12)),
                0..9,
            ),
        ) {
            let states: Vec<State> = states
                .iter()
                .map(|(name, millis)| {
                    let times = || millis.iter().copied().filter(is_time);
                    let ends = times().reduce(f64::min).zip(times().reduce(f64::max));
                    let interval = ends.and_then(|(low, high)| interval(low, high, 0.95));
                    State { name, millis, interval }
                })
                .collect();
            let picture = svg(&title, &states);
            prop_assert_eq!(&picture, &svg(&title, &states), "the same for the same values");
            prop_assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
            // Names can open no tags: what is open is what this file wrote.
            for tag in ["g", "text", "style", "svg", "title"] {
                let opened = count(&picture, &format!("<{tag}>")) + count(&picture, &format!("<{tag} "));
                prop_assert_eq!(opened, count(&picture, &format!("</{tag}>")));
            }
            for attribute in ["x", "y", "cx", "cy", "width", "height", "d"] {
                for value in picture.split(&format!(" {attribute}=\"")).skip(1) {
                    let value = value.split('"').next().unwrap_or("");
                    prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{}", value);
                    prop_assert!(attribute != "height" || !value.starts_with('-'), "{}", value);
                }
            }
        }
    }
}
