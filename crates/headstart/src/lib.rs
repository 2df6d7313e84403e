//! Learns which file pages a start touches and reads them ahead of the next.
//!
//! The folders are the data flow: [`trace`] (kernel events), [`profile`] (who
//! touched what, when), [`pack`] (the file that keeps it), [`replay`] (into
//! the page cache), [`outcome`] (did it help?); below it [`host`] (what the machine says of
//! itself); beside it [`cache`] (what is in the page cache), [`boot`] (all of it for the
//! start of the machine) and [`service`] (for those of systemd). Parsers and planners take
//! values and return values; the drivers that do I/O are named as such.
#![forbid(unsafe_code)]

pub mod boot;
pub mod cache;
pub mod doctor;
pub mod host;
pub mod outcome;
pub mod pack;
pub mod profile;
pub mod replay;
pub mod service;
pub mod trace;
