//! The matrix products and convolutions of a program that NVIDIA's libraries compute, where they
//! are there and have an algorithm.

use crate::lowering::{Convolution, Half, Images, Matrix, Product, Program, Routine, Scalar, Storage};
use limen_cuda::{Buffer, Context, ConvolutionSpec, ElementType, Error, Multiplication, Operand};
use std::sync::Arc;

/// A routine that is ready to run.
pub(super) struct RoutineCall {
    pub(super) routine: limen_cuda::Routine,
    /// The arrays of both factors and the result.
    pub(super) arrays: [usize; 3],
}

/// Returns the program with an array for each routine whose kernel computes more of its elements,
/// and the routines, by their kernels.
pub(super) fn with_routines(context: &Arc<Context>, program: &Arc<Program>) -> (Arc<Program>, Vec<Option<Routine>>) {
    let find = |kernel| {
        let found = Routine::of(program, kernel)?;
        prepared(context, program, &found, None).ok().map(|_| found)
    };
    let found: Vec<Option<Routine>> = program.kernels.iter().map(find).collect();
    if !found.iter().flatten().any(Routine::is_apart) {
        return (program.clone(), found);
    }
    let (mut changed, mut routines) = ((**program).clone(), Vec::new());
    for routine in found {
        let Some(mut routine) = routine else {
            routines.push(None);
            continue;
        };
        let copies = routine.lay_out(&mut changed, routines.len());
        routines.extend((0..copies).map(|_| None));
        if routine.continues() {
            routine.split(&mut changed, routines.len());
            routines.extend([Some(routine), None]);
        } else {
            routines.push(Some(routine));
        }
    }
    (Arc::new(changed), routines)
}

/// Prepares the routines; biases are in the memory of these arrays. A kernel of limen's own does
/// what a library refuses.
pub(super) fn bound(
    context: &Arc<Context>,
    program: &Program,
    routines: Vec<Option<Routine>>,
    arrays: &[Arc<Buffer>],
) -> Vec<Option<RoutineCall>> {
    let prepare = |of: Routine| {
        let routine = prepared(context, program, &of, Some(arrays)).ok()?;
        Some(RoutineCall { routine, arrays: of.arrays() })
    };
    routines.into_iter().map(|routine| routine.and_then(prepare)).collect()
}

/// Prepares a routine, with its bias if there is memory.
fn prepared(
    context: &Arc<Context>,
    program: &Program,
    routine: &Routine,
    arrays: Option<&[Arc<Buffer>]>,
) -> Result<limen_cuda::Routine, Error> {
    Ok(match routine {
        Routine::Product(product) => {
            let bias = product.bias.and_then(|(array, offset)| Some((arrays?.get(array)?.clone(), offset)));
            let made = limen_cuda::Product::new(context, &multiplication(program, product, bias))?;
            limen_cuda::Routine::Product(Arc::new(made))
        }
        Routine::Convolution(convolution) => {
            let made = limen_cuda::Convolution::new(context, &window(program, convolution))?;
            limen_cuda::Routine::Convolution(Arc::new(made))
        }
    })
}

/// The elements of an array; the result of a product that is split from its kernel has none yet.
fn element(program: &Program, array: usize) -> ElementType {
    match program.arrays.get(array).map_or(Storage::Word(Scalar::F32), |array| array.storage()) {
        Storage::Half => match program.half {
            Half::F16 => ElementType::F16,
            Half::Bf16 => ElementType::Bf16,
        },
        Storage::Word(_) | Storage::Byte => ElementType::F32,
    }
}

fn multiplication(program: &Program, product: &Product, bias: Option<(Arc<Buffer>, usize)>) -> Multiplication {
    let operand = |matrix: &Matrix| {
        let Matrix { offset, row, column, batch, .. } = *matrix;
        Operand { offset, row, column, batch }
    };
    Multiplication {
        m: product.m,
        n: product.n,
        k: product.k,
        batches: product.batches,
        factors: element(program, product.a.array),
        result: element(program, product.d.array),
        a: operand(&product.a),
        b: operand(&product.b),
        d: operand(&product.d),
        tf32: program.tf32,
        bias,
    }
}

fn window(program: &Program, convolution: &Convolution) -> ConvolutionSpec {
    let images = |images: &Images| {
        let Images { offset, lengths, strides, .. } = *images;
        limen_cuda::Images { offset, lengths, strides }
    };
    ConvolutionSpec {
        x: images(&convolution.x),
        w_offset: convolution.w.1,
        w: convolution.taps,
        y: images(&convolution.y),
        transposed: convolution.is_transposed,
        groups: convolution.groups,
        pads: convolution.pads,
        strides: convolution.strides,
        dilations: convolution.dilations,
        element: element(program, convolution.w.0),
        tf32: program.tf32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::lower;
    use crate::lowering::test_cases::{conv, matmul};

    #[test]
    fn routines_are_in_tf32_only_if_the_program_is() {
        for (case, is_product) in [(matmul(16, 16, 16), true), (conv(1, 3, 5, 9), false)] {
            let mut program = lower(&case.model).unwrap();
            for tf32 in [false, true] {
                program.tf32 = tf32;
                let found = match Routine::of(&program, &program.kernels[0]).unwrap() {
                    Routine::Product(product) if is_product => multiplication(&program, &product, None).tf32,
                    Routine::Convolution(convolution) if !is_product => window(&program, &convolution).tf32,
                    other => panic!("{other:?}"),
                };
                assert_eq!(found, tf32);
            }
        }
    }
}
