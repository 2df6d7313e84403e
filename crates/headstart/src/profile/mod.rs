//! From events to a profile: which pages of which files a start touched,
//! when first, and how; and from inodes to paths.

pub mod code;
pub mod fold;
pub mod learn;
mod named;
pub mod neighbours;
pub mod pace;
pub mod resolve;
pub mod seen;
pub mod spans;
pub mod unseen;
