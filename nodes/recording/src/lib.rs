//! The stock nodes of `limen` for recordings: MCAP files with messages of Foxglove or ROS 2, and
//! the live view of them in Foxglove.
//!
//! Each file of [`source`] or [`sink`] defines one kind. [`register`] adds them to a registry under
//! the names that graph files use.
//!
//! No input from a file or viewer can cause a panic. `foxglove` allocates per message, other nodes
//! only until their buffers have grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

mod recording;
pub mod sink;
pub mod source;
mod stream;

pub use recording::inputs::TopicConfig;
pub use recording::{reader, repair};

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry.with(source::register).with(sink::register)
}
