//! Weights: tensors that are read from files and transformed while a graph is planned.
//!
//! A file is SafeTensors, NumPy's `.npy` or `.npz`, or raw numbers whose type and shape are in the
//! config.

mod config;
mod encoding;
mod file;
mod int4;
mod transform;

pub use config::WeightConfig;
pub use encoding::Encoding;
pub(crate) use file::{FileTensor, read, tensors, whole};
pub use transform::{Quantize, WeightSlice, WeightTransform};
