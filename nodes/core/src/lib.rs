//! The stock nodes of `limen` that most graphs need: flow, joins, arithmetic, tables, files and
//! byte streams.
//!
//! Each file of [`source`], [`transform`] or [`sink`] defines one kind. [`register`] adds them to a
//! registry under the names that graph files use. Stock kinds of one field are in crates of their
//! own, which import this one: `limen-vision`, `limen-codec`, `limen-signal`, `limen-recording` and
//! `limen-devices`. Kinds that run models are in `limen-infer` and `limen-gpu`.
//!
//! Kinds never import each other. They share code through the folders below them, which do not
//! import each other either: [`stream`] (byte streams: framing, TCP, serial devices),
//! [`file`](mod@file) (input and output files), [`mod@format`] (numbers in messages of bytes),
//! [`tensor`] (shapes, views, boxes, elements as text), `pattern` (generated images and noise),
//! [`pace`] (rates).
//!
//! Every payload is a [`limen::Tensor`]. No node allocates per message once its buffers have grown.
//! No input from a file or socket can cause a panic. There is no unsafe code.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod file;
pub mod format;
pub mod pace;
mod pattern;
pub mod sink;
pub mod source;
pub mod stream;
pub mod tensor;
pub mod transform;

use limen::{Registry, Tensor};

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry
        .with(source::register)
        .with(transform::register)
        .with(sink::register)
        .inlet::<Tensor>("inlet")
        .outlet::<Tensor>("outlet")
        .renamed_key("serial", "device", "path")
}
