//! From a pack into the page cache.
//!
//! [`plan`] decides what is read in which order (pure), [`engine`] carries it
//! out beside the program, [`device`] knows what one request may ask for and
//! [`budget`] how much memory may be filled, and [`metadata`] finds block devices.

pub mod budget;
pub mod device;
pub mod engine;
pub mod metadata;
pub mod plan;
