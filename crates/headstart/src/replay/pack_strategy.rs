//! The read strategy for a pack: by the model of its device and the gaps that are read there, or without a model. Pure;
//! [`super::model`] and `gap_size.rs` decide.

use super::gap_size::gap_size;
use super::model::Model;
use super::ranges::Ranges;
use super::strategy::ReadStrategy;
use crate::pack::Pack;

/// The read strategy for a pack on a device that was probed, or was not: then what does no
/// harm on any.
pub fn read_strategy(model: Option<Model>, pack: &Pack) -> ReadStrategy {
    let ranges = Ranges::of(pack);
    let unmeasured = || {
        let strategy = ReadStrategy::default();
        ReadStrategy { batched: ranges.joined(strategy.gap_bytes).are_small(), ..strategy }
    };
    model.map_or_else(unmeasured, |model| {
        model.read_strategy(&ranges, gap_size(&model, pack, &ranges))
    })
}
