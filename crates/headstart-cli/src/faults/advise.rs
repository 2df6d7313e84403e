//! Advice as text, and whether that of an earlier recording came true.

use crate::output::{self, JsonPath, counted, harmless, percent};
use anyhow::Context;
use headstart::host::contents;
use headstart_advice::advice::{Advice, Rule, Start};
use headstart_advice::earlier::{self, Checked, Earlier};
use headstart_advice::rules::SHOWN_SHARE;
use headstart_faults::document::Document;
use headstart_view::units::nanos as time;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// The document of a recording with advice.
#[derive(Serialize)]
pub struct Advised<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    advice: &'a [Advice],
    /// What the advice of an earlier document came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
}

impl<'a> Advised<'a> {
    /// Adds advice, and compares it with an earlier document; the second is an error in that.
    pub fn new(
        document: Document<'a>,
        advice: &'a [Advice],
        before: Option<&Value>,
    ) -> (Self, anyhow::Result<()>) {
        let mut all = Self { document, advice, earlier: None };
        let checked = before.map(|before| all.check(before));
        let checked = checked.transpose().map(|earlier| all.earlier = earlier);
        (all, checked)
    }

    fn check(&self, before: &Value) -> anyhow::Result<Earlier> {
        earlier::check(before, &serde_json::to_value(self)?).map_err(anyhow::Error::msg)
    }
}

/// Reads an earlier document, before the program runs.
///
/// # Errors
/// It can't be read, or has no advice.
pub fn earlier_document(path: &Path) -> anyhow::Result<Value> {
    let name = || format!("Can't use {}", output::shown(path));
    let document = serde_json::from_slice(&contents::bytes(path).with_context(name)?);
    let document = document.context("It is not JSON").with_context(name)?;
    // That it has advice.
    earlier::check(&document, &document).map_err(anyhow::Error::msg).with_context(name)?;
    Ok(document)
}

/// All advice, or that of which the gain matters; nothing where there is none.
pub fn text(advice: &[Advice], all: bool) -> String {
    let (shown, rest): (Vec<_>, Vec<_>) =
        advice.iter().partition(|advice| all || advice.share >= SHOWN_SHARE);
    let mut out = String::new();
    if !shown.is_empty() {
        out += "\nADVICE, by the time that it saves of a start like this; gains do not add up\n";
    }
    for advice in shown {
        let Advice { rule, file, evidence, gain_ns, share, formula, command, note, start, .. } =
            advice;
        let of = match start {
            Start::Recorded => "",
            Start::Cold => " of a cold start",
        };
        let share = percent((share * 1000.0) as u64, 1000);
        let gain = time(*gain_ns);
        out += &format!("{gain} ({share} %{of}): {}{evidence}\n", about(*rule, file.as_ref()));
        out += &format!("    gain: {formula}\n    do:   {command}\n");
        if !note.is_empty() {
            out += &format!("          ({note})\n");
        }
    }
    if !rest.is_empty() {
        let more = counted(rest.len() as u64, "more rule");
        let least = (SHOWN_SHARE * 100.0) as u64;
        out += &format!("{more} would save less than {least} % (-v shows all)\n");
    }
    out
}

/// What earlier advice came to: all, or that of which the gain mattered.
pub fn outcome(found: &Earlier, all: bool) -> String {
    let Earlier { wall_before_ns, wall_now_ns, advice } = found;
    let (before, now) = (time(*wall_before_ns), time(*wall_now_ns));
    let mut out = format!(
        "\nEARLIER ADVICE: the start took {before} then and takes {now} now; one recording of each tells \
         no chance from a change (headstart compare does)\n"
    );
    let shown = || advice.iter().filter(|checked| all || checked.share >= SHOWN_SHARE);
    for Checked { rule, file, predicted_ns, before_ns, now_ns, outcome, .. } in shown() {
        let predicted = time(*predicted_ns);
        out += &format!("{}predicted −{predicted}", about(*rule, file.as_ref()));
        if let (Some(before), Some(now)) = (before_ns, now_ns) {
            let sign = if now > before { "+" } else { "−" };
            let (change, before, now) = (time(before.abs_diff(*now)), time(*before), time(*now));
            out += &format!(", measured {sign}{change} ({before} to {now})");
        }
        out += &format!(": {}\n", outcome.words());
    }
    if shown().next().is_none() {
        out += "none would have saved much\n";
    }
    out
}

fn about(rule: Rule, file: Option<&JsonPath>) -> String {
    let rule = rule.name();
    file.map_or_else(
        || format!("{rule}: "),
        |file| format!("{rule} of {}: ", harmless(file.shown())),
    )
}
