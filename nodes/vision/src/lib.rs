//! The stock nodes of `limen` for images: image and video files, scaling, model inputs from pixels, decoders of detectors, tracking, drawing.
//!
//! Each file of [`source`] or [`transform`] defines one kind. [`register`] adds them to a registry under the names that graph files use.
//!
//! No input from a file can cause a panic. Decoders of images allocate per message, other nodes only until their buffers have grown.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make their own files"))]

pub mod file;
pub mod source;
pub mod tensor;
pub mod transform;

use limen::Registry;

/// Adds the kinds of this crate to a registry.
pub fn register(registry: Registry) -> Registry {
    registry
        .source::<source::image_files::ImageFiles>("image_files")
        .source::<source::y4m::Y4m>("y4m")
        .transform::<transform::to_tensor::ToTensor>("to_tensor")
        .transform::<transform::resize::Resize>("resize")
        .transform::<transform::letterbox::Letterbox>("letterbox")
        .transform::<transform::unletterbox::Unletterbox>("unletterbox")
        .transform::<transform::crop::Crop>("crop")
        .transform::<transform::crop_boxes::CropBoxes>("crop_boxes")
        .transform::<transform::colour::Convert>("colour")
        .transform::<transform::encode_image::EncodeImage>("encode_image")
        .transform::<transform::decode_image::DecodeImage>("decode_image")
        .transform::<transform::draw::Draw>("draw")
        .transform::<transform::tracker::Tracker>("tracker")
        .transform::<transform::decode_boxes::DecodeBoxes>("decode_boxes")
        .transform::<transform::decode_ctc::DecodeCtc>("decode_ctc")
        .transform::<transform::decode_db::DecodeDb>("decode_db")
        .transform::<transform::decode_yolo::DecodeYolo>("decode_yolo")
        .transform::<transform::nms::Nms>("nms")
}
