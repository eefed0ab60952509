//! The stock nodes of `limen` for images: image and video files, scaling, model inputs from pixels,
//! decoders of detectors, tracking, drawing.
//!
//! Each file of [`source`] or [`transform`] defines one kind. [`register`] adds them to a registry
//! under the names that graph files use.
//!
//! No input from a file can cause a panic. Decoders of images allocate per message, other nodes
//! only until their buffers have grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod file;
pub mod source;
pub mod tensor;
pub mod transform;

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry.with(source::register).with(transform::register)
}
