//! Views: some elements of a tensor, by place, as a tensor of another shape; and copies from one
//! view to another.
//!
//! A kind that moves elements describes where they are and where they go as two views of one shape,
//! and copies once.

use super::shape;
use arrayvec::ArrayVec;
use limen::message::MAX_RANK;
use limen::node::NodeError;
use limen::{Tensor, TensorMut};

/// The lengths of a message's dims.
pub(crate) type Lengths = ArrayVec<usize, MAX_RANK>;

/// Loops shorter than this are not worth a call each.
const SHORT: usize = 8;

/// Some elements of a tensor, as a tensor of another shape.
#[derive(Clone, Debug)]
pub(crate) struct ElementView {
    /// The place of the first element.
    first: isize,
    dims: ArrayVec<ViewDim, MAX_RANK>,
}

#[derive(Clone, Copy, Debug)]
struct ViewDim {
    length: usize,
    /// Places from one element to the next.
    stride: isize,
}

impl ElementView {
    /// Returns the view of a whole tensor of this shape.
    pub(crate) fn whole(shape: &[usize]) -> ElementView {
        let mut dims: ArrayVec<ViewDim, MAX_RANK> =
            shape.iter().map(|length| ViewDim { length: *length, stride: 1 }).collect();
        let mut stride = 1_isize;
        for dim in dims.iter_mut().rev() {
            dim.stride = stride;
            // Saturates only in a tensor without elements.
            stride = stride.saturating_mul(dim.length as isize);
        }
        ElementView { first: 0, dims }
    }

    /// Selects one element of a dim, which has more than `at`, and removes the dim.
    #[must_use]
    pub(crate) fn index(mut self, dim: usize, at: usize) -> ElementView {
        if let Some(gone) = self.dims.pop_at(dim) {
            self.first += gone.stride * at as isize;
        }
        self
    }

    /// Selects `length` elements of a dim: `from`, `from + step` and so on. The dim has all of
    /// them.
    #[must_use]
    pub(crate) fn part(mut self, dim: usize, from: usize, length: usize, step: isize) -> ElementView {
        if let Some(dim) = self.dims.get_mut(dim) {
            self.first += dim.stride * from as isize;
            // Saturates only if there is no second element.
            *dim = ViewDim { length, stride: dim.stride.saturating_mul(step) };
        }
        self
    }

    /// Orders the dims: the first becomes dim `order[0]`.
    #[must_use]
    pub(crate) fn ordered(self, order: &[usize]) -> ElementView {
        ElementView { dims: order.iter().filter_map(|dim| self.dims.get(*dim)).copied().collect(), ..self }
    }

    /// Returns the shape.
    pub(crate) fn lengths(&self) -> Lengths {
        self.dims.iter().map(|dim| dim.length).collect()
    }
}

/// One of the nested loops of a copy.
#[derive(Clone, Copy, Debug)]
struct Loop {
    count: usize,
    /// Places from one element to the next, on both sides.
    from: isize,
    into: isize,
}

/// Returns the loops of a copy, the outermost first: as few as possible.
fn loops(source: &ElementView, target: &ElementView) -> ArrayVec<Loop, MAX_RANK> {
    let mut loops = ArrayVec::<Loop, MAX_RANK>::new();
    for (from, into) in source.dims.iter().zip(&target.dims).filter(|(dim, _)| dim.length != 1) {
        let inner = Loop { count: from.length, from: from.stride, into: into.stride };
        match loops.last_mut() {
            // Two dims that follow each other without a jump on both sides are one.
            Some(outer)
                if outer.from == inner.from.saturating_mul(inner.count as isize)
                    && outer.into == inner.into.saturating_mul(inner.count as isize) =>
            {
                *outer = Loop { count: outer.count * inner.count, ..inner };
            }
            _ => loops.push(inner),
        }
    }
    if let [.., outer, inner] = &mut loops[..]
        && inner.count < SHORT.min(outer.count)
        && (inner.from, inner.into) != (1, 1)
    {
        // Such as the channels of an image.
        std::mem::swap(outer, inner);
    }
    loops
}

/// Copies elements of `N` bytes, beginning at the places `at` and `to`.
fn run<const N: usize>(loops: &[Loop], from: &[[u8; N]], at: isize, into: &mut [[u8; N]], to: isize) {
    match loops {
        [] => into[to as usize] = from[at as usize],
        [Loop { count, from: 1, into: 1 }] => {
            let (at, to) = (at as usize, to as usize);
            into[to..to + count].copy_from_slice(&from[at..at + count]);
        }
        [inner] => {
            for n in 0..inner.count as isize {
                into[(to + n * inner.into) as usize] = from[(at + n * inner.from) as usize];
            }
        }
        [outer, rest @ ..] => {
            for n in 0..outer.count as isize {
                run(rest, from, at + n * outer.from, into, to + n * outer.into);
            }
        }
    }
}

/// Fills a tensor with the elements of a view of another, whose shape it takes.
///
/// # Errors
/// The tensor cannot have this shape, or has another element type.
pub(crate) fn take(from: &Tensor, source: &ElementView, into: &mut TensorMut) -> Result<(), NodeError> {
    let lengths = source.lengths();
    shape::set_shape(into, &lengths)?;
    copy(from, source, into, &ElementView::whole(&lengths))
}

/// Copies a whole tensor to the elements of a view of another.
///
/// # Errors
/// The two differ in shape or element type.
pub(crate) fn put(from: &Tensor, into: &mut TensorMut, target: &ElementView) -> Result<(), NodeError> {
    copy(from, &ElementView::whole(&from.shape()), into, target)
}

