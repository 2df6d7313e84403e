//! The statistics against scipy, as properties, and by simulation.
#![allow(clippy::disallowed_methods)] // Its files end.

mod properties;
mod scipy;
mod simulation;
