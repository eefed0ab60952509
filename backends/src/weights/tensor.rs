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
    /// What the elements stand for, where they were quantized.
    pub quantized: Option<Quantized>,
}

impl Weights {
    /// A tensor of these elements.
    ///
    /// # Errors
    /// A sentence, when shape and bytes do not agree.
    pub fn new(dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, String> {
        let takes = shape.iter().try_fold(dtype.size(), |n, dim| n.checked_mul(*dim));
        match takes {
            Some(takes) if takes == bytes.len() => Ok(Weights { dtype, shape, bytes, quantized: None }),
            Some(takes) => Err(format!("has {} bytes; {dtype}{shape:?} takes {takes}", bytes.len())),
            None => Err(format!("has the shape {shape:?}, which no memory holds")),
        }
    }

    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }
}

/// What 8-bit integers stand for: `scale × (q − zero)`, row by row of the first dim.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    /// The scale of each row.
    pub scales: Vec<f32>,
    /// The integer that stands for 0 in each row.
    pub zeros: Vec<i32>,
}
