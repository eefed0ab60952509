//! The parts of a program that a vendor's library has a routine for.

use super::convolution::Convolution;
use super::kernel::{ArrayRead, Axis, Expr, Kernel, Number, Scalar, Write};
use super::product::Product;
use super::program::{Program, Source, Storage};
use super::value::row_major;

/// What a library computes instead of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Routine {
    Product(Product),
    Convolution(Box<Convolution>),
}

impl Routine {
    /// Returns what a kernel begins with.
    pub(crate) fn of(program: &Program, kernel: &Kernel) -> Option<Routine> {
        let product = Product::of(program, kernel).map(Routine::Product);
        product.or_else(|| Convolution::of(program, kernel).map(|found| Routine::Convolution(found.into())))
    }

    /// Whether the kernel computes more of each element, so that the result is an array of its own,
    /// which is still to be added.
    pub(crate) fn continues(&self) -> bool {
        match self {
            Routine::Product(product) => product.continues,
            Routine::Convolution(convolution) => convolution.continues,
        }
    }

    /// Whether arrays are still to be added before it can be computed.
    pub(crate) fn is_apart(&self) -> bool {
        match self {
            Routine::Product(product) => product.continues,
            Routine::Convolution(convolution) => convolution.is_apart(),
        }
    }

    /// Adds arrays of the factors where they do not lie as a library wants them, and returns how
    /// many kernels it puts in front of its own.
    pub(crate) fn lay_out(&mut self, program: &mut Program, at: usize) -> usize {
        let Routine::Convolution(convolution) = self else { return 0 };
        convolution.reorder(program, at);
        let count = program.kernels.len();
        convolution.pad(program, at);
        program.kernels.len() - count
    }

    /// The arrays of both factors and the result.
    pub(crate) fn arrays(&self) -> [usize; 3] {
        match self {
            Routine::Product(product) => [product.a.array, product.b.array, product.d.array],
            Routine::Convolution(convolution) => [convolution.x.array, convolution.w.0, convolution.y.array],
        }
    }

    /// Puts a kernel that computes only the routine in front of the kernel that goes on with its
    /// elements, and adds an array for them.
    pub(crate) fn split(&mut self, program: &mut Program, at: usize) {
        let dims = &program.kernels[at].dims;
        let larger = match self {
            Routine::Convolution(convolution) => convolution.larger.take(),
            Routine::Product(_) => None,
        };
        let larger = larger.unwrap_or_else(|| dims.iter().map(|length| (*length, 0)).collect());
        let (lengths, before): (Vec<usize>, Vec<usize>) = larger.into_iter().unzip();
        let array = program.array(Scalar::F32, lengths.iter().product(), Source::Computed);
        match self {
            Routine::Product(product) => product.d.array = array,
            Routine::Convolution(convolution) => {
                // A convolution has elements of one type.
                program.arrays[array].is_half = program.arrays[convolution.x.array].storage() == Storage::Half;
                convolution.y.array = array;
            }
        }
        let strides = row_major(&lengths);
        let mut first = program.kernels[at].clone();
        first.values = vec![Expr::Folded];
        first.write = Write { array, offset: 0, strides: strides.clone() };
        first.fails = None;
        first.dims.clone_from(&lengths);
        for axis in first.reads.iter_mut().flat_map(|read| &mut read.axes) {
            let before = |(dim, factor): &(usize, i64)| before.get(*dim).map_or(0, |before| *before as i64 * factor);
            axis.offset -= axis.terms.iter().map(before).sum::<i64>();
        }
        drop_unused(&mut first);
        let second = &mut program.kernels[at];
        let place = second.reads.len();
        let axes = strides.iter().enumerate().map(|(dim, stride)| Axis::dim(dim, *stride)).collect();
        let offset = std::iter::zip(&before, &strides).map(|(before, stride)| *before as i64 * stride).sum();
        second.reads.push(ArrayRead { array, offset, axes, outside: Number::F32(0.0) });
        second.fold = None;
        for value in &mut second.values {
            *value = value.map_leaves(&mut |leaf| match leaf {
                Expr::Folded => Expr::Read(place),
                other => other.clone(),
            });
        }
        drop_unused(second);
        program.kernels.insert(at, first);
    }
}

/// Removes reads that nothing uses, so that their arrays are no arguments any more.
fn drop_unused(kernel: &mut Kernel) {
    let mut is_used = vec![false; kernel.reads.len()];
    for value in kernel.values.iter().chain(kernel.fold.as_ref().map(|fold| &fold.value)) {
        value.map_leaves(&mut |leaf| {
            if let Expr::Read(at) = leaf {
                is_used[*at] = true;
            }
            leaf.clone()
        });
    }
    // A table lies before or behind the reads that use it.
    let mut pending: Vec<usize> = (0..is_used.len()).filter(|at| is_used[*at]).collect();
    while let Some(at) = pending.pop() {
        for table in kernel.reads[at].axes.iter().filter_map(|axis| axis.table) {
            if !std::mem::replace(&mut is_used[table], true) {
                pending.push(table);
            }
        }
    }
    let mut next = 0;
    let places: Vec<usize> = is_used
        .iter()
        .map(|is_used| {
            next += usize::from(*is_used);
            next.saturating_sub(1)
        })
        .collect();
    for value in kernel.values.iter_mut().chain(kernel.fold.as_mut().map(|fold| &mut fold.value)) {
        *value = value.map_leaves(&mut |leaf| match leaf {
            Expr::Read(at) => Expr::Read(places[*at]),
            other => other.clone(),
        });
    }
    let mut at = 0;
    kernel.reads.retain(|_| {
        at += 1;
        is_used[at - 1]
    });
    for axis in kernel.reads.iter_mut().flat_map(|read| &mut read.axes) {
        axis.table = axis.table.map(|table| places[table]);
    }
}
