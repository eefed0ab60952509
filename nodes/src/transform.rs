//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its output is `out`.

pub mod argmax;
pub mod cast;
pub mod debounce;
pub mod decimate;
pub mod decode;
pub mod decode_boxes;
pub mod delay;
pub mod gate;
pub mod gather;
pub mod merge;
pub mod nms;
pub mod normalize;
pub mod pass;
pub mod resize;
pub mod router;
pub mod scatter;
pub mod softmax;
pub mod synchronize;
pub mod threshold;
pub mod throttle;
pub mod to_tensor;
pub mod top_k;
pub mod window;
