//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its output is `out`.

pub mod decode;
pub mod encode;
