//! Draws any [`crate::picture::Picture`]: as a page to look around in, as an image for documents, and as
//! data. Knows nothing of what the rows are.

mod bars;
pub mod html;
pub mod json;
mod marks;
mod place;
pub mod svg;
mod xml;
