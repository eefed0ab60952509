//! Sinks: nodes that consume messages.

pub mod wav;
