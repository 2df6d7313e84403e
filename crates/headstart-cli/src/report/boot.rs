//! The last recorded boot.

use crate::boot::analyze::look;
use headstart::boot::machine::Machine;
use headstart_view::build;
use headstart_view::render::report::{Drawn, Section};
use headstart_view::text_boot;
use std::path::Path;

/// Its section.
///
/// # Errors
/// None was recorded.
pub fn section() -> anyhow::Result<Section> {
    let analysis = look(&Machine::at(Path::new("/")), None)?;
    let picture = build::boot::picture(&analysis);
    Ok(Section {
        title: "Boot".into(),
        words: vec![text_boot::title(&analysis).into(), text_boot::summary(&analysis).into()],
        pictures: vec![Drawn::of(&picture)?],
        tables: picture.tables,
        ..Section::default()
    })
}
