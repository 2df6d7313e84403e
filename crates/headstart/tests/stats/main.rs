//! The statistics against scipy.

mod scipy;
