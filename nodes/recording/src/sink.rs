//! Sinks: nodes that consume messages.

pub mod foxglove;
pub mod record;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.sink::<foxglove::Foxglove>("foxglove").sink::<record::RecordNode>("record")
}
