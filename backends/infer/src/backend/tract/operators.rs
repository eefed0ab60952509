//! Operators that tract reads otherwise here: `If`, `Squeeze` without axes, and those of
//! `integers`.
//!
//! tract's own `If` analyses both branches and wants their outputs to be alike, also where the
//! condition is known. Exporters write branches of which only one fits the shapes:
//! `if x.shape[1] == 1: x = x.squeeze(1)`. And its `Squeeze` takes no lengths that are known only
//! when the model is called, or needs the axes.
//!
//! To tract a symbolic length is different from every number, also from those that it may get
//! later. So a model that compares lengths is analysed only once they are known
//! ([`compares_lengths`]).

use super::integers;
use crate::onnx::Op;
use std::collections::HashMap;
use std::sync::LazyLock;
use tract_onnx::model::{OnnxOpRegister, ParseResult, ParsingContext};
use tract_onnx::ops::logic::If;
use tract_onnx::pb::{GraphProto, NodeProto};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::{StaticName, bail, ensure};
use tract_onnx::tract_core::ops::{EvalOp, Op as TractOp, TypedOp};
use tract_onnx::tract_hir::infer::{
    Factoid, InferenceNode, InferenceOp, InferenceResult, Solver, TensorProxy, check_output_arity,
};
use tract_onnx::tract_hir::ops::array::Squeeze;
use tract_onnx::tract_hir::ops::expandable::{Expansion, expand};

/// What tract makes of a node: its operator, and the tensors around the node that its subgraphs
/// take.
pub(super) type OperatorResult = TractResult<(Box<dyn InferenceOp>, Vec<String>)>;

/// The operators of tract.
pub(super) static TRACT: LazyLock<OnnxOpRegister> = LazyLock::new(|| tract_onnx::onnx().op_register);

/// Whether a model may compare lengths with numbers.
pub(super) fn compares_lengths(ops: &[Op]) -> bool {
    let has = |id: &str| ops.iter().any(|op| op.id == id);
    has("If") || has("Equal") && (has("Shape") || has("Size"))
}

/// Returns tract's reader with these operators.
pub(super) fn reader() -> tract_onnx::Onnx {
    let mut onnx = tract_onnx::Onnx { op_register: TRACT.clone(), ..tract_onnx::Onnx::default() };
    onnx.op_register.insert("If", branches);
    onnx.op_register.insert("Squeeze", squeeze);
    onnx.op_register.insert("Cast", integers::cast);
    onnx.op_register.insert("QuantizeLinear", integers::quantize);
    integers::SUMMING.iter().for_each(|op| onnx.op_register.insert(op, integers::summing));
    onnx
}

/// A branch of an `If`.
#[derive(Clone, Debug)]
struct Branch {
    body: InferenceModel,
    /// The input of the node that each input of the body is.
    takes: Vec<usize>,
}

/// An `If` whose ruled out branch is left alone once its condition is known.
#[derive(Clone, Debug)]
struct Branches {
    holds: Branch,
    fails: Branch,
    /// For a condition that only a call decides.
    undecided: If,
}

fn branches(ctx: &ParsingContext<'_>, node: &NodeProto) -> OperatorResult {
    let parse = |name: &str| -> TractResult<ParseResult> { ctx.parse_graph(node.get_attr::<&GraphProto>(name)?) };
    let (holds, fails) = (parse("then_branch")?, parse("else_branch")?);
    let mut taken: Vec<String> = [&holds.unresolved_inputs[..], &fails.unresolved_inputs].concat();
    taken.sort();
    taken.dedup();
    let branch = |read: ParseResult| {
        // Behind the condition.
        let place = |name: &String| taken.binary_search(name).map_or(0, |at| at + 1);
        Branch { takes: read.unresolved_inputs.iter().map(place).collect(), body: read.model }
    };
    let (holds, fails) = (branch(holds), branch(fails));
    ensure!(
        holds.body.outputs.len() == fails.body.outputs.len(),
        "the branches of `If` must have the same number of outputs"
    );
    let undecided = If::new(holds.body.clone(), holds.takes.clone(), fails.body.clone(), fails.takes.clone());
    Ok((Box::new(Branches { holds, fails, undecided }), taken))
}

impl PartialEq for Branches {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for Branches {}

impl TractOp for Branches {
    fn name(&self) -> StaticName {
        "If".into()
    }

