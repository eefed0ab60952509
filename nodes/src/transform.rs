//! Nodes that turn messages into messages. Unless a kind says otherwise its input port is `in`, its output port `out`.

pub mod argmax;
pub mod cast;
pub mod decode_boxes;
pub mod nms;
pub mod normalize;
pub mod pass;
pub mod resize;
pub mod softmax;
pub mod to_tensor;
pub mod top_k;
