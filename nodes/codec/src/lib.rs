//! The stock nodes of `limen` for messages of bytes: packets at fixed offsets, JSON, CBOR, rows of
//! text, sentences of NMEA 0183, checksums.
//!
//! Each file of [`transform`] defines one kind. [`register`] adds them to a registry under the
//! names that graph files use.
//!
//! No message can cause a panic. No node allocates per message once its buffers have grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod format;
pub mod transform;

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry.with(transform::register)
}
