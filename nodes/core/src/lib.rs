//! The stock nodes of `limen` that most graphs need: flow, joins, arithmetic, tables, files and byte streams.
//!
//! Each file of [`source`], [`transform`] or [`sink`] defines one kind. [`register`] adds them to a registry under the names that graph
//! files use. Stock kinds of one field are in crates of their own, which import this one: `limen-vision`, `limen-codec`, `limen-signal`,
//! `limen-recording` and `limen-devices`. Kinds that run models are in `limen-backends`.
//!
//! Kinds never import each other. They share code through the folders below them, which do not import each other either:
//! [`stream`] (byte streams: framing, TCP, serial devices), [`file`](mod@file) (input and output files), [`mod@format`] (numbers in
//! messages of bytes), [`tensor`] (shapes, views, boxes, elements as text), `pattern` (generated images and noise), [`pace`] (rates).
//!
//! Every payload is a [`limen::Tensor`]. No node allocates per message once its buffers have grown. No input from a file or socket can
//! cause a panic. There is no unsafe code.

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
        .source::<source::synthetic::Synthetic>("synthetic")
        .source::<source::csv::Csv>("csv")
        .source::<source::timer::Timer>("timer")
        .source::<source::file::File>("file")
        .source::<source::npy::Npy>("npy")
        .source::<source::stdin::Stdin>("stdin")
        .source::<source::udp::Udp>("udp")
        .source::<source::tcp::Tcp>("tcp")
        .source::<source::serial::Serial>("serial")
        .transform::<transform::normalize::Normalize>("normalize")
        .transform::<transform::cast::Cast>("cast")
        .transform::<transform::reshape::Reshape>("reshape")
        .transform::<transform::transpose::Transpose>("transpose")
        .transform::<transform::slice::Slice>("slice")
        .transform::<transform::pad::Pad>("pad")
        .transform::<transform::concat::Concat>("concat")
        .transform::<transform::map::Map>("map")
        .transform::<transform::stack::Stack>("stack")
        .transform::<transform::argmax::Argmax>("argmax")
        .transform::<transform::top_k::TopK>("top_k")
        .transform::<transform::softmax::Softmax>("softmax")
        .transform::<transform::cosine::Cosine>("cosine")
        .transform::<transform::embeddings::Embeddings>("embeddings")
        .transform::<transform::pass::Pass>("pass")
        .transform::<transform::debounce::Debounce>("debounce")
        .transform::<transform::decimate::Decimate>("decimate")
        .transform::<transform::delay::Delay>("delay")
        .transform::<transform::gate::Gate>("gate")
        .transform::<transform::gather::Gather>("gather")
        .transform::<transform::merge::Merge>("merge")
        .transform::<transform::router::Router>("router")
        .transform::<transform::scatter::Scatter>("scatter")
        .transform::<transform::synchronize::Synchronize>("synchronize")
        .transform::<transform::threshold::Threshold>("threshold")
        .transform::<transform::throttle::Throttle>("throttle")
        .transform::<transform::window::Window>("window")
        .sink::<sink::csv::Csv>("csv")
        .sink::<sink::jsonl::Jsonl>("jsonl")
        .sink::<sink::console::Console>("console")
        .sink::<sink::file::File>("file")
        .sink::<sink::npy::Npy>("npy")
        .sink::<sink::stdout::Stdout>("stdout")
        .sink::<sink::udp::Udp>("udp")
        .sink::<sink::tcp::Tcp>("tcp")
        .sink::<sink::serial::Serial>("serial")
        .sink::<sink::null::Null>("null")
        .sink::<sink::score::Score>("score")
        .inlet::<Tensor>("inlet")
        .outlet::<Tensor>("outlet")
}
