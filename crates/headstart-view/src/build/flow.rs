//! A panel of values over time, with an axis that has room for them.

use crate::picture::{Axis, Flow, MOST, Panel, Unit, Y};

/// A series has no larger values, so that sums of several stay exact.
const LARGEST: f64 = (MOST / 64) as f64;

/// The panel of a flow.
pub(super) fn panel(title: &str, unit: Unit, mut flow: Flow) -> Panel {
    for value in flow.series.iter_mut().flat_map(|series| &mut series.values) {
        *value = if value.is_nan() { 0.0 } else { value.clamp(0.0, LARGEST) };
    }
    let count = flow.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    let top = |interval: usize| {
        let values = flow.series.iter().filter_map(|series| series.values.get(interval)).copied();
        if flow.stacked { values.sum() } else { values.fold(0.0, f64::max) }
    };
    let highest: f64 = (0..count).map(top).fold(0.0, f64::max);
    // Parts of one have no round values to mark.
    let least = if unit == Unit::Count { 1.0 } else { 0.0 };
    let high = (highest * 1.05).max(least);
    let mut panel = Panel::new(title, Y::Value(Axis::new("", unit, 0.0, high)));
    panel.flow = Some(flow);
    panel
}
