//! The statistics against scipy, as properties, and by simulation.

mod properties;
mod scipy;
mod simulation;
