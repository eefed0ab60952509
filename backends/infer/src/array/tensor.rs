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

/// Copies the elements of a view of `bytes`, in the order of the view's indices: `size` bytes for
/// each element, from the element `offset` on, with strides in elements. The view lies inside.
pub(crate) fn gather(bytes: &[u8], size: usize, offset: usize, shape: &[usize], strides: &[usize]) -> Vec<u8> {
    if shape.contains(&0) {
        return Vec::new();
    }
    let elements: usize = shape.iter().product();
    let mut inner = 1;
    let is_dense = std::iter::zip(shape, strides).rev().all(|(dim, stride)| {
        let is_next = *dim == 1 || *stride == inner;
        inner *= dim;
        is_next
    });
    if is_dense {
        return bytes[offset * size..][..elements * size].to_vec();
    }
    let mut gathered = Vec::with_capacity(elements * size);
    let mut index = vec![0; shape.len()];
    let mut from = offset;
    for _ in 0..elements {
        gathered.extend_from_slice(&bytes[from * size..(from + 1) * size]);
        for ((i, dim), stride) in index.iter_mut().zip(shape).zip(strides).rev() {
            *i += 1;
            // The stride of a dim of length 1 can be any number.
            from = from.wrapping_add(*stride);
            if *i < *dim {
                break;
            }
            from = from.wrapping_sub(stride.wrapping_mul(*dim));
            *i = 0;
        }
    }
    gathered
}
