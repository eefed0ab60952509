//! Sinks: nodes that consume messages.

pub mod foxglove;
pub mod record;
