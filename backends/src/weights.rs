//! Weights: tensors read from files before anything starts, and what is done to them when they are.
//!
//! A file is SafeTensors, NumPy's `.npy` or `.npz`, or plain numbers whose type and shape the graph says. All of it is
//! checked while the graph is planned.

mod config;
mod file;
mod npy;
mod tensor;
mod transform;

pub use config::WeightConfig;
pub(crate) use file::{read, tensors, whole};
#[cfg(test)]
pub(crate) use npy::parse_npy;
pub(crate) use npy::read_npz;
pub use tensor::{Quantized, Weights};
pub use transform::{Quantize, Slice, WeightTransform};
