//! The stock nodes of `limen` for devices of Linux: cameras, CAN buses and their logs, sound cards.
//!
//! Each file of [`source`] or [`sink`] defines one kind. [`register`] adds them to a registry under
//! the names that graph files use.
//!
//! No input from a device can cause a panic. `candump` allocates per message, other nodes only
//! until their buffers have grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod sink;
pub mod source;
pub mod stream;

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry
        .with(source::register)
        .with(sink::register)
        .renamed_key("v4l2", "device", "path")
        .renamed_key("audio", "device", "pcm")
}
