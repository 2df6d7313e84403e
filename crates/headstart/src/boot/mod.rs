//! Boots as starts: one is recorded, cut into phases, and each phase learned and read
//! ahead as packs of its own, one for each file system.
//!
//! ```text
//! record ──▶ phases, cut ──▶ learn ──▶ split ──▶ packs      what a boot touched
//!               └─────────────▶ history, timeline ──▶ analysis
//! packs ──▶ choose ──▶ queue ──▶ replay ──▶ replayed         the next boot
//! ```
//!
//! [`phases`] (which there are, and when each was over), [`cut`] (a trace into phases),
//! [`split`] and [`pack_name`] (packs by file system), [`choose`] (what of a pack is read),
//! [`origin`] (of which pack), `away` (of which file systems packs are forgotten),
//! [`history`] (what is kept of each boot), [`timeline`] (what is kept of it over time, with
//! [`bins`] and [`unit_times`]) and [`analysis`] (what is shown of that) are pure. The
//! drivers are [`record`] and [`replay`] (by its `queue`), with [`machine`] (where things
//! are, and whether we are wanted), [`packs`] (which there are), [`first`] (what is read
//! before anything was learned), [`early`] (where packs are until `/var` is mounted),
//! [`systemd`] and [`logins`] (when phases are over) and [`install`] (the units).

pub mod analysis;
mod away;
pub mod bins;
pub mod choose;
pub mod cut;
pub mod early;
pub mod first;
pub mod history;
pub mod install;
mod learn;
pub mod logins;
pub mod machine;
pub mod mounted;
pub mod origin;
pub mod pack_name;
pub mod packs;
pub mod phases;
mod queue;
pub mod record;
pub mod replay;
pub mod replayed;
pub mod root;
pub mod split;
pub mod systemd;
#[cfg(test)]
mod test_packs;
pub mod timeline;
pub mod unit_times;
