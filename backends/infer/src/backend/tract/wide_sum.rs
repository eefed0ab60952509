//! The sum of wide integers that replaces tract's.

use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::{EvalContext, StaticName, as_op, bail, op_as_typed_op, op_out_of_plan};
use tract_onnx::tract_core::ops::nn::Reduce;
use tract_onnx::tract_core::ops::{EvalOp, Op as TractOp, TypedOp};

/// A sum of integers that need more than 32 bits with a sign. It wraps, as NumPy's does.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub struct WideSum(pub Reduce);

impl TractOp for WideSum {
    fn name(&self) -> StaticName {
        "WideSum".into()
    }

    op_as_typed_op!();
}

impl EvalOp for WideSum {
    op_out_of_plan!();

    fn eval(&self, _: &EvalContext<'_>, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        macro_rules! sum {
            ($t:ty) => {{
                let mut sums = inputs[0].to_plain_array_view::<$t>()?.to_owned();
                for axis in self.0.axes.iter().map(|axis| tract_ndarray::Axis(*axis)) {
                    sums = sums.fold_axis(axis, 0, |sum: &$t, x| sum.wrapping_add(*x)).insert_axis(axis);
                }
                sums.into_tensor()
            }};
        }
        let sums = match inputs[0].datum_type() {
            DatumType::I64 => sum!(i64),
            DatumType::U32 => sum!(u32),
            DatumType::U64 => sum!(u64),
            other => bail!("a sum must be of i64, u32 or u64, got {other:?}"),
        };
        Ok(tvec!(sums.into_tvalue()))
    }
}

impl TypedOp for WideSum {
    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let mut shape = inputs[0].shape.to_tvec();
        self.0.axes.iter().for_each(|axis| shape[*axis] = 1.into());
        Ok(tvec!(inputs[0].datum_type.fact(shape)))
    }

    as_op!();
}
