//! Sinks: nodes that consume messages.

pub mod wav;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.sink::<wav::WavSink>("wav")
}
