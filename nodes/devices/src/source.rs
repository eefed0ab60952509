//! Sources: nodes that create messages.

pub mod audio;
pub mod can;
pub mod candump;
pub mod v4l2;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .source::<audio::AudioSource>("audio")
        .source::<can::CanSource>("can")
        .source::<candump::CandumpSource>("candump")
        .source::<v4l2::V4l2>("v4l2")
}
