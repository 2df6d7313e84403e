//! The figures in the text format of Prometheus. Pure.
//!
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>. Names of programs are
//! not in it: there may be any number, and of all users.

use super::answer::Status;
use std::fmt::Write;

/// The text.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    let counters = serde_json::to_value(status.counters).unwrap_or_default();
    for (name, value) in counters.as_object().into_iter().flatten() {
        line(&mut out, &format!("{name}_total"), "counter", value);
    }
    let week = &status.week;
    for (name, value) in [
        ("week_saved_seconds", week.saved_us as f64 / 1e6),
        ("week_read_bytes", week.read_bytes as f64),
        ("week_judged_bytes", week.judged_bytes as f64),
        ("week_measured_bytes", week.measured_bytes as f64),
        ("week_wasted_bytes", week.wasted_bytes as f64),
        ("programs", status.programs as f64),
        ("recordings", status.recording as f64),
        ("in_flight_bytes", status.in_flight_bytes as f64),
        ("uptime_seconds", status.uptime_s as f64),
        ("paused", f64::from(u8::from(status.paused_s.is_some()))),
        ("learns", f64::from(u8::from(status.not_learning.is_none()))),
    ] {
        line(&mut out, name, "gauge", value);
    }
    out
}

fn line(out: &mut String, name: &str, kind: &str, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "# TYPE headstartd_{name} {kind}\nheadstartd_{name} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;

    #[test]
    fn each_figure_has_its_type_and_one_value() {
        let counters = Counters { execs: 7, ..Counters::default() };
        let status = Status { counters, paused_s: Some(0), ..Status::default() };
        let text = text(&status);
        assert!(text.contains("# TYPE headstartd_execs_total counter\nheadstartd_execs_total 7\n"));
        assert!(text.contains("# TYPE headstartd_paused gauge\nheadstartd_paused 1\n"));
        for pair in text.lines().collect::<Vec<_>>().chunks(2) {
            let name = pair[0].split(' ').nth(2).unwrap();
            let (of, value) = pair[1].split_once(' ').unwrap();
            assert_eq!(name, of);
            assert!(value.parse::<f64>().is_ok(), "{value}");
        }
    }
}
