//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its output is `out`.

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
