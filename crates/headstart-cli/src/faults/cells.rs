//! Cells that the tables of `headstart faults` share.

use crate::output::{grouped, percent};
pub use headstart_view::units::nanos as time;

/// A number; nothing for 0.
pub fn some(count: u64) -> String {
    if count == 0 { String::new() } else { grouped(count) }
}

/// A part of the wall time; nothing if there was none.
pub fn of_wall(part: u64, wall: u64) -> String {
    if wall == 0 { String::new() } else { percent(part, wall) + " %" }
}
