//! One recording: all views of it.

use super::accesses::{Accesses, kinds};
use super::device::{self, Device};
use super::layout::Layout;
use super::{all_files, by_file, by_mapping};
use crate::picture::{Picture, Text};

/// The picture of a recording, and of the devices that it waited for, if requests were recorded.
pub fn picture(accesses: &Accesses, devices: &[Device]) -> Picture {
    let layout = Layout::of(&[accesses]);
    let mut picture = Picture {
        title: (&accesses.title).into(),
        summary: accesses.summary.iter().map(Text::from).collect(),
        kinds: kinds(),
        frames: vec![layout.frame(accesses)],
        views: vec![
            all_files::view(&layout),
            by_file::view(accesses, &layout),
            by_mapping::view(accesses, &layout),
        ],
        tables: vec![layout.table(accesses)],
    };
    picture.summary.extend(layout.skipped_in_words(&accesses.called));
    device::add(&mut picture, devices, layout.end_ns);
    picture
}
