//! From events to a profile: which pages of which files a start touched,
//! when first, and how; and from inodes to paths.

pub mod fold;
pub mod spans;
