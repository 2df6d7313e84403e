//! The command, for every test program.

use serde_json::Value;
use std::ffi::OsStr;
use std::process::{Command, Output};

/// `headstart` with these arguments.
pub fn headstart<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart")).args(args).output().unwrap()
}

/// The JSON document that `headstart` prints, whatever its exit status.
pub fn json<S: AsRef<OsStr>>(args: &[S]) -> Value {
    let output = headstart(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}
