//! Several tensors as the rows of one.

use crate::tensor::view::{self, ElementView, Lengths};
use crate::tensor::{cost, joined, shape};
use limen::Tensor;
use limen::message::{Dim, MAX_RANK, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Joins the tensors of several inputs along a new dim.
///
/// For example, two tensors of shape `[4,3]` become `[2,4,3]`. Inputs may have any names. The node
/// joins the tensors in the order of the inputs in the graph file.
///
/// All inputs must have the same element type and shape. If variable lengths (`≤n`) differ within a
/// set of messages, the call fails. `join` determines the header of the output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct StackConfig {
    /// Position of the new dim. A negative number counts from the end: -1 makes the new dim the
    /// last dim. Default: 0.
    #[serde(default)]
    pub dim: i64,
}

/// Runs `kind: stack`; [`StackConfig`] says what it does.
#[derive(Debug)]
pub struct Stack {
    dim: usize,
    inputs: Vec<String>,
}

fn planned(config: &StackConfig, given: &Connected, errors: &mut PlanErrors) -> Option<PortSpec> {
    let rank = given.inputs().find_map(|(_, spec)| Some(spec?.shape.len()))?;
    let dim = shape::place(config.dim, rank + 1);
    if dim.is_none() {
        let message = format!("`dim` must be -{} to {rank}, got {}", rank + 1, config.dim);
        errors.at("dim", message).help(format!("write 0 to {rank}, or -1 for the last dim"));
    }
    let mut out = joined::common(given, None, errors)?;
    if rank >= MAX_RANK {
        let message = format!("an input must have at most {} dims, got {out}", MAX_RANK - 1);
        errors.node(message).help("add a `reshape` node upstream");
    }
    out.shape.insert(dim?, Dim::Fixed(given.inputs().count()));
    Some(PortSpec::new(out.dtype, out.shape.iter().cloned()).with_orientation_of(&out))
}

impl Node for Stack {
    type Config = StackConfig;

    fn ports(config: &StackConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = joined::takes(given, &mut errors);
        let out = planned(config, given, &mut errors);
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(ports, out).cost(cost))
    }

    fn build(config: StackConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let rank = cx.inputs().iter().find_map(|(_, spec)| Some(spec.as_ref()?.shape.len()));
        let dim = rank.and_then(|rank| shape::place(config.dim, rank + 1)).unwrap_or(0);
        Ok(Stack { dim, inputs: joined::names(cx) })
    }
}

impl Transform for Stack {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let mut tensor = out.loan(header)?;
        joined::check(&self.inputs, &input, None)?;
        let mut lengths: Lengths = input[0].body.shape().iter().copied().collect();
        lengths.insert(self.dim, input.len());
        shape::set_shape(&mut tensor, &lengths)?;
        let whole = ElementView::whole(&lengths);
        for (at, part) in input.iter().map(|message| &message.body).enumerate() {
            let target = whole.clone().index(self.dim, at);
            view::put(part, &mut tensor, &target)?;
        }
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_dim_counts_the_inputs() {
        for (dim, inputs, expected) in [
            (0, &["f32", "f32", "f32"][..], "f32[3]"),
            (0, &["f32[2,3]", "f32[2,3]"], "f32[2,2,3]"),
            (1, &["f32[4,3]", "f32[4,3]"], "f32[4,2,3]"),
            (-1, &["f32[<=4,3]", "f32[<=5,3]"], "f32[≤4,3,2]"),
            (2, &["f32[4]", "f32[4]"], "write 0 to 1"),
            (-3, &["f32[4]", "f32[4]"], "`dim` must be -2 to 1, got -3"),
            (0, &["f32[2,3]", "f32[4,3]"], "expected the shape of `0` (f32[2,3]), found f32[4,3]"),
            (0, &["u8[1,1,1,1,1,1]", "u8[1,1,1,1,1,1]"], "an input must have at most 5 dims"),
        ] {
            let given = inputs.iter().enumerate().map(|(n, spec)| (n.to_string(), spec.parse().ok()));
            let mut errors = PlanErrors::default();
            let out = planned(&StackConfig { dim }, &Connected::of(given), &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(out.unwrap().to_string(), expected),
                Err(errors) => assert!(format!("{errors:?}").contains(expected), "{inputs:?}: {errors:?}"),
            }
        }
    }
}
