//! Integers that tract computes otherwise in three places.
//!
//! It takes the result of a `Cast` to `int64` for a length, and makes lengths of 32 bits: only
//! bools, narrower integers and lengths fit. It sums all integers as `i32`. And `QuantizeLinear`
//! multiplies by the reciprocals of its scales.

use super::operators::{OperatorResult, TRACT};
use super::quantize::{QuantizeOperator, Quotient};
use super::wide_sum::WideSum;
use std::collections::HashMap;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::StaticName;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cast::cast as typed_cast;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::math::Div;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};
use tract_onnx::tract_core::ops::quant::{QuantizeLinearI8, QuantizeLinearU8};
use tract_onnx::tract_core::ops::{EvalOp, Op as TractOp, TypedOp};
use tract_onnx::tract_hir::infer::{
    InferenceNode, InferenceOp, InferenceResult, Solver, TensorProxy, check_input_arity, check_output_arity,
};
use tract_onnx::tract_hir::internal::IntoExp;
use tract_onnx::tract_hir::ops::expandable::{Expansion, expand};

/// The operators that sum.
pub(super) const SUMMING: [&str; 3] = ["ReduceL1", "ReduceMean", "ReduceSum"];

/// Reads a `Cast`.
pub(super) fn cast(ctx: &ParsingContext<'_>, node: &NodeProto) -> OperatorResult {
    match node.get_attr::<DatumType>("to")? {
        DatumType::I64 => Ok((expand(CastToInt64), Vec::new())),
        _ => TRACT.0["Cast"](ctx, node),
    }
}

#[derive(Clone, Debug)]
struct CastToInt64;

/// Returns tract's type of what such a cast makes of elements of a type: that of lengths where they
/// fit, as tract does.
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

/// An operator of tract's, some parts of which are replaced.
#[derive(Clone, Debug)]
struct Corrected {
    op: Box<dyn InferenceOp>,
    /// Replaces an operator of a node that it became. It has these inputs.
    correct: Correct,
}

type Correct = fn(&mut TypedModel, &[OutletId], usize) -> TractResult<()>;

fn corrected(ctx: &ParsingContext<'_>, node: &NodeProto, correct: Correct) -> OperatorResult {
    let (op, taken) = TRACT.0[node.op_type.as_str()](ctx, node)?;
    Ok((Box::new(Corrected { op, correct }), taken))
}

/// Reads an operator of [`SUMMING`].
pub(super) fn summing(ctx: &ParsingContext<'_>, node: &NodeProto) -> OperatorResult {
    corrected(ctx, node, |model, _, at| {
        let Some(sum) = model.nodes[at].op_as::<Reduce>().filter(|reduce| reduce.reducer == Reducer::Sum) else {
            return Ok(());
        };
        let sum = WideSum(sum.clone());
        if is_wide(model.outlet_fact(model.nodes[at].inputs[0])?.datum_type) {
            model.nodes[at].op = Box::new(sum);
        }
        Ok(())
    })
}

/// Reads a `QuantizeLinear`.
pub(super) fn quantize(ctx: &ParsingContext<'_>, node: &NodeProto) -> OperatorResult {
    corrected(ctx, node, |model, inputs, at| {
        // By a scale for each place along an axis.
        if model.nodes[at].op_as::<TypedBinOp>().is_some_and(|op| op.0.is::<Div>()) {
            model.nodes[at].op = Box::new(TypedBinOp(Box::new(Quotient), None));
        }
        let Some(ElementWiseOp(op, _)) = model.nodes[at].op_as::<ElementWiseOp>() else { return Ok(()) };
        let to_u8 = op.downcast_ref::<QuantizeLinearU8>().map(|op| (f32::from(op.zero_point), DatumType::U8));
        let to_i8 = || op.downcast_ref::<QuantizeLinearI8>().map(|op| (f32::from(op.zero_point), DatumType::I8));
        let Some((zero_point, to)) = to_u8.or_else(to_i8) else { return Ok(()) };
        if let Some(scale) = inputs.get(1).map(|scale| model.outlet_fact(*scale)).transpose()?
            && let Some(scale) = &scale.konst
        {
            // tract takes only one scale here, maybe in a list.
            let scale = scale.cast_to::<f32>()?.to_plain_array_view::<f32>()?.first().copied().unwrap_or(1.0);
            model.nodes[at].op = Box::new(ElementWiseOp(Box::new(QuantizeOperator { scale, zero_point, to }), None));
        }
        Ok(())
    })
}

impl PartialEq for Corrected {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Corrected {}

impl TractOp for Corrected {
    fn name(&self) -> StaticName {
        self.op.name()
    }

    fn as_typed(&self) -> Option<&dyn TypedOp> {
        None
    }
}

impl EvalOp for Corrected {
    fn eval_out_of_plan(&self, _: TVec<TValue>) -> TractResult<Option<TVec<TValue>>> {
        Ok(None)
    }
}

impl InferenceOp for Corrected {
    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(TVec<InferenceFact>, TVec<InferenceFact>, TVec<InferenceFact>)> {
        self.op.infer_facts(inputs, outputs, observed)
    }

    fn nboutputs(&self) -> TractResult<usize> {
        self.op.nboutputs()
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> TractResult<TVec<OutletId>> {
        let first = target.nodes.len();
        let outputs = self.op.to_typed(source, node, target, mapping)?;
        let inputs: Vec<OutletId> = node.inputs.iter().map(|input| mapping[input]).collect();
        for at in first..target.nodes.len() {
            (self.correct)(target, &inputs, at)?;
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
