//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its
//! output is `out`.

pub mod colour;
pub mod crop;
pub mod crop_boxes;
pub mod decode_boxes;
pub mod decode_ctc;
pub mod decode_db;
pub mod decode_image;
pub mod decode_yolo;
pub mod draw;
pub mod encode_image;
pub mod letterbox;
pub mod nms;
pub mod resize;
pub mod to_tensor;
pub mod tracker;
pub mod unletterbox;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .transform::<colour::Convert>("colour")
        .transform::<crop::Crop>("crop")
        .transform::<crop_boxes::CropBoxes>("crop_boxes")
        .transform::<decode_boxes::DecodeBoxes>("decode_boxes")
        .transform::<decode_ctc::DecodeCtc>("decode_ctc")
        .transform::<decode_db::DecodeDb>("decode_db")
        .transform::<decode_image::DecodeImage>("decode_image")
        .transform::<decode_yolo::DecodeYolo>("decode_yolo")
        .transform::<draw::Draw>("draw")
        .transform::<encode_image::EncodeImage>("encode_image")
        .transform::<letterbox::Letterbox>("letterbox")
        .transform::<nms::Nms>("nms")
        .transform::<resize::Resize>("resize")
        .transform::<to_tensor::ToTensor>("to_tensor")
        .transform::<tracker::Tracker>("tracker")
        .transform::<unletterbox::Unletterbox>("unletterbox")
}
