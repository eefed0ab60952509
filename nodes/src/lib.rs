//! The stock nodes of `limen`: what most graphs begin with, end with, and do to tensors in between.
//!
//! One file of [`source`], [`transform`] or [`sink`] defines one kind: sources begin messages (image files, generated
//! patterns, tables, a timer, bytes from files, sockets and devices), transforms turn them into others (pixels into model
//! inputs, model outputs into answers), sinks end them (tables, JSON lines, the terminal, a score, bytes again).
//! [`register`] makes them known by the names a graph file uses.
//!
//! Kinds never name each other. What several of them use is in the folders below them, none of which names another:
//! [`stream`] (byte streams: framing, TCP, serial devices), [`file`](mod@file) (files that are read and written), `tensor` (shapes,
//! boxes, elements as text), `pattern` (what is generated), `pace` (when an open-loop source sends).
//!
//! Every payload is a [`limen::Tensor`]. Nothing here allocates per message once its buffers have grown, except image
//! decoders; nothing read from a file, a socket or a device can panic; there is no unsafe code. Models are not here: they are kinds of
//! `limen-backends`.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod file;
mod pace;
mod pattern;
pub mod sink;
pub mod source;
pub mod stream;
mod tensor;
pub mod transform;

use limen::{Registry, Tensor};

/// Adds the stock kinds to a registry.
pub fn register(registry: Registry) -> Registry {
    registry
        .source::<source::image_files::ImageFiles>("image_files")
        .source::<source::synthetic::Synthetic>("synthetic")
        .source::<source::csv::Csv>("csv")
        .source::<source::timer::Timer>("timer")
        .source::<source::file::File>("file")
        .source::<source::npy::Npy>("npy")
        .source::<source::wav::Wav>("wav")
        .source::<source::stdin::Stdin>("stdin")
        .source::<source::udp::Udp>("udp")
        .source::<source::tcp::Tcp>("tcp")
        .source::<source::serial::Serial>("serial")
        .transform::<transform::to_tensor::ToTensor>("to_tensor")
        .transform::<transform::normalize::Normalize>("normalize")
        .transform::<transform::resize::Resize>("resize")
        .transform::<transform::cast::Cast>("cast")
        .transform::<transform::argmax::Argmax>("argmax")
        .transform::<transform::top_k::TopK>("top_k")
        .transform::<transform::softmax::Softmax>("softmax")
        .transform::<transform::decode::Decode>("decode")
        .transform::<transform::decode_boxes::DecodeBoxes>("decode_boxes")
        .transform::<transform::nms::Nms>("nms")
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
        .sink::<sink::wav::Wav>("wav")
        .sink::<sink::stdout::Stdout>("stdout")
        .sink::<sink::udp::Udp>("udp")
        .sink::<sink::tcp::Tcp>("tcp")
        .sink::<sink::serial::Serial>("serial")
        .sink::<sink::null::Null>("null")
        .sink::<sink::score::Score>("score")
        .inlet::<Tensor>("inlet")
        .outlet::<Tensor>("outlet")
}