    fn as_typed(&self) -> Option<&dyn TypedOp> {
        None
    }
}

impl EvalOp for Branches {
    fn eval_out_of_plan(&self, _: TVec<TValue>) -> TractResult<Option<TVec<TValue>>> {
        Ok(None)
    }
}

/// Returns the value of a condition, if it is known.
fn known(condition: &InferenceFact) -> TractResult<Option<bool>> {
    condition.value.concretize().map(|value| value.cast_to_scalar::<bool>()).transpose()
}

impl InferenceOp for Branches {
    fn infer_facts(
        &mut self,
        inputs: TVec<&InferenceFact>,
        outputs: TVec<&InferenceFact>,
        observed: TVec<&InferenceFact>,
    ) -> TractResult<(TVec<InferenceFact>, TVec<InferenceFact>, TVec<InferenceFact>)> {
        let copy = |facts: &TVec<&InferenceFact>| facts.iter().map(|fact| (*fact).clone()).collect();
        let mut found: (TVec<InferenceFact>, TVec<InferenceFact>) = (copy(&inputs), copy(&outputs));
        let Some(condition) = found.0.first() else { bail!("`If` has no condition") };
        let Branch { body, takes } = match known(condition)? {
            Some(true) => &mut self.holds,
            Some(false) => &mut self.fails,
            None => {
                // The condition may become known, and one of the branches then need not fit.
                let all = self.undecided.infer_facts(inputs, outputs, observed.clone());
                return Ok(all.unwrap_or_else(|_| (found.0, found.1, copy(&observed))));
            }
        };
        let mut exchange = |body: &mut InferenceModel| -> TractResult<()> {
            for (at, from) in takes.iter().enumerate() {
                body.input_fact_mut(at)?.unify_with_mut(&mut found.0[*from])?;
            }
            for (at, output) in found.1.iter_mut().enumerate() {
                body.output_fact_mut(at)?.unify_with_mut(output)?;
            }
            Ok(())
        };
        exchange(body)?;
        body.analyse(false)?;
        exchange(body)?;
        Ok((found.0, found.1, copy(&observed)))
    }

    fn nboutputs(&self) -> TractResult<usize> {
        Ok(self.holds.body.outputs.len())
    }

    fn to_typed(
        &self,
        source: &InferenceModel,
        node: &InferenceNode,
        target: &mut TypedModel,
        mapping: &HashMap<OutletId, OutletId>,
    ) -> TractResult<TVec<OutletId>> {
        let Branch { body, takes } = match known(source.outlet_fact(node.inputs[0])?)? {
            Some(true) => &self.holds,
            Some(false) => &self.fails,
            None => return self.undecided.to_typed(source, node, target, mapping),
        };
        let body = body.clone().into_typed()?;
        let mut placed: HashMap<OutletId, OutletId> = HashMap::new();
        for (input, from) in std::iter::zip(body.input_outlets()?, takes) {
            placed.insert(*input, mapping[&node.inputs[*from]]);
        }
        for at in body.eval_order()? {
            let inner = body.node(at);
            if TypedModel::is_source(&inner.op) {
                continue;
            }
            let inputs: TVec<OutletId> = inner.inputs.iter().map(|input| placed[input]).collect();
            let outputs = target.wire_node(format!("{}/{}", node.name, inner.name), inner.op.clone(), &inputs)?;
            placed.extend(outputs.iter().enumerate().map(|(slot, outlet)| (OutletId::new(at, slot), *outlet)));
        }
        Ok(body.output_outlets()?.iter().map(|outlet| placed[outlet]).collect())
    }

    fn as_op(&self) -> &dyn TractOp {
        self
    }

    fn as_op_mut(&mut self) -> &mut dyn TractOp {
        self
    }
}

/// `Squeeze` of all dims of length 1.
#[derive(Clone, Debug)]
struct SqueezeAll;

fn squeeze(ctx: &ParsingContext<'_>, node: &NodeProto) -> OperatorResult {
    let axes = node.input.get(1).is_some_and(|axes| !axes.is_empty());
    match axes || node.attribute.iter().any(|attribute| attribute.name == "axes") {
        true => TRACT.0["Squeeze"](ctx, node),
        false => Ok((expand(SqueezeAll), Vec::new())),
    }
}

impl Expansion for SqueezeAll {
    fn name(&self) -> StaticName {
        "Squeeze".into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        solver: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_output_arity(outputs, 1)?;
        ensure!(!inputs.is_empty(), "`Squeeze` has no input");
        solver.equals(&outputs[0].datum_type, &inputs[0].datum_type)?;
        solver.given(&inputs[0].shape, move |solver, shape| {
            if let Some(dim) = shape.iter().find(|dim| dim.to_i64().is_err()) {
                bail!("`Squeeze` without axes expects known lengths, found {dim}");
            }
            solver.equals(&outputs[0].shape, Squeeze::new(None).output_shape(&shape)?)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        Squeeze::new(None).wire(prefix, model, inputs)
    }
}
