//! Whether advice of an earlier recording came true: what page faults took then and take now, against
//! what was predicted. Reads documents of `headstart faults --json`; opens no files.

use crate::advice::{Faults, Measure, Rule, Start};
use headstart::host::json_path::JsonPath;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The change counts as the predicted one from this part of it on.
const CAME_TRUE: f64 = 0.5;
/// And as a part of it from this on.
const IN_PART: f64 = 0.2;

/// How the measured change compares with the predicted one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// At least half of it.
    CameTrue,
    /// At least a fifth.
    InPart,
    /// Less, or the opposite.
    NotSeen,
    /// Page faults of this recording don't tell: the advice is about cold starts, or the file is in one
    /// of both alone.
    Unknown,
}

impl Outcome {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::CameTrue => "came true",
            Self::InPart => "came true in part",
            Self::NotSeen => "not seen",
            Self::Unknown => "can't be checked",
        }
    }
}

/// Earlier advice, and what was measured since.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Checked {
    /// The rule.
    pub rule: Rule,
    /// The file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<JsonPath>,
    /// By how much the start should be faster, in ns.
    pub predicted_ns: u64,
    /// The same as a share of that start, 0 to 1.
    pub share: f64,
    /// What the faults that the advice is about took then, in ns.
    pub before_ns: Option<u64>,
    /// What they take now.
    pub now_ns: Option<u64>,
    /// How that compares.
    pub outcome: Outcome,
}

/// All earlier advice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Earlier {
    /// How long the start took then, in ns.
    pub wall_before_ns: u64,
    /// And now.
    pub wall_now_ns: u64,
    /// Each, in its order.
    pub advice: Vec<Checked>,
}

/// What is read of advice.
#[derive(Deserialize)]
struct Given {
    rule: Rule,
    #[serde(default)]
    file: Option<JsonPath>,
    start: Start,
    gain_ns: u64,
    share: f64,
    #[serde(default)]
    lowers: Option<Measure>,
}

/// Compares two documents, of which the earlier one has advice.
///
/// # Errors
/// A sentence: what the earlier one lacks.
pub fn check(before: &Value, now: &Value) -> Result<Earlier, String> {
    let is_recording = |schema: &str| schema.starts_with("headstart/faults/");
    if !before["schema"].as_str().is_some_and(is_recording) {
        return Err("This is no result of headstart faults --json".to_owned());
    }
    let given =
        before.get("advice").ok_or("This recording has no advice; it is of an older headstart")?;
    let given = Vec::<Given>::deserialize(given)
        .map_err(|error| format!("The advice of this recording can't be read: {error}"))?;
    let wall = |document: &Value| document["wall_ns"].as_u64().unwrap_or(0);
    let checked = |given: Given| {
        let measure = given.lowers.as_ref().filter(|_| given.start == Start::Recorded);
        let of = |document| measure.and_then(|measure| time_ns(document, measure));
        let (before_ns, now_ns) = (of(before), of(now));
        Checked {
            outcome: outcome(given.gain_ns, before_ns, now_ns),
            rule: given.rule,
            file: given.file,
            predicted_ns: given.gain_ns,
            share: given.share,
            before_ns,
            now_ns,
        }
    };
    Ok(Earlier {
        wall_before_ns: wall(before),
        wall_now_ns: wall(now),
        advice: given.into_iter().map(checked).collect(),
    })
}

fn outcome(predicted: u64, before: Option<u64>, now: Option<u64>) -> Outcome {
    let (Some(before), Some(now)) = (before, now) else { return Outcome::Unknown };
    let part = (before as f64 - now as f64) / predicted.max(1) as f64;
    if part >= CAME_TRUE {
        Outcome::CameTrue
    } else if part >= IN_PART {
        Outcome::InPart
    } else {
        Outcome::NotSeen
    }
}

