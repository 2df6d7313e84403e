//! The service: threads around the pure parts.
//!
//! ```text
//! run ──▶ arrival ──▶ watcher ──▶ known slow programs
//! execs   decides     looks at
//!            │        /proc
//!            └──────▶ handle ──▶ prefetch, record (tracer), learn
//! hot: whether a program that was always hot is cold now
//! early, replays (sessions): login packs, predictions; folios: pinned programs
//! socket, keeper: control, state file, weekly line
//! ```
//!
//! Only [`run`]'s own thread reads execs and feeds the watchdog; it opens no file. Whatever may wait
//! for a disk or a file server is done in other threads, of which there is a bounded number.

mod arrival;
mod early;
mod folios;
mod forked;
mod found;
mod handle;
mod hot;
mod keeper;
mod latency;
mod looks;
mod machine;
mod pool;
mod replays;
pub mod run;
mod sessions;
mod shared;
mod socket;
mod tracer;
mod trees;
mod watcher;
