//! A picture as one JSON document; `doc/pictures.md` describes it.

use crate::picture::{Picture, SCHEMA};
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    picture: &'a Picture,
}

/// How all of them begin.
pub const BEGIN: &str = "{\"schema\":\"headstart/picture/1\",\"title\":";

/// The document, with a line end.
///
/// # Errors
/// None that is known: all of a picture has a form in JSON.
pub fn json(picture: &Picture) -> serde_json::Result<String> {
    let mut text = serde_json::to_string(&Document { schema: SCHEMA, picture })?;
    text.push('\n');
    Ok(text)
}
