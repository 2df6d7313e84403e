//! Prefetching before a start: at a login, and where predicted.
//!
//! ```text
//! logins, starts ──▶ model ──▶ common ──▶ … a replay … ──▶ settle
//!                    what      the login                   which of it
//!                    follows?  pack                        was used
//! ```
//!
//! [`sessions`] finds logins among the files of logind. All of it is pure; `service/early` does the
//! rest.

pub mod common;
pub mod model;
pub mod sessions;
pub mod settle;
