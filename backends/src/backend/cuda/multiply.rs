//! The matrix products of a program that cuBLASLt computes, where it is there and has an algorithm for them.

use crate::lowering::{Half, Matrix, Product, Program, Scalar, Storage};
use limen_cuda::{Buffer, Context, Element, Multiplication, Operand};
use std::sync::Arc;

/// A product that is ready to run.
pub(super) struct Multiply {
    pub(super) product: Arc<limen_cuda::Product>,
    /// The arrays of both factors and the result.
    pub(super) arrays: [usize; 3],
}

/// Returns the program with an array for each product whose kernel computes more of its elements, and the products, by their kernels.
pub(super) fn with_products(context: &Arc<Context>, program: &Arc<Program>) -> (Arc<Program>, Vec<Option<Product>>) {
    let find = |kernel| {
        let found = Product::of(program, kernel)?;
        limen_cuda::Product::new(context, &multiplication(program, &found, None)).ok().map(|_| found)
    };
    let found: Vec<Option<Product>> = program.kernels.iter().map(find).collect();
    if found.iter().flatten().all(|product| !product.continues) {
        return (program.clone(), found);
    }
    let (mut changed, mut products) = ((**program).clone(), Vec::new());
    for product in found {
        match product {
            Some(mut product) if product.continues => {
                product.split(&mut changed, products.len());
                products.extend([Some(product), None]);
            }
            product => products.push(product),
        }
    }
    (Arc::new(changed), products)
}

/// Prepares the products, whose biases are in the memory of these arrays. A kernel of limen's own does what cuBLASLt refuses.
pub(super) fn bound(
    context: &Arc<Context>,
    program: &Program,
    products: Vec<Option<Product>>,
    arrays: &[Arc<Buffer>],
) -> Vec<Option<Multiply>> {
    let prepare = |product: Product| {
        let bias = product.bias.map(|(array, offset)| (arrays[array].clone(), offset));
        let made = limen_cuda::Product::new(context, &multiplication(program, &product, bias)).ok()?;
        let arrays = [product.a.array, product.b.array, product.d.array];
        Some(Multiply { product: Arc::new(made), arrays })
    };
    products.into_iter().map(|product| product.and_then(prepare)).collect()
}

fn multiplication(program: &Program, product: &Product, bias: Option<(Arc<Buffer>, usize)>) -> Multiplication {
    let operand = |matrix: &Matrix| {
        let Matrix { offset, row, column, batch, .. } = *matrix;
        Operand { offset, row, column, batch }
    };
    // The result of a product that is split from its kernel has no array yet.
    let element =
        |array: usize| match program.arrays.get(array).map_or(Storage::Word(Scalar::F32), |array| array.storage()) {
            Storage::Half => match program.half {
                Half::F16 => Element::F16,
                Half::Bf16 => Element::Bf16,
            },
            Storage::Word(_) | Storage::Byte => Element::F32,
        };
    Multiplication {
        m: product.m,
        n: product.n,
        k: product.k,
        batches: product.batches,
        factors: element(product.a.array),
        result: element(product.d.array),
        a: operand(&product.a),
        b: operand(&product.b),
        d: operand(&product.d),
        tf32: program.tf32,
        bias,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lowering::lower;
    use crate::lowering::test_cases::matmul;

    #[test]
    fn products_are_in_tf32_only_if_the_program_is() {
        let mut program = lower(&matmul(16, 16, 16).model).unwrap();
        let product = Product::of(&program, &program.kernels[0]).unwrap();
        assert!(!multiplication(&program, &product, None).tf32);
        program.tf32 = true;
        assert!(multiplication(&program, &product, None).tf32);
    }
}
