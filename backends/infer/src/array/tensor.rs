//! A dense tensor in memory.

use limen::message::DType;

/// A dense tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Element type.
    pub dtype: DType,
    /// Its dims.
    pub shape: Vec<usize>,
    /// Its elements.
    pub bytes: Vec<u8>,
    /// Scales and zero points, if the elements are quantized.
    pub quantized: Option<Quantized>,
    /// What the file holds instead of `f32`, if the elements were widened to it.
    pub widened: Option<String>,
}

impl Weights {
    /// Makes a tensor of these elements.
    ///
    /// # Errors
    /// A message, if the bytes do not match dtype and shape.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, String> {
        let takes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim));
        match takes {
            Some(takes) if takes == bytes.len() => Ok(Weights { dtype, shape, bytes, quantized: None, widened: None }),
            Some(takes) => Err(format!("must have {takes} bytes for {dtype}{shape:?}, got {}", bytes.len())),
            None => Err(format!("must have a shape that fits in memory, got {shape:?}")),
        }
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether the elements are of a floating-point type.
    pub(crate) fn is_float(&self) -> bool {
        matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }
}

/// The quantization of 8-bit integers `q`: the value is `scale × (q − zero)`, with a scale and zero
/// point per index of the first dim.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    /// The scale of each row.
    pub scales: Vec<f32>,
    /// The zero point of each row: the integer that represents 0.
    pub zeros: Vec<i32>,
}
