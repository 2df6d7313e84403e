//! What clients of the socket may say, and what they get.
//!
//! ```text
//! a line ──▶ request ──▶ rights ──▶ answer ──▶ a JSON document
//! ```
//!
//! All of it is pure; `service/socket` does the rest.

pub mod answer;
pub mod metrics;
pub mod request;
