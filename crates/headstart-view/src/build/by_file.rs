//! One file: offset against time.

use super::accesses::Accesses;
use super::layout::{Layout, bands, column};
use crate::picture::{Panel, Subject, View, Y};

/// Each file is a subject, those that took longest first.
pub(super) fn view(accesses: &Accesses, layout: &Layout) -> View {
    let subject = |(lane, seen): (u64, &super::layout::Seen)| {
        let place = accesses.places.get(seen.number? as usize)?;
        let axis = seen.axis(0);
        let mut panel = Panel::new("", Y::Value(axis.clone()));
        panel.bands = bands(&place.bands, &axis);
        panel.marks = Some(layout.marks(0, column::OFFSET, Some((column::PLACE, lane))));
        Some(Subject {
            name: (&place.name).into(),
            summary: seen.summary(&accesses.called).into(),
            x_high: None,
            panels: vec![panel],
        })
    };
    View {
        title: "One file".into(),
        help: format!(
            "A bar is an access: its height is the offset in the file, its length the time that it \
               took. High, striped, red bars waited for the disk. Sections of ELF files are named at \
               the right.{}",
            Layout::cut_in_words(&layout.places, "files")
        )
        .into(),
        x: layout.time(),
        subjects: Layout::longest(&layout.places).into_iter().filter_map(subject).collect(),
    }
}
