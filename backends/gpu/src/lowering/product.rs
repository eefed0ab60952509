//! Matrix products within a program, for devices whose vendor has a library for them.

use super::kernel::{ArrayRead, Binary, Expr, Kernel, Scalar};
use super::program::{Program, Source, Storage};
use super::shader::numbered;
use super::value::row_major;

/// Shorter sides than this are not worth a call of a library.
const SHORTEST: usize = 8;

/// The elements of an array as matrices, one for each of a batch; strides are distances of
/// elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) array: usize,
    pub(crate) offset: usize,
    /// From one row to the next.
    pub(crate) row: usize,
    /// From one column to the next.
    pub(crate) column: usize,
    /// From one matrix to the next.
    pub(crate) batch: usize,
}

/// `d[m, n]` is the sum over `k` of `a[m, k] * b[k, n]`, for each matrix of a batch, and of
/// `bias[n]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batches: usize,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    /// Its columns lie beside each other.
    pub(crate) d: Matrix,
    /// A constant array, and where the bias begins in it.
    pub(crate) bias: Option<(usize, usize)>,
    /// Whether the kernel computes more of each element, so that `d` is an array of its own, which
    /// is still to be added.
    pub(crate) continues: bool,
}

impl Product {
    /// Returns the matrix product that a kernel begins with.
    pub(crate) fn of(program: &Program, kernel: &Kernel) -> Option<Product> {
        let fold = kernel.fold.as_ref().filter(|fold| !fold.exact)?;
        let [a, b] = fold.factors()?.map(|at| &kernel.reads[at]);
        let is_factor = |read: &ArrayRead| {
            let array = &program.arrays[read.array];
            array.scalar == Scalar::F32 && array.storage() != Storage::Byte
        };
        if !is_factor(a) || !is_factor(b) || program.arrays[a.array].storage() != program.arrays[b.array].storage() {
            return None;
        }
        let lengths: Vec<usize> = kernel.dims.iter().chain(&fold.dims).copied().collect();
        let (a_at, b_at) = (linear(a, &lengths)?, linear(b, &lengths)?);
        let [mut m, mut n, batch] = kernel.sides(a, b);
        let (mut a, mut b) = ((a, a_at), (b, b_at));
        if m.last().map(|(dim, _)| dim) > n.last().map(|(dim, _)| dim) {
            (m, n, a, b) = (n, m, b, a);
        }
        let sides = Sides { m, n, k: numbered(&fold.dims, kernel.dims.len()), batch };
        let factors =
            [Factor { read: a.0, offset: a.1.0, strides: a.1.1 }, Factor { read: b.0, offset: b.1.0, strides: b.1.1 }];
        // Dims that cannot be counted with the others of their side are a batch, in which the other
        // factor is repeated.
        let apart = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)];
        apart.into_iter().find_map(|(of_m, of_n)| sides.apart(of_m, of_n)?.product(program, kernel, &factors))
    }
}

/// A factor of a product, whose every index is a sum of strides.
struct Factor<'a> {
    read: &'a ArrayRead,
    offset: i64,
    /// Along each dim of the kernel and of its fold.
    strides: Vec<i64>,
}

/// Dims and their lengths.
type Dims = Vec<(usize, usize)>;

/// The dims of a product: those of the first factor only, of the second only, of the sum, and of
/// both or neither.
struct Sides {
    m: Dims,
    n: Dims,
    k: Dims,
    batch: Dims,
}

impl Sides {
    /// Counts so many of the first dims of `m` and of `n` as a batch.
    fn apart(&self, of_m: usize, of_n: usize) -> Option<Sides> {
        let ((more_m, m), (more_n, n)) = (self.m.split_at_checked(of_m)?, self.n.split_at_checked(of_n)?);
        let mut batch = [&self.batch[..], more_m, more_n].concat();
        batch.sort_unstable();
        Some(Sides { m: m.to_vec(), n: n.to_vec(), k: self.k.clone(), batch })
    }

