//! Boots: a recorded boot is cut into phases, and each phase is learned and prefetched as packs of
//! its own, one for each file system.
//!
//! ```text
//! record ──▶ phases, cut ──▶ learn ──▶ split ──▶ packs      what a boot touched
//!               └─────────────▶ history, timeline ──▶ analysis
//! packs ──▶ queue ──▶ replay ──▶ replay_records              the next boot
//! ```
//!
//! Pure: [`phases`] has the phases and their ends, [`cut`] cuts a trace into phases, [`split`] and
//! [`pack_name`] divide packs by file system. [`across_phases`] corrects what one phase can't know
//! of the others, [`own_or_shipped`] selects between a learned pack and one of the image.
//! [`history`] and [`timeline`] (with [`bins`] and [`unit_times`]) are what is kept of each boot,
//! [`analysis`] is what is shown of that.
//!
//! Drivers: [`record`] and [`replay`] (with `queue`), [`machine`] for paths and configuration,
//! [`packs`] for the files. [`first_boot`] reads the recorder before anything was learned,
//! [`root_copies`] keeps packs readable until `/var` is mounted, [`switch_root`] is for the
//! initramfs. [`systemd`] and [`logins`] report the ends of phases, [`install`] writes the units.

pub mod across_phases;
pub mod analysis;
pub mod bins;
pub mod cut;
pub mod first_boot;
pub mod history;
pub mod install;
mod learn;
pub mod logins;
pub mod machine;
pub mod mounted;
pub mod own_or_shipped;
pub mod pack_name;
pub mod packs;
pub mod phases;
mod queue;
pub mod record;
pub mod replay;
pub mod replay_records;
pub mod root_copies;
pub mod split;
pub mod switch_root;
pub mod systemd;
#[cfg(test)]
mod test_packs;
pub mod timeline;
pub mod unit_times;
