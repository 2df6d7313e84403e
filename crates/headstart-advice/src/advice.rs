//! Advice as a value: what was seen, what to do, what it gains, and by which figures of another
//! recording it is checked. Decides nothing.

use headstart::host::json_path::JsonPath;
use headstart_faults::tables::Segment;
use serde::{Deserialize, Serialize};

/// Which rule it is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// [`crate::rules::prefetch`]
    Prefetch,
    /// [`crate::rules::backward_text`]
    BackwardText,
    /// [`crate::rules::scattered_text`]
    ScatteredText,
    /// [`crate::rules::relocations`]
    Relocations,
    /// [`crate::rules::large_folios`]
    LargeFolios,
    /// [`crate::rules::huge_pages`]
    HugePages,
    /// [`crate::rules::readahead`]
    Readahead,
    /// [`crate::rules::small_files`]
    SmallFiles,
    /// [`crate::rules::wasted`]
    Wasted,
}

impl Rule {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Prefetch,
        Self::BackwardText,
        Self::ScatteredText,
        Self::Relocations,
        Self::LargeFolios,
        Self::HugePages,
        Self::Readahead,
        Self::SmallFiles,
        Self::Wasted,
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::BackwardText => "backward-text",
            Self::ScatteredText => "scattered-text",
            Self::Relocations => "relocations",
            Self::LargeFolios => "large-folios",
            Self::HugePages => "huge-pages",
            Self::Readahead => "readahead",
            Self::SmallFiles => "small-files",
            Self::Wasted => "wasted",
        }
    }
}

/// Which start would be faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// One like that which was recorded.
    Recorded,
    /// One with a cold cache; the recorded one was none, or that is not known.
    Cold,
}

/// What to do, why, and what it gains.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The rule.
    pub rule: Rule,
    /// The file that it is about; none for the start as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<JsonPath>,
    /// What was seen, with its figures: a sentence without its full stop.
    pub evidence: String,
    /// Which start it makes faster.
    pub start: Start,
    /// By how much, in ns.
    pub gain_ns: u64,
    /// The same as a share of that start, 0 to 1.
    pub share: f64,
    /// How the gain was computed.
    pub formula: String,
    /// What does it, for a shell.
    pub command: String,
    /// What else to know of that; empty if nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it would lower, if page faults or waits show that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowers: Option<Measure>,
}

/// The time of some faults of a recording, or of some waits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measure {
    /// Of which faults.
    pub faults: Faults,
    /// Of this file only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<JsonPath>,
    /// Of this segment only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
    /// Of this memory only, such as `[heap]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<String>,
    /// Not of faults, but of these kinds of waits of the first thread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
}

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Faults {
    /// Minor and major ones.
    #[default]
    All,
    /// Minor ones.
    Minor,
    /// Major ones.
    Major,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_same_name_in_json() {
        for rule in Rule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
        }
    }
}
