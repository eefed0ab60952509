//! The stock nodes of `limen`: the sources, transforms and sinks that most graphs need.
//!
//! Each file of [`source`], [`transform`] or [`sink`] defines one kind. Sources create messages (image files, generated
//! patterns, tables, a timer, bytes from files, sockets and devices), transforms convert them (pixels into model
//! inputs, model outputs into labels, boxes and text), sinks consume them (tables, JSON lines, the terminal, a score, bytes).
//! [`register`] adds them to a registry under the names that graph files use.
//!
//! Kinds never import each other. They share code through the folders below them, which do not import each other either:
//! [`stream`] (byte streams: framing, TCP, serial devices), [`file`](mod@file) (input and output files), [`mod@format`] (numbers in
//! messages of bytes), [`recording`] (MCAP files and the messages in them), [`tensor`] (shapes,
//! views, images, boxes, regions, elements as text), [`signal`] (samples, filters, spectra), `pattern` (generated images and noise), `pace` (the schedule of an open-loop
//! source).
//!
//! Every payload is a [`limen::Tensor`]. Apart from image decoders, `candump` and `foxglove`, no node
//! allocates per message once its buffers have grown. No input from a file, socket or device can cause a panic. There is no unsafe code. Kinds that run models are in
//! `limen-backends`.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod file;
pub mod format;
pub mod pace;
mod pattern;
pub mod recording;
pub mod signal;
pub mod sink;
pub mod source;
pub mod stream;
pub mod tensor;
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
        .source::<source::replay::Replay>("replay")
        .source::<source::wav::Wav>("wav")
        .source::<source::y4m::Y4m>("y4m")
        .source::<source::audio::Audio>("audio")
        .source::<source::stdin::Stdin>("stdin")
        .source::<source::udp::Udp>("udp")
        .source::<source::tcp::Tcp>("tcp")
        .source::<source::serial::Serial>("serial")
        .source::<source::v4l2::V4l2>("v4l2")
        .source::<source::can::Can>("can")
        .source::<source::candump::Candump>("candump")
        .transform::<transform::to_tensor::ToTensor>("to_tensor")
        .transform::<transform::normalize::Normalize>("normalize")
        .transform::<transform::resize::Resize>("resize")
        .transform::<transform::letterbox::Letterbox>("letterbox")
        .transform::<transform::unletterbox::Unletterbox>("unletterbox")
        .transform::<transform::crop::Crop>("crop")
        .transform::<transform::crop_boxes::CropBoxes>("crop_boxes")
        .transform::<transform::colour::Convert>("colour")
        .transform::<transform::cast::Cast>("cast")
        .transform::<transform::reshape::Reshape>("reshape")
        .transform::<transform::transpose::Transpose>("transpose")
        .transform::<transform::slice::Slice>("slice")
        .transform::<transform::pad::Pad>("pad")
        .transform::<transform::concat::Concat>("concat")
        .transform::<transform::map::Map>("map")
        .transform::<transform::encode::Encode>("encode")
        .transform::<transform::encode_image::EncodeImage>("encode_image")
        .transform::<transform::decode_image::DecodeImage>("decode_image")
        .transform::<transform::fir::Fir>("fir")
        .transform::<transform::iir::Iir>("iir")
        .transform::<transform::stft::Stft>("stft")
        .transform::<transform::log_mel::LogMel>("log_mel")
        .transform::<transform::stack::Stack>("stack")
        .transform::<transform::argmax::Argmax>("argmax")
        .transform::<transform::top_k::TopK>("top_k")
        .transform::<transform::softmax::Softmax>("softmax")
        .transform::<transform::decode::Decode>("decode")
        .transform::<transform::draw::Draw>("draw")
        .transform::<transform::tracker::Tracker>("tracker")
        .transform::<transform::decode_boxes::DecodeBoxes>("decode_boxes")
        .transform::<transform::decode_ctc::DecodeCtc>("decode_ctc")
        .transform::<transform::decode_db::DecodeDb>("decode_db")
        .transform::<transform::decode_yolo::DecodeYolo>("decode_yolo")
        .transform::<transform::nms::Nms>("nms")
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
        .sink::<sink::record::Record>("record")
        .sink::<sink::foxglove::Foxglove>("foxglove")
        .sink::<sink::wav::Wav>("wav")
        .sink::<sink::audio::Audio>("audio")
        .sink::<sink::stdout::Stdout>("stdout")
        .sink::<sink::udp::Udp>("udp")
        .sink::<sink::tcp::Tcp>("tcp")
        .sink::<sink::serial::Serial>("serial")
        .sink::<sink::can::Can>("can")
        .sink::<sink::candump::Candump>("candump")
        .sink::<sink::null::Null>("null")
        .sink::<sink::score::Score>("score")
        .inlet::<Tensor>("inlet")
        .outlet::<Tensor>("outlet")
}
