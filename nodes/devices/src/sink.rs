//! Sinks: nodes that consume messages.

pub mod audio;
pub mod can;
pub mod candump;
