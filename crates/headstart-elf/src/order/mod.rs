//! The order in which a start calls the functions of a program, and what the program's code
//! would cost if it lay in that order.
//!
//! ```text
//! program ──▶ code ──▶ follow ──▶ document ──▶ merge ──▶ predict   pages now and after
//!             where     who is    what is        of        │
//!             functions called    kept         several     └────▶ write    order files
//!             begin     first                   runs
//! ```
//!
//! [`follow`] and [`read`] are drivers: they run a program and read files. All else is pure.
//! Data is not ordered, only code.

pub mod code;
pub mod document;
pub mod follow;
pub mod merge;
pub mod predict;
pub mod read;
pub mod write;
