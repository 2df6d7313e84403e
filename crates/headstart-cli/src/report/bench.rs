//! Results of a benchmark. Pure.

use anyhow::bail;
use headstart_bench::document::{Results, read};
use headstart_bench::stats::Interval;
use headstart_bench::stats::summary::{Summary, summarise};
use headstart_view::build::runs;
use headstart_view::picture::{Table, Text};
use headstart_view::render::report::{Drawn, Section};
use headstart_view::units::grouped;
use serde_json::Value;

/// The section of a result file.
///
/// # Errors
/// It is no result of a benchmark.
pub fn section(bytes: &[u8]) -> anyhow::Result<Section> {
    let Results::Benchmark(found) = read(bytes)? else {
        bail!("It has page faults: give it as --faults");
    };
    let document: Value = serde_json::from_slice(bytes)?;
    let words = document["command"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let command = words.collect::<Vec<_>>().join(" ");
    let times: Vec<(&str, Vec<f64>)> = found
        .counters
        .iter()
        .filter_map(|(name, values)| {
            let state = name.strip_suffix("time_s")?.trim_end();
            Some((state, values.iter().map(|seconds| 1000.0 * seconds).collect()))
        })
        .collect();
    let states: Vec<runs::State<'_>> = times
        .iter()
        .map(|(name, millis)| runs::State { name, millis, interval: interval(millis) })
        .collect();
    let counters = found.counters.iter().filter_map(|(name, values)| {
        let Summary { n, mean, median, min, max, .. } = summarise(values)?;
        let figures = [mean, median, min, max].map(|figure| grouped(figure, decimals(figure)));
        let cells = [name.clone(), n.to_string()].into_iter().chain(figures);
        Some(cells.map(Text::from).collect())
    });
    let head = ["counter", "n", "mean", "median", "least", "most"];
    let warnings = document["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let picture = (!states.is_empty()).then(|| runs::picture(&command, &states));
    Ok(Section {
        title: "Benchmark".into(),
        words: std::iter::once(&*command).chain(warnings).map(Text::from).collect(),
        tables: vec![Table::new("Counters", &head, counters, usize::MAX)],
        pictures: picture.iter().map(Drawn::of).collect::<Result<_, _>>()?,
        ..Section::default()
    })
}

fn interval(millis: &[f64]) -> Option<runs::Interval> {
    let of_median = summarise(millis)?.median_interval?;
    let Interval { low, high, confidence } = of_median;
    Some(runs::Interval { low, high, confidence, is_confident: of_median.is_confident() })
}

/// Four digits, or all before the point.
fn decimals(x: f64) -> usize {
    let digits = x.abs().log10().floor();
    if digits.is_finite() { (3.0 - digits).clamp(0.0, 6.0) as usize } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_a_benchmark_is_drawn_and_its_counters_are_listed() {
        let json =
            br#"{"schema": "headstart/bench/3", "command": ["a"], "warnings": ["busy"], "arms": [
            {"name": "cold", "runs": [{"wall_s": 3.0, "major_faults": 7}, {"wall_s": 4.0}]},
            {"name": "hot", "runs": [{"wall_s": 1.0}, {"wall_s": 1.5}]}]}"#;
        let section = section(json).unwrap();
        let names: Vec<_> = section.tables[0].rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names, ["cold major_faults", "cold time_s", "hot time_s"]);
        assert_eq!(section.tables[0].rows[1][3].as_str(), "3.500");
        assert_eq!((section.words.len(), section.pictures.len()), (2, 1));
        assert!(section.pictures[0].image.contains("cold"));
    }

    #[test]
    fn page_faults_are_no_benchmark() {
        let error = section(br#"{"schema": "headstart/faults/1"}"#).unwrap_err();
        assert!(error.to_string().contains("--faults"));
    }
}
