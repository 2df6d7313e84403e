//! Prefetching before a start: at a login, and where predicted.
//!
//! ```text
//! logins, starts ──▶ model ──▶ common ─────────▶ … a replay … ──▶ settle
//!                    what      the login pack                    which of it
//!                    follows?                                    was used
//!                      └──────▶ gain, conditions ▶ … a replay …
//!                               is it predicted?
//! ```
//!
//! [`sessions`] finds logins among the files of logind. All of it is pure; `service/early` does the
//! rest.

pub mod common;
pub mod conditions;
pub mod gain;
pub mod model;
pub mod sessions;
pub mod settle;
