//! The accesses that a picture of a recording was made of, so that another one can be made of them. Of
//! files that shared a lane the names are gone.

use super::accesses::{Access, Accesses, How, Place, kind};
use super::layout::column;
use crate::picture::{Column, Picture};

/// Titles of the columns of accesses, in their order.
const TITLES: [&str; 8] = ["at", "took", "file", "offset", "", "thread", "mapping", ""];

/// The accesses; none if the picture is of something else.
pub fn accesses(picture: &Picture) -> Option<Accesses> {
    let frame = picture.frames.first()?;
    let titles = frame.columns.iter().map(|column| column.title.as_str());
    // One of two recordings has two frames of these.
    let is_one = picture.frames.get(1).is_none_or(|next| next.columns.len() != TITLES.len());
    if !titles.eq(TITLES) || !is_one {
        return None;
    }
    let at = |number: usize| frame.columns.get(number);
    let value = |number: usize, row: usize| {
        at(number).and_then(|column| Some(column.values.get(row)?.saturating_mul(column.scale)))
    };
    let event = |row: usize| {
        let number = |column: usize| u32::try_from(value(column, row)?).ok();
        Some(Access {
            time_ns: value(column::TIME, row)?,
            latency_ns: value(column::TOOK, row)?,
            how: how(value(column::KIND, row)?)?,
            place: number(column::PLACE)?,
            part: number(column::PART)?,
            offset: value(column::OFFSET, row)?,
            owner: number(column::OWNER)?,
        })
    };
    let labels = |number: usize| {
        let labels = at(number).map(|column: &Column| &column.labels);
        labels.into_iter().flatten().map(ToString::to_string)
    };
    let called = picture.tables.first().and_then(|table| table.head.get(1));
    Some(Accesses {
        title: picture.title.to_string(),
        summary: picture.summary.iter().map(ToString::to_string).collect(),
        called: called.map_or_else(|| "accesses".to_owned(), ToString::to_string),
        length_ns: picture.views.first()?.x.high as u64,
        page_size: at(column::OFFSET)?.scale,
        places: labels(column::PLACE).map(|name| place(picture, name)).collect(),
        parts: labels(column::PART).collect(),
        owners: labels(column::OWNER).collect(),
        events: (0..frame.rows).map(event).collect::<Option<_>>()?,
    })
}

fn how(number: u64) -> Option<How> {
    [How::Minor, How::Unended, How::Called, How::Waited]
        .into_iter()
        .find(|how| kind::of(*how) == number)
}

/// A place with the sections that its view shows.
fn place(picture: &Picture, name: String) -> Place {
    let subjects = picture.views.get(1).into_iter().flat_map(|view| &view.subjects);
    let subject = subjects.into_iter().find(|subject| subject.name.as_str() == name);
    let panels = subject.into_iter().flat_map(|subject| &subject.panels);
    let bands = panels.flat_map(|panel| &panel.bands);
    let bands = bands.map(|band| (band.from as u64, band.to as u64, band.name.to_string()));
    Place { bands: bands.collect(), name }
}
