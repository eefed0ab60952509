//! Integers of 64 bits, which tract reads or sums as 32 bits in two places.
//!
//! It takes the result of a `Cast` to `int64` for a length, and makes lengths of 32 bits: only bools, narrower integers and lengths fit.
//! And it sums all integers as `i32`.

use super::operators::{Read, TRACT};
use crate::base::WideSum;
use std::collections::HashMap;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::StaticName;
use tract_onnx::tract_core::ops::cast::cast as typed_cast;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};
use tract_onnx::tract_core::ops::{EvalOp, Op as TractOp, TypedOp};
use tract_onnx::tract_hir::infer::{
    InferenceNode, InferenceOp, InferenceResult, Solver, TensorProxy, check_input_arity, check_output_arity,
};
use tract_onnx::tract_hir::internal::IntoExp;
use tract_onnx::tract_hir::ops::expandable::{Expansion, expand};

/// The operators that sum.
pub(super) const SUMMING: [&str; 3] = ["ReduceL1", "ReduceMean", "ReduceSum"];

/// Reads a `Cast`.
pub(super) fn cast(ctx: &ParsingContext<'_>, node: &NodeProto) -> Read {
    match node.get_attr::<DatumType>("to")? {
        DatumType::I64 => Ok((expand(CastToInt64), Vec::new())),
        _ => TRACT.0["Cast"](ctx, node),
    }
}

/// `Cast` to `int64`.
#[derive(Clone, Debug)]
struct CastToInt64;

/// Returns tract's type of what such a cast makes of elements of a type: that of lengths where they fit, as tract does.
fn cast_from(from: DatumType) -> DatumType {
    use DatumType::*;
    match from {
        I64 | U32 | U64 | F16 | F32 | F64 => I64,
        _ => TDim,
    }
}

impl Expansion for CastToInt64 {
    fn name(&self) -> StaticName {
        "Cast".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, 1)?;
        check_output_arity(outputs, 1)?;
        solver.equals(&outputs[0].shape, &inputs[0].shape)?;
        solver.given(&inputs[0].datum_type, move |solver, from| {
            solver.equals(&outputs[0].datum_type, cast_from(from).bex())
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let from = model.outlet_fact(inputs[0])?.datum_type;
        model.wire_node(prefix, typed_cast(cast_from(from)), inputs)
    }
}

/// An operator that sums, with sums of wide integers in their own type.
#[derive(Clone, Debug)]
struct Summing(Box<dyn InferenceOp>);

/// Reads an operator of [`SUMMING`].
pub(super) fn summing(ctx: &ParsingContext<'_>, node: &NodeProto) -> Read {
    let (op, taken) = TRACT.0[node.op_type.as_str()](ctx, node)?;
    Ok((Box::new(Summing(op)), taken))
}

impl PartialEq for Summing {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Summing {}

impl TractOp for Summing {
    fn name(&self) -> StaticName {
        self.0.name()
    }

    fn as_typed(&self) -> Option<&dyn TypedOp> {
        None
    }
}

impl EvalOp for Summing {
    fn eval_out_of_plan(&self, _: TVec<TValue>) -> TractResult<Option<TVec<TValue>>> {
        Ok(None)
    }
}

impl InferenceOp for Summing {
    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(TVec<InferenceFact>, TVec<InferenceFact>, TVec<InferenceFact>)> {
        self.0.infer_facts(inputs, outputs, observed)
    }

    fn nboutputs(&self) -> TractResult<usize> {
        self.0.nboutputs()
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> TractResult<TVec<OutletId>> {
        let first = target.nodes.len();
        let outputs = self.0.to_typed(source, node, target, mapping)?;
        for at in first..target.nodes.len() {
            let Some(sum) = target.nodes[at].op_as::<Reduce>().filter(|reduce| reduce.reducer == Reducer::Sum) else {
                continue;
            };
            let sum = WideSum(sum.clone());
            if is_wide(target.outlet_fact(target.nodes[at].inputs[0])?.datum_type) {
                target.nodes[at].op = Box::new(sum);
            }
        }
        Ok(outputs)
    }

    fn as_op(&self) -> &dyn TractOp {
        self
    }

    fn as_op_mut(&mut self) -> &mut dyn TractOp {
        self
    }
}

fn is_wide(of: DatumType) -> bool {
    matches!(of, DatumType::I64 | DatumType::U32 | DatumType::U64)
}
