//! The command, for every test program.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// `headstart` with these arguments.
pub fn headstart<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headstart")).args(args).output().unwrap()
}
