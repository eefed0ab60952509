//! A tensor of the model while it is lowered: a view of an array.

use super::kernel::{ArrayRead, Axis, Number, Scalar};

/// A tensor whose elements lie in an array at regular distances. Slices, transposed tensors and
/// broadcasts are views too.
#[derive(Clone, Debug)]
pub(crate) struct StridedValue {
    pub(super) array: usize,
    pub(super) scalar: Scalar,
    pub(crate) shape: Vec<usize>,
    pub(super) offset: i64,
    pub(super) strides: Vec<i64>,
}

/// The distances of elements in an array that holds a tensor of this shape and nothing else.
pub(super) fn row_major(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim] as i64;
    }
    strides
}

impl StridedValue {
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has every element of its array, in order.
    pub(super) fn is_whole(&self) -> bool {
        let own = row_major(&self.shape);
        let dims = std::iter::zip(&self.shape, std::iter::zip(&self.strides, &own));
        self.offset == 0 && dims.filter(|(length, _)| **length != 1).all(|(_, (stride, own))| stride == own)
    }

    /// The stride along a dim; 0 where it is repeated along it.
    pub(super) fn stride(&self, dim: usize) -> i64 {
        if self.shape[dim] == 1 { 0 } else { self.strides[dim] }
    }

    /// Reads the element at the kernel's coordinates, whose last dims are those of the tensor.
    pub(super) fn at(&self, rank: usize) -> ArrayRead {
        let first = rank - self.shape.len();
        let axes = (0..self.shape.len()).map(|dim| Axis::dim(first + dim, self.stride(dim))).collect();
        self.read(axes)
    }

    pub(super) fn read(&self, axes: Vec<Axis>) -> ArrayRead {
        let axes = axes.into_iter().filter(|axis| axis.stride != 0 || !axis.is_linear()).collect();
        ArrayRead { array: self.array, offset: self.offset, axes, outside: Number::zero(self.scalar) }
    }
}
