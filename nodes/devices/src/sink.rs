//! Sinks: nodes that consume messages.

pub mod audio;
pub mod can;
pub mod candump;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry.sink::<audio::AudioSink>("audio").sink::<can::CanSink>("can").sink::<candump::CandumpSink>("candump")
}
