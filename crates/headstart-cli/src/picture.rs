//! `--picture FILE`: a picture in the form that the end of its name says.

use crate::output;
use crate::results::{self, ResultKind};
use anyhow::bail;
use headstart_view::picture::Picture;
use headstart_view::render;
use std::path::Path;

/// A form of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A page to look around in.
    Html,
    /// An image.
    Svg,
    /// The data.
    Json,
}

impl Form {
    /// That of a file.
    ///
    /// # Errors
    /// Its name has another end.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("html") => Ok(Self::Html),
            Some("svg") => Ok(Self::Svg),
            Some("json") => Ok(Self::Json),
            _ => bail!(
                "{}: a picture is a page, an image or data: end its name in .html, .svg or .json",
                output::shown(path)
            ),
        }
    }

    /// How all pictures of this form begin.
    pub fn begin(self) -> &'static str {
        match self {
            Self::Html => render::html::BEGIN,
            Self::Svg => render::svg::BEGIN,
            Self::Json => render::json::BEGIN,
        }
    }

    /// A picture in this form.
    ///
    /// # Errors
    /// It has no form in JSON.
    pub fn text(self, picture: &Picture) -> anyhow::Result<String> {
        Ok(match self {
            Self::Html => render::html::html(picture)?,
            Self::Svg => render::svg::svg(picture),
            Self::Json => render::json::json(picture)?,
        })
    }
}

/// Fails as [`write`] will: before what takes a while.
///
/// # Errors
/// The name has no end that is known, or what is there is neither empty nor an earlier picture.
pub fn check(path: &Path, force: bool) -> anyhow::Result<()> {
    results::check(path, ResultKind::Picture(Form::of(path)?), force)
}

/// Writes a picture; with `force`, whatever is there.
///
/// # Errors
/// Those of [`check`], or the file can't be written.
pub fn write(path: &Path, picture: &Picture, force: bool) -> anyhow::Result<()> {
    let form = Form::of(path)?;
    results::write(path, &form.text(picture)?, ResultKind::Picture(form), force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_says_the_form_and_each_begins_as_it_says() {
        for (name, form) in [
            ("a.html", Some(Form::Html)),
            ("a.b.svg", Some(Form::Svg)),
            ("/tmp/x.json", Some(Form::Json)),
            ("a.png", None),
            ("html", None),
            (".svg", None),
        ] {
            assert_eq!(Form::of(Path::new(name)).ok(), form, "{name}");
        }
        for form in [Form::Html, Form::Svg, Form::Json] {
            assert!(form.text(&Picture::default()).unwrap().starts_with(form.begin()), "{form:?}");
        }
    }
}
