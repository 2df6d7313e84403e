//! The command, and what it prints as JSON.

mod run;

pub use run::headstart;
use serde_json::Value;
use std::ffi::OsStr;

/// The JSON document that `headstart` prints, whatever its exit status.
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Value {
    let output = headstart(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}
