//! Fusion: a kernel that only continues elements of another one becomes its end, so that they are
//! not stored in between.

use super::kernel::{ArrayRead, Axis, Expr, Kernel};
use super::program::{Program, Source};

/// Distinct arrays that a kernel may read: portable devices bind eight buffers, one of which is
/// written.
const MAX_ARRAYS: usize = 7;
/// Values of a kernel; longer kernels are not faster.
const MAX_VALUES: usize = 64;

/// Fuses kernels with the one that reads their result, where no other kernel does.
pub(crate) fn fuse(program: &mut Program) {
    let mut writers = vec![Vec::new(); program.arrays.len()];
    let mut readers = vec![Vec::new(); program.arrays.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        writers[kernel.write.array].push(at);
        for array in kernel.arrays() {
            readers[array].push(at);
        }
    }
    let mut kernels: Vec<Option<Kernel>> = program.kernels.drain(..).map(Some).collect();
    for array in 0..program.arrays.len() {
        let ([writer], [reader]) = (&writers[array][..], &readers[array][..]) else { continue };
        let (writer, reader) = (*writer, *reader);
        let is_inner = matches!(program.arrays[array].source, Source::Computed);
        if !is_inner || program.outputs.iter().any(|(output, _)| *output == array) {
            continue;
        }
        let (Some(first), Some(second)) = (&kernels[writer], &kernels[reader]) else { continue };
        let Some(joined) = join(first, second) else { continue };
        for array in first.arrays() {
            // Read where the second kernel is from now on.
            readers[array].iter_mut().filter(|at| **at == writer).for_each(|at| *at = reader);
            readers[array].sort_unstable();
            readers[array].dedup();
        }
        kernels[reader] = Some(joined);
        kernels[writer] = None;
    }
    program.kernels = kernels.into_iter().flatten().collect();
}

/// Returns one kernel that does what both do, if the second reads of the first only the element at
/// its own coordinates.
fn join(first: &Kernel, second: &Kernel) -> Option<Kernel> {
    let chooses = first.suppression.is_some() || second.suppression.is_some();
    if second.fold.is_some() || first.dims != second.dims || chooses {
        return None;
    }
    let of_first = |read: &ArrayRead| read.array == first.write.array;
    let is_same = |read: &ArrayRead| {
        read.offset == first.write.offset
            && read.axes.iter().all(Axis::is_linear)
            && strides(read, second.dims.len()).is_some_and(|strides| strides == first.write.strides)
    };
    let is_table = |at: usize| second.reads.iter().any(|read| read.axes.iter().any(|axis| axis.table == Some(at)));
    let mut own = second.reads.iter().enumerate().filter(|(_, read)| of_first(read));
    if !own.all(|(at, read)| is_same(read) && !is_table(at)) || first.values.len() + second.values.len() > MAX_VALUES {
        return None;
    }
    let mut joined = first.clone();
    // The reads of the second kernel behind those of the first; its coordinates are the first ones
    // of both.
    let mut places = Vec::with_capacity(second.reads.len());
    for read in &second.reads {
        places.push((!of_first(read)).then_some(joined.reads.len()));
        if !of_first(read) {
            joined.reads.push(read.clone());
        }
    }
    for read in &mut joined.reads[first.reads.len()..] {
        for axis in &mut read.axes {
            axis.table = match axis.table {
                Some(table) => Some(places[table]?),
                None => None,
            };
        }
    }
    let before = first.values.len();
    for value in &second.values {
        joined.values.push(value.map_leaves(&mut |leaf| match leaf {
            Expr::Read(at) => places[*at].map_or(Expr::Value(before - 1), Expr::Read),
            Expr::Value(at) => Expr::Value(before + at),
            other => other.clone(),
        }));
    }
    // A kernel that may fail the call has one more buffer, where it says so.
    if joined.arrays().len() + usize::from(joined.is_exact()) > MAX_ARRAYS {
        return None;
    }
    joined.write = second.write.clone();
    joined.fails = first.fails.clone().or_else(|| second.fails.clone());
    if first.name != second.name {
        joined.name = format!("{}, {}", first.name, second.name);
    }
    Some(joined)
}

/// The strides of a read along the kernel's dims; `None` if an axis has an offset.
fn strides(read: &ArrayRead, rank: usize) -> Option<Vec<i64>> {
    let mut strides = vec![0; rank];
    for axis in &read.axes {
        if axis.offset != 0 {
            return None;
        }
        for (dim, factor) in &axis.terms {
            *strides.get_mut(*dim)? += factor * axis.stride;
        }
    }
    Some(strides)
}