    /// Returns the product with these sides, if each can be counted as one.
    fn product(&self, program: &Program, kernel: &Kernel, factors: &[Factor<'_>; 2]) -> Option<Product> {
        let Sides { m, n, k, batch } = self;
        if [m, n, k].into_iter().any(|dims| length(dims) < SHORTEST) {
            return None;
        }
        let matrix = |array: usize, offset: i64, strides: &[i64], [rows, columns]: [&Dims; 2]| {
            let [row, column, batch] = [rows, columns, batch].map(|dims| merged(dims, strides));
            let offset = usize::try_from(offset).ok()?;
            Some(Matrix { array, offset, row: row?, column: column?, batch: batch? })
        };
        let of = |Factor { read, offset, strides }: &Factor<'_>, sides| matrix(read.array, *offset, strides, sides);
        let (a, b) = (of(&factors[0], [m, k])?, of(&factors[1], [k, n])?);
        // Libraries take matrices whose rows or whose columns have no gaps.
        let is_dense = |matrix: &Matrix, [rows, columns]: [&Dims; 2]| {
            matrix.column == 1 && matrix.row >= length(columns) || matrix.row == 1 && matrix.column >= length(rows)
        };
        if !is_dense(&a, [m, k]) || !is_dense(&b, [k, n]) {
            return None;
        }
        let is_plain = |d: &Matrix| d.column == 1 && d.row >= length(n);
        // Where the kernel writes, if it computes no more than a bias and the library can write so.
        let written = || {
            let write = &kernel.write;
            let storage = program.arrays[write.array].storage();
            let fits = storage == Storage::Word(Scalar::F32) || storage == program.arrays[a.array].storage();
            let d = matrix(write.array, write.offset, &write.strides, [m, n]).filter(is_plain)?;
            let lengths: Vec<usize> = kernel.dims.iter().chain(&kernel.fold.as_ref()?.dims).copied().collect();
            let bias = bias(program, kernel, n, &lengths, storage)?;
            fits.then_some((d, bias))
        };
        let own = || Some((matrix(usize::MAX, 0, &row_major(&kernel.dims), [m, n]).filter(is_plain)?, None));
        let written = written();
        let continues = written.is_none();
        let (d, bias) = written.or_else(own)?;
        let (m, n, k, batches) = (length(m), length(n), length(k), length(batch));
        Some(Product { m, n, k, batches, a, b, d, bias, continues })
    }
}

fn length(dims: &[(usize, usize)]) -> usize {
    dims.iter().map(|(_, length)| length).product()
}

/// Returns the offset and the stride along each dim, if every index is a sum that lies inside.
pub(super) fn linear(read: &ArrayRead, lengths: &[usize]) -> Option<(i64, Vec<i64>)> {
    let (mut offset, mut strides) = (read.offset, vec![0; lengths.len()]);
    for axis in &read.axes {
        let ends = |end: fn(i64) -> i64| {
            let along = axis.terms.iter().map(|(dim, factor)| end(factor * (lengths[*dim] as i64 - 1)));
            axis.offset + along.sum::<i64>()
        };
        let is_inside = axis.limit.is_none_or(|limit| ends(|end| end.min(0)) >= 0 && ends(|end| end.max(0)) < limit);
        if axis.table.is_some() || axis.divisor != 1 || !is_inside {
            return None;
        }
        offset += axis.offset * axis.stride;
        for (dim, factor) in &axis.terms {
            strides[*dim] += factor * axis.stride;
        }
    }
    Some((offset, strides))
}

/// Returns the one stride of several dims, if they can be counted as one.
fn merged(dims: &[(usize, usize)], strides: &[i64]) -> Option<usize> {
    let is_one = |pair: &[(usize, usize)]| strides[pair[0].0] == strides[pair[1].0] * pair[1].1 as i64;
    let last = dims.last().map_or(0, |(dim, _)| strides[*dim]);
    dims.windows(2).all(is_one).then(|| usize::try_from(last).ok())?
}

/// Returns the bias along `n` that is all that a kernel adds to its fold, `Some(None)` if it adds
/// nothing.
fn bias(
    program: &Program,
    kernel: &Kernel,
    n: &[(usize, usize)],
    lengths: &[usize],
    storage: Storage,
) -> Option<Option<(usize, usize)>> {
    let [.., value] = &kernel.values[..] else { return None };
    // A later value that is an earlier one.
    let value = match value {
        Expr::Binary(op, a, b) if kernel.values.len() == 2 => {
            let first = |expr: &Expr| if *expr == Expr::Value(0) { kernel.values[0].clone() } else { expr.clone() };
            Expr::Binary(*op, first(a).into(), first(b).into())
        }
        value if kernel.values.len() == 1 => value.clone(),
        _ => return None,
    };
    let at = match &value {
        Expr::Folded => return Some(None),
        Expr::Binary(Binary::Add, a, b) => match (&**a, &**b) {
            (Expr::Folded, Expr::Read(at)) | (Expr::Read(at), Expr::Folded) => *at,
            _ => return None,
        },
        _ => return None,
    };
    let read = &kernel.reads[at];
    let array = &program.arrays[read.array];
    let (offset, strides) = linear(read, lengths)?;
    let along_others = (0..lengths.len()).any(|dim| n.iter().all(|(n, _)| *n != dim) && strides[dim] != 0);
    let is_bias = matches!(array.source, Source::Constant(_))
        && array.scalar == Scalar::F32
        && array.storage() == storage
        && merged(n, &strides) == Some(1)
        && !along_others;
    is_bias.then_some(Some((read.array, usize::try_from(offset).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::test_cases::{compare, conv, device_bits, products, small_graphs};
    use crate::lowering::{Routine, interpret, lower};

    /// Splits all products that go on, and returns the numbers of products and of those.
    fn split_all(program: &mut Program) -> [usize; 2] {
        let (mut found, mut continued, mut at) = (0, 0, 0);
        while at < program.kernels.len() {
            if let Some(product) = Product::of(program, &program.kernels[at]) {
                found += 1;
                if product.continues {
                    continued += 1;
                    let mut routine = Routine::Product(product.clone());
                    routine.split(program, at);
                    let d = Matrix { array: routine.arrays()[2], ..product.d };
                    let first = Product::of(program, &program.kernels[at]).unwrap();
                    assert_eq!(first, Product { continues: false, d, ..product }, "the first kernel is the product");
                    at += 1;
                }
            }
            at += 1;
        }
        [found, continued]
    }

    /// What the matrices of a product hold, computed from the arrays of a call.
    fn elements(program: &Program, product: &Product, a: &[u32], b: &[u32]) -> Vec<f32> {
        let at = |bits: &[u32], matrix: &Matrix, batch: usize, row: usize, column: usize| {
            f32::from_bits(bits[matrix.offset + batch * matrix.batch + row * matrix.row + column * matrix.column])
        };
        let mut d = vec![0.0; program.arrays[product.d.array].len];
        for batch in 0..product.batches {
            for (m, n) in (0..product.m).flat_map(|m| (0..product.n).map(move |n| (m, n))) {
                let sum: f32 =
                    (0..product.k).map(|k| at(a, &product.a, batch, m, k) * at(b, &product.b, batch, k, n)).sum();
                d[product.d.offset + batch * product.d.batch + m * product.d.row + n] = sum;
            }
        }
        d
    }

    #[test]
    fn products_are_found_and_split_from_what_goes_on_with_them() {
        for (case, [found, continued, _]) in products() {
            let name = &case.name;
            let mut program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(split_all(&mut program), [found, continued], "{name}: {:?}", program.kernels);
            let inputs = case.inputs(1);
            let bits: Vec<Vec<u32>> = inputs.iter().map(device_bits).collect();
            let bits: Vec<&[u32]> = bits.iter().map(Vec::as_slice).collect();
            let outputs = interpret(&program, &bits).unwrap();
            let outputs: Vec<Vec<f32>> =
                outputs.into_iter().map(|bits| bits.into_iter().map(f32::from_bits).collect()).collect();
            let expected = case.expected(&inputs);
            compare(name, &outputs, &expected);
            // Without an end, the matrices alone give the output.
            if let [kernel] = &program.kernels[..]
                && let Some(product) = Product::of(&program, kernel).filter(|product| product.bias.is_none())
            {
                let array = |array: usize| match &program.arrays[array].source {
                    Source::Constant(bits) => bits.to_vec(),
                    _ => bits[0].to_vec(),
                };
                let d = elements(&program, &product, &array(product.a.array), &array(product.b.array));
                compare(name, &[d], &expected);
            }
        }
    }

    #[test]
    fn models_have_the_same_numbers_with_products_apart() {
        for case in small_graphs().into_iter().chain([conv(1, 9, 9, 9)]) {
            let name = &case.name;
            let mut program = lower(&case.model).unwrap_or_else(|error| panic!("{name}: {error}"));
            split_all(&mut program);
            let inputs = case.inputs(2);
            let bits: Vec<Vec<u32>> = inputs.iter().map(device_bits).collect();
            let bits: Vec<&[u32]> = bits.iter().map(Vec::as_slice).collect();
            let outputs = interpret(&program, &bits).unwrap_or_else(|error| panic!("{name}: {error}"));
            let is_float = |(array, _): &(usize, Vec<usize>)| program.arrays[*array].scalar == Scalar::F32;
            assert!(program.outputs.iter().all(is_float), "{name}");
            let outputs: Vec<Vec<f32>> =
                outputs.into_iter().map(|bits| bits.into_iter().map(f32::from_bits).collect()).collect();
            compare(name, &outputs, &case.expected(&inputs));
        }
    }
}
