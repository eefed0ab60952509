//! Sources: nodes that create messages.

pub mod replay;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.source::<replay::Replay>("replay")
}