/// What these faults took; `None` if nothing of the file is in the document, which may then have
/// another name.
fn time_ns(document: &Value, measure: &Measure) -> Option<u64> {
    let time = |row: &Value| {
        let of = |kind: &str| row[kind]["time_ns"].as_u64().unwrap_or(0);
        match measure.faults {
            Faults::All => of("minor").saturating_add(of("major")),
            Faults::Minor => of("minor"),
            Faults::Major => of("major"),
        }
    };
    if !measure.waits.is_empty() {
        let waits = document.pointer("/waits/main_thread/waits")?;
        let of = |kind: &String| waits[kind]["time_ns"].as_u64().unwrap_or(0);
        return Some(measure.waits.iter().map(of).fold(0, u64::saturating_add));
    }
    if measure.file.is_none() && measure.memory.is_empty() {
        return Some(time(document.get("total")?));
    }
    let places = document["places"].as_array()?;
    let is_of_file = |place: &&Value| match &measure.file {
        Some(file) => JsonPath::deserialize(*place).is_ok_and(|path| path == *file),
        None => true,
    };
    let mut of_file = places.iter().filter(is_of_file).peekable();
    of_file.peek()?;
    let is_meant = |place: &&Value| {
        let segment = measure.segment.map(|segment| segment.name());
        segment.is_none_or(|segment| place["segment"] == segment)
            && (measure.memory.is_empty()
                || measure.memory.iter().any(|name| place["memory"] == name.as_str()))
    };
    Some(of_file.filter(is_meant).map(time).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_faults::tables::Segment;
    use serde_json::json;
    use std::path::Path;

    fn document(places: Value, advice: Value) -> Value {
        let total = json!({"minor": {"time_ns": 10}, "major": {"time_ns": 1000}});
        json!({"schema": "headstart/faults/1", "wall_ns": 5000, "total": total, "places": places,
               "advice": advice})
    }

    #[test]
    fn the_faults_that_the_advice_is_about_are_compared() {
        let place = |segment: &str, minor: u64, major: u64| {
            json!({"path": "/x", "segment": segment, "minor": {"time_ns": minor},
                   "major": {"time_ns": major}})
        };
        let heap = |minor: u64| json!({"memory": "[heap]", "minor": {"time_ns": minor}});
        let before = json!([place("text", 7, 900), place("data", 500, 50), heap(400)]);
        let text = Measure {
            faults: Faults::Major,
            file: Some(Path::new("/x").into()),
            segment: Some(Segment::Text),
            ..Measure::default()
        };
        let file = Measure { file: Some(Path::new("/x").into()), ..Measure::default() };
        let memory = Measure { memory: vec!["[heap]".into()], ..Measure::default() };
        let advice = |measure: &Measure, start| json!([{"rule": "prefetch", "start": start, "gain_ns": 800, "share": 0.16, "lowers": measure}]);
        for (name, measure, start, now, outcome, times) in [
            (
                "text",
                &text,
                "recorded",
                json!([place("text", 7, 300)]),
                Outcome::CameTrue,
                Some((900, 300)),
            ),
            (
                "half",
                &text,
                "recorded",
                json!([place("text", 7, 500)]),
                Outcome::CameTrue,
                Some((900, 500)),
            ),
            (
                "less",
                &text,
                "recorded",
                json!([place("text", 0, 700)]),
                Outcome::InPart,
                Some((900, 700)),
            ),
            (
                "worse",
                &text,
                "recorded",
                json!([place("text", 0, 1700)]),
                Outcome::NotSeen,
                Some((900, 1700)),
            ),
            (
                "of it all",
                &file,
                "recorded",
                json!([place("data", 1, 1)]),
                Outcome::CameTrue,
                Some((1457, 2)),
            ),
            ("memory", &memory, "recorded", json!([]), Outcome::Unknown, None),
            (
                "no memory left",
                &memory,
                "recorded",
                json!([place("text", 1, 1)]),
                Outcome::CameTrue,
                Some((400, 0)),
            ),
            ("a file that is gone", &text, "recorded", json!([heap(1)]), Outcome::Unknown, None),
            (
                "of cold starts",
                &text,
                "cold",
                json!([place("text", 7, 300)]),
                Outcome::Unknown,
                None,
            ),
        ] {
            let before = document(before.clone(), advice(measure, start));
            let found = check(&before, &document(now, json!([]))).unwrap();
            let [checked] = found.advice.as_slice() else { panic!("{name}: {found:?}") };
            assert_eq!(checked.outcome, outcome, "{name}: {checked:?}");
            assert_eq!(checked.before_ns.zip(checked.now_ns), times, "{name}");
        }
    }

    #[test]
    fn waits_are_compared_where_both_recordings_have_them() {
        let measure = Measure { waits: vec!["read".into(), "open".into()], ..Measure::default() };
        let advice = json!([{"rule": "prefetch", "start": "recorded", "gain_ns": 800,
                             "share": 0.16, "lowers": measure}]);
        let waits = |ns: u64| {
            let mut document = document(json!([]), advice.clone());
            let waits = json!({"read": {"time_ns": ns}, "timer": {"time_ns": 7}});
            document["waits"] = json!({"main_thread": {"waits": waits}});
            document
        };
        let outcome = |now: &Value| check(&waits(900), now).unwrap().advice[0].clone();
        let found = outcome(&waits(100));
        assert_eq!((found.before_ns, found.now_ns), (Some(900), Some(100)));
        assert_eq!(found.outcome, Outcome::CameTrue);
        assert_eq!(outcome(&document(json!([]), json!([]))).outcome, Outcome::Unknown);
    }

    #[test]
    fn a_document_without_advice_is_refused() {
        let now = document(json!([]), json!([]));
        for (before, message) in [
            (json!({"schema": "headstart/bench/3"}), "no result of headstart faults"),
            (json!({"schema": "headstart/faults/1"}), "an older headstart"),
            (document(json!([]), json!([{"rule": "luck"}])), "can't be read: "),
        ] {
            let error = check(&before, &now).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        assert_eq!(check(&now, &now).unwrap().advice, []);
    }
}
