//! The verbs of the command line.

use std::io::Write;

/// Prints a line; see [`say_line`].
macro_rules! say {
    ($($words:tt)*) => { crate::verb::say_line(format_args!($($words)*)) };
}

pub mod check;
pub mod cut;
pub mod down;
pub mod models;
pub mod remount;
pub mod serve;
pub mod stats;
pub mod status;
pub mod up;

/// Prints a line. A reader that has seen enough, as head(1), ends us without a
/// word.
fn say_line(line: std::fmt::Arguments<'_>) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}
