//! Matrix products within a program, for devices whose vendor has a library for them.

use super::kernel::{Axis, Binary, Expr, Kernel, Number, Read, Scalar, Write};
use super::program::{Program, Source, Storage};
use super::shader::numbered;
use super::value::row_major;

/// Shorter sides than this are not worth a call of a library.
const SHORTEST: usize = 8;

/// The elements of an array as matrices, one for each of a batch; strides are distances of elements.
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

/// `d[m, n]` is the sum over `k` of `a[m, k] * b[k, n]`, for each matrix of a batch, and of `bias[n]`.
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
    /// Whether the kernel computes more of each element, so that `d` is an array of its own, which is still to be added.
    pub(crate) continues: bool,
}

impl Product {
    /// Returns the matrix product that a kernel begins with.
    pub(crate) fn of(program: &Program, kernel: &Kernel) -> Option<Product> {
        let fold = kernel.fold.as_ref().filter(|fold| !fold.exact)?;
        let [a, b] = fold.factors()?.map(|at| &kernel.reads[at]);
        let is_factor = |read: &Read| {
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
        // Dims that cannot be counted with the others of their side are a batch, in which the other factor is repeated.
        let apart = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)];
        apart.into_iter().find_map(|(of_m, of_n)| sides.apart(of_m, of_n)?.product(program, kernel, &factors))
    }

    /// Puts a kernel that computes only the product in front of the kernel that goes on with its elements, and adds an array for them.
    pub(crate) fn split(&mut self, program: &mut Program, at: usize) {
        let lengths = program.kernels[at].dims.clone();
        let array = program.array(Scalar::F32, lengths.iter().product(), Source::Computed);
        self.d.array = array;
        let strides = row_major(&lengths);
        let mut first = program.kernels[at].clone();
        first.values = vec![Expr::Folded];
        first.write = Write { array, offset: 0, strides: strides.clone() };
        first.fails = None;
        drop_unused(&mut first);
        let second = &mut program.kernels[at];
        let place = second.reads.len();
        let axes = strides.iter().enumerate().map(|(dim, stride)| Axis::dim(dim, *stride)).collect();
        second.reads.push(Read { array, offset: 0, axes, outside: Number::F32(0.0) });
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

/// A factor of a product, whose every index is a sum of strides.
struct Factor<'a> {
    read: &'a Read,
    offset: i64,
    /// Along each dim of the kernel and of its fold.
    strides: Vec<i64>,
}

/// Dims and their lengths.
type Dims = Vec<(usize, usize)>;

/// The dims of a product: those of the first factor only, of the second only, of the sum, and of both or neither.
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

fn length(dims: &[(usize, usize)]) -> usize {
    dims.iter().map(|(_, length)| length).product()
}

/// Returns the offset and the stride along each dim, if every index is a sum that lies inside.
fn linear(read: &Read, lengths: &[usize]) -> Option<(i64, Vec<i64>)> {
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

/// Returns the bias along `n` that is all that a kernel adds to its fold, `Some(None)` if it adds nothing.
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
    use crate::lowering::{interpret, lower};

    /// Splits all products that go on, and returns the numbers of products and of those.
    fn split_all(program: &mut Program) -> [usize; 2] {
        let (mut found, mut continued, mut at) = (0, 0, 0);
        while at < program.kernels.len() {
            if let Some(mut product) = Product::of(program, &program.kernels[at]) {
                found += 1;
                if product.continues {
                    continued += 1;
                    product.split(program, at);
                    let first = Product::of(program, &program.kernels[at]).unwrap();
                    assert_eq!(first, Product { continues: false, ..product }, "the first kernel is the product");
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
