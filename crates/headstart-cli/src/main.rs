//! The command `headstart`: one file per verb; the only place that prints.
#![forbid(unsafe_code)]

fn main() {}
