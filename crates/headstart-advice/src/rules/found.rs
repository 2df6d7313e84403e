//! What a rule finds. [`super::advise`] makes advice of it.

use crate::advice::{Measure, Rule, Start};
use headstart::host::json_path::JsonPath;
use std::path::Path;

/// Advice without its share of the start.
pub(super) struct Found {
    pub rule: Rule,
    pub file: Option<JsonPath>,
    pub evidence: String,
    pub start: Start,
    pub gain_ns: f64,
    pub formula: String,
    pub command: String,
    pub note: String,
    pub lowers: Option<Measure>,
}

/// A file that a rule is about.
pub(super) fn json_path(path: &Path) -> Option<JsonPath> {
    Some(path.into())
}
