//! Kernel events.
