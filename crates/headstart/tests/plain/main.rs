//! Tests of the library that need nothing of the machine: they may run side by side.
#![allow(clippy::disallowed_methods)] // Its files end.
#![allow(clippy::unwrap_used)] // All of it is test code.

mod fixtures;
mod layers;
mod pack_cost;
mod pack_format;
mod pack_memory;
mod words;
