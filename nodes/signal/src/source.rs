//! Sources: nodes that create messages.

pub mod wav;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.source::<wav::WavSource>("wav")
}
