//! Dense tensors in memory, and NumPy's files of them.

mod npy;
mod tensor;

pub(crate) use npy::{parse_npy, read_npz};
pub(crate) use tensor::gather;
pub use tensor::{Quantized, Weights};
