//! Boots as starts: one is recorded, cut into phases, and each phase learned and read
//! ahead as a pack of its own.
//!
//! [`phases`] (which there are, and when each was over), [`cut`] (a trace into phases),
//! [`choose`] (what of a pack is read) and [`history`] (what is kept of each boot) are
//! pure. The drivers are [`record`] and [`replay`], with [`machine`] (where things are,
//! and whether we are wanted), [`systemd`] and [`logins`] (when phases are over) and
//! [`install`] (the units).

pub mod choose;
pub mod cut;
pub mod history;

pub mod install;
mod learn;
pub mod logins;
pub mod machine;
pub mod mounted;
pub mod phases;
pub mod record;
pub mod replay;
pub mod replayed;
pub mod root;
pub mod systemd;
