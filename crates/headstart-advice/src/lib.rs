//! What to do about a start: rules over what was recorded of it, each with its figures, the time
//! that it would gain, and the command that does it.
//!
//! ```text
//! recording ──▶ observed ──┐
//! pack, device model,      ├──▶ facts ──▶ rules ──▶ advice ──▶ earlier
//! settings of the machine ─┘                                   did it come true?
//! ```
//!
//! All is pure: the command reads what [`facts::Facts`] has. Each rule is a file in [`rules`];
//! `doc/advice.md` has their formulas and where their constants come from. There is no advice
//! without a figure.
#![forbid(unsafe_code)]

pub mod advice;
pub mod earlier;
pub mod facts;
pub mod observed;
pub mod rules;
mod text;