fn copy(from: &Tensor, source: &ElementView, into: &mut TensorMut, target: &ElementView) -> Result<(), NodeError> {
    let (lengths, dtype) = (source.lengths(), from.dtype());
    if lengths != target.lengths() || dtype != into.dtype() {
        let why = format!("expected {}{:?}, found {dtype}{lengths:?}", into.dtype(), target.lengths());
        return Err(NodeError::input("in", why));
    }
    if lengths.contains(&0) {
        return Ok(());
    }
    let (loops, at, to) = (loops(source, target), source.first, target.first);
    let (from, into) = (from.bytes(), into.bytes_mut());
    match dtype.size() {
        1 => run::<1>(&loops, from.as_chunks().0, at, into.as_chunks_mut().0, to),
        2 => run::<2>(&loops, from.as_chunks().0, at, into.as_chunks_mut().0, to),
        4 => run::<4>(&loops, from.as_chunks().0, at, into.as_chunks_mut().0, to),
        _ => run::<8>(&loops, from.as_chunks().0, at, into.as_chunks_mut().0, to),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::message::{DType, PortSpec};

    /// A tensor whose element `n` is `n`.
    fn counted(dtype: DType, shape: &[usize]) -> Tensor {
        let mut tensor = TensorMut::alone(&PortSpec::fixed(dtype, shape.iter().copied())).unwrap();
        for (n, element) in tensor.bytes_mut().chunks_exact_mut(dtype.size()).enumerate() {
            element[..1].copy_from_slice(&[n as u8]);
        }
        tensor.freeze()
    }

    /// Copies a view of a counted tensor to a whole one and returns the numbers there.
    fn copied(dtype: DType, shape: &[usize], of: impl Fn(ElementView) -> ElementView) -> Vec<u8> {
        let source = of(ElementView::whole(shape));
        let mut into = TensorMut::alone(&PortSpec::fixed(dtype, source.lengths())).unwrap();
        take(&counted(dtype, shape), &source, &mut into).unwrap();
        into.freeze().bytes().chunks_exact(dtype.size()).map(|element| element[0]).collect()
    }

    /// The place of each number, from 1, times the number.
    fn checksum(numbers: &[u8]) -> usize {
        numbers.iter().zip(1..).map(|(number, place)| usize::from(*number) * place).sum()
    }

    const SIZES: [DType; 4] = [DType::I8, DType::BF16, DType::F32, DType::U64];

    #[test]
    fn every_order_of_dims_equals_that_of_numpy() {
        // sum((i + 1) * checksum(a.transpose(p)) for i, p in
        // enumerate(itertools.permutations(range(4)))), a = arange of the shape.
        for (shape, expected) in [([2, 3, 4, 5], 143787290), ([2, 1, 9, 3], 13661235), ([1, 1, 1, 1], 0)] {
            for dtype in SIZES {
                let (mut sum, mut weight) = (0, 0);
                for order in (0..256).map(|n| [n / 64, n / 16 % 4, n / 4 % 4, n % 4]) {
                    if (0..4).all(|dim| order.contains(&dim)) {
                        weight += 1;
                        sum += weight * checksum(&copied(dtype, &shape, |view| view.ordered(&order)));
                    }
                }
                assert_eq!(sum, expected, "{shape:?} {dtype}");
            }
        }
    }

    #[test]
    fn parts_of_dims_equal_those_of_numpy() {
        type Select = fn(ElementView) -> ElementView;
        for (name, select, expected) in [
            (
                "a[:, 1:3]",
                (|view| view.part(1, 1, 2, 1)) as Select,
                &[4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23][..],
            ),
            (
                "a[:, :, ::-1]",
                |view| view.part(2, 3, 4, -1),
                &[3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 19, 18, 17, 16, 23, 22, 21, 20],
            ),
            ("a[1, :, 1::2]", |view| view.part(2, 1, 2, 2).index(0, 1), &[13, 15, 17, 19, 21, 23]),
            ("a[:, 2, 3]", |view| view.index(2, 3).index(1, 2), &[11, 23]),
            (
                "a[::-1, ::2, 1:3].transpose(2, 0, 1)",
                |view| view.part(0, 1, 2, -1).part(1, 0, 2, 2).part(2, 1, 2, 1).ordered(&[2, 0, 1]),
                &[13, 21, 1, 9, 14, 22, 2, 10],
            ),
            ("a[1, 2, 3]", |view| view.index(0, 1).index(0, 2).index(0, 3), &[23]),
            ("a[:, 3:]", |view| view.part(1, 0, 0, 1), &[]),
            ("a[:, 2::9223372036854775807]", |view| view.part(1, 2, 1, isize::MAX), &[8, 9, 10, 11, 20, 21, 22, 23]),
        ] {
            for dtype in SIZES {
                assert_eq!(copied(dtype, &[2, 3, 4], select), expected, "{name} {dtype}");
            }
        }
    }

    #[test]
    fn a_copy_into_a_part_leaves_the_rest() {
        let from = counted(DType::U16, &[2, 2]);
        let mut into = TensorMut::alone(&PortSpec::fixed(DType::U16, [3, 4])).unwrap();
        into.as_mut_slice::<u16>().unwrap().fill(9);
        let target = ElementView::whole(&[3, 4]).part(0, 1, 2, 1).part(1, 1, 2, 1);
        put(&from, &mut into, &target).unwrap();
        assert_eq!(into.as_slice::<u16>().unwrap(), [9, 9, 9, 9, 9, 0, 1, 9, 9, 2, 3, 9]);
        // Views of different shapes, or tensors of different types.
        let whole = ElementView::whole(&[3, 4]);
        assert!(put(&from, &mut into, &whole).is_err());
        assert!(put(&counted(DType::I16, &[3, 4]), &mut into, &whole).is_err());
        assert!(take(&from, &ElementView::whole(&[2, 2]), &mut into).is_err());
    }
}
