//! One mapping: the order in which its pages are accessed, and in which direction.

use super::accesses::Accesses;
use super::layout::{Layout, Seen, bands, column};
use crate::picture::{Axis, Marks, Panel, Subject, Unit, View, Y};
use crate::units::grouped;
use std::collections::HashMap;

/// Each mapping is a subject, those that took longest first.
pub(super) fn view(accesses: &Accesses, layout: &Layout) -> View {
    // All of a mapping is in one place.
    let places: HashMap<u32, u32> =
        accesses.events.iter().map(|event| (event.part, event.place)).collect();
    let subject = |(lane, seen): (u64, &Seen)| {
        let number = seen.number?;
        let name = accesses.parts.get(number as usize)?;
        let axis = seen.axis(seen.low);
        let mut panel = Panel::new("", Y::Value(axis.clone()));
        let place = places.get(&number).and_then(|place| accesses.places.get(*place as usize));
        panel.bands = place.map_or_else(Vec::new, |place| bands(&place.bands, &axis));
        panel.marks = Some(Marks {
            frame: 0,
            x: None,
            length: None,
            y: column::OFFSET,
            kind: column::DIRECTION,
            only: Some((column::PART, lane)),
        });
        let backwards = format!(
            "{}; {} of {} steps go backwards",
            seen.summary(&accesses.called),
            grouped(seen.backwards as f64, 0),
            grouped(seen.count.saturating_sub(1) as f64, 0)
        );
        Some(Subject {
            name: name.into(),
            summary: backwards.into(),
            x_high: Some(seen.count as f64),
            panels: vec![panel],
        })
    };
    let longest = Layout::longest(&layout.parts);
    let most = longest.iter().map(|(_, seen)| seen.count).max().unwrap_or(1);
    View {
        title: "One mapping".into(),
        help: format!(
            "A mark is an access: its number from left to right, its offset upwards. A triangle \
               that points down is before the last access: the kernel's readahead does not follow a \
               walk backwards. Red ones waited for the disk.{}",
            Layout::cut_in_words(&layout.parts, "mappings")
        )
        .into(),
        x: Axis::new("number of the access in this mapping", Unit::Count, 0.0, most as f64),
        subjects: longest.into_iter().filter_map(subject).collect(),
    }
}
