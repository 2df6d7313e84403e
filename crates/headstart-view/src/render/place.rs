//! Where a panel of an image is, and how what is on it is filled.

use crate::picture::{Kind, Mark};
use crate::scale::Scale;

/// How a kind is filled.
pub(super) fn fill(kind: &Kind) -> String {
    let name = kind.colour.name();
    match kind.mark {
        Mark::Hatched => format!("fill:url(#hatched-{name});stroke:var(--{name});stroke-width:1"),
        Mark::Outline => format!("fill:none;stroke:var(--{name});stroke-width:1"),
        _ => format!("fill:var(--{name})"),
    }
}

/// Where a panel is, and its vertical axis.
pub(super) struct Place<'a> {
    pub x: &'a Scale,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    /// Of values.
    pub y: Option<Scale>,
    /// How many lanes are drawn.
    pub lanes: usize,
    /// How much coarser than the finest image this is.
    pub coarse: f64,
}

impl Place<'_> {
    /// The middle of a value or a lane; `None` for a lane that is not drawn.
    pub fn y(&self, value: f64) -> Option<f64> {
        match self.y {
            Some(scale) => Some(scale.pixel(value)),
            None if value < self.lanes as f64 => {
                Some(self.top + (value + 0.5) * self.lane_height())
            }
            None => None,
        }
    }

    /// Whether it has all details.
    pub fn is_finest(&self) -> bool {
        self.coarse <= 1.0
    }

    /// That of a lane; 0 where there are none.
    pub fn lane_height(&self) -> f64 {
        match self.y {
            Some(_) => 0.0,
            None => (self.bottom - self.top) / self.lanes.max(1) as f64,
        }
    }

    /// The heights of plain and other bars.
    pub fn heights(&self) -> (f64, f64) {
        match self.y {
            Some(_) => (3.0, 7.0),
            None => {
                let lane = self.lane_height();
                ((lane * 0.5).clamp(1.2, 7.0), (lane * 0.8).clamp(1.8, 11.0))
            }
        }
    }
}
