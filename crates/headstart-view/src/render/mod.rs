//! Draws any [`crate::picture::Picture`]: as a page to look around in, as an image for documents, and as
//! data; and reports, which have several. Knows nothing of what the rows are.

mod bars;
pub mod html;
pub mod json;
mod marks;
mod place;
pub mod report;
pub mod svg;
mod xml;
