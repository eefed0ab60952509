//! Weights: tensors that are read from files and transformed while a graph is planned.
//!
//! A file is SafeTensors, NumPy's `.npy` or `.npz`, PyTorch's `.pt`, GGUF, an ONNX model, or raw
//! numbers whose type and shape are in the config.

mod byte_reader;
mod config;
mod encoding;
mod file;
#[cfg(test)]
mod fixture_tests;
mod gguf;
mod int4;
mod pickle;
mod torch;
mod transform;

pub use config::WeightConfig;
pub use encoding::Encoding;
pub(crate) use file::{TensorFile, TensorInfo, WeightFormat, read, whole};
pub use transform::{Quantize, WeightSlice, WeightTransform};
