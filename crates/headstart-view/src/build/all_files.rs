//! All files as lanes over time, and all threads.

use super::layout::{Layout, column};
use crate::picture::{Lanes, Panel, Subject, View, Y};
use crate::units::grouped;

/// Files in the order of their first accesses, then threads.
pub(super) fn view(layout: &Layout) -> View {
    let panels = [("files", column::PLACE), ("threads", column::OWNER)].map(|(title, of)| {
        let mut panel = Panel::new(title, Y::Lanes(Lanes { frame: 0, column: of, all: true }));
        panel.marks = Some(layout.marks(0, of, None));
        panel
    });
    View {
        title: "All files".into(),
        help: "A lane is a file, in the order of first accesses; lanes of threads are below. A bar is an \
               access, as long as it took. High, striped, red bars waited for the disk."
            .into(),
        x: layout.time(),
        subjects: vec![Subject {
            name: "".into(),
            summary: format!("{} files and kinds of memory", grouped(Layout::count(&layout.places) as f64, 0)).into(),
            x_high: None,
            panels: panels.into(),
        }],
    }
}
