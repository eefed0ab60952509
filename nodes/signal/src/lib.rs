//! The stock nodes of `limen` for samples of sound and sensors: filters, spectra, WAV files.
//!
//! Each file of [`source`], [`transform`] or [`sink`] defines one kind. [`register`] adds them to a
//! registry under the names that graph files use.
//!
//! No input from a file can cause a panic. No node allocates per message once its buffers have
//! grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

mod file;
mod signal;
pub mod sink;
pub mod source;
pub mod transform;

pub use signal::{Along, WindowFunction};

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry.with(source::register).with(transform::register).with(sink::register)
}
