//! Several tensors joined at their ends.

use crate::tensor::view::{self, ElementView, Lengths};
use crate::tensor::{cost, joined, shape};
use limen::Tensor;
use limen::message::{Dim, Label, PortSpec};
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Joins the tensors of several inputs along an existing dim.
///
/// For example, `[2,3]` and `[4,3]` become `[6,3]`. Inputs may have any names. The node joins the
/// tensors in the order of the inputs in the graph file.
///
/// The element type, and the lengths of all other dims, must be the same for all inputs. If
/// variable lengths (`≤n`) differ within a set of messages, the call fails. `join` determines the
/// header of the output.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ConcatConfig {
    /// Dim along which the node joins the tensors. A negative number counts from the end: -1 is the
    /// last dim. Default: 0.
    #[serde(default)]
    pub dim: i64,
}

/// Runs `kind: concat`; [`ConcatConfig`] says what it does.
#[derive(Debug)]
pub struct Concat {
    dim: usize,
    inputs: Vec<String>,
}

/// Returns the length of all tensors together; `None` if it has no bound.
fn total<'a>(mut lengths: impl Iterator<Item = &'a Dim>) -> Option<Dim> {
    lengths.try_fold(Dim::Fixed(0), |sum, length| {
        // A sum that saturates does not fit into memory, which the engine reports.
        let both = sum.max()?.saturating_add(length.max()?);
        let is_fixed = matches!((&sum, length), (Dim::Fixed(_), Dim::Fixed(_)));
        Some(if is_fixed { Dim::Fixed(both) } else { Dim::AtMost(both) })
    })
}

fn planned(config: &ConcatConfig, given: &Connected, errors: &mut PlanErrors) -> Option<PortSpec> {
    let dim = shape::named_dim(given.inputs().find_map(|(_, spec)| spec)?, config.dim, errors)?;
    let mut out = joined::common(given, Some(dim), errors)?;
    out.shape[dim] = total(given.inputs().filter_map(|(_, spec)| spec?.shape.get(dim)))?;
    if dim + 1 < out.shape.len() {
        return Some(out);
    }
    // Some inputs may have no labels, but the places of the others follow from their lengths.
    let labels =
        given.inputs().filter_map(|(_, spec)| spec).flat_map(|spec| match (spec.labels(), spec.shape.last()) {
            ([], Some(Dim::Fixed(length))) if *length <= Label::MAX_COUNT => vec![Label::default(); *length],
            (labels, _) => labels.to_vec(),
        });
    let labels: Vec<Label> = labels.collect();
    let has_some = labels.iter().any(|label| *label != Label::default());
    Some(out.with_labels(if has_some { labels } else { Vec::new() }))
}

impl Node for Concat {
    type Config = ConcatConfig;

    fn ports(config: &ConcatConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let ports = joined::takes(given, &mut errors);
        let out = planned(config, given, &mut errors);
        let cost = cost::of_spec(out.as_ref());
        errors.into_result(shape::gives(ports, out).cost(cost))
    }

    fn build(config: ConcatConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let rank = cx.inputs().iter().find_map(|(_, spec)| Some(spec.as_ref()?.shape.len()));
        let dim = rank.and_then(|rank| shape::place(config.dim, rank)).unwrap_or(0);
        Ok(Concat { dim, inputs: joined::names(cx) })
    }
}

impl Transform for Concat {
    type In = Many<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let header = out.header_of::<Self::In>(&input);
        let mut tensor = out.loan(header)?;
        joined::check(&self.inputs, &input, Some(self.dim))?;
        let length = |tensor: &Tensor| tensor.shape().get(self.dim).copied().unwrap_or(0);
        let mut lengths: Lengths = input[0].body.shape().iter().copied().collect();
        if let Some(joined) = lengths.get_mut(self.dim) {
            *joined = input.iter().map(|message| length(&message.body)).sum();
        }
        shape::set_shape(&mut tensor, &lengths)?;
        let (whole, mut at) = (ElementView::whole(&lengths), 0);
        for part in input.iter().map(|message| &message.body) {
            let target = whole.clone().part(self.dim, at, length(part), 1);
            view::put(part, &mut tensor, &target)?;
            at += length(part);
        }
        out.send(tensor);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up_along_one_dim() {
        for (dim, inputs, expected) in [
            (0, &["f32[2,3]", "f32[4,3]"][..], "f32[6,3]"),
            (-1, &["f32[2,3]", "f32[2,1]", "f32[2,2]"], "f32[2,6]"),
            (0, &["f32[2,3]", "f32[<=4,3]"], "f32[≤6,3]"),
            (0, &["f32[2,<=3]", "f32[4,<=2]"], "f32[6,≤2]"),
            (0, &["u8[<=18446744073709551615]", "u8[2]"], "u8[≤18446744073709551615]"),
            (1, &["f32[2,3]", "f32[4,3]"], "expected the shape of `0` (f32[2,3]) apart from dim 1, found f32[4,3]"),
            (0, &["f32[2,3]", "f32[4]"], "expected the shape of"),
            (0, &["f32[2,3]", "f64[4,3]"], "`dtype: f32`"),
            (0, &["f32", "f32"], "at least one dim"),
            (i64::MIN, &["f32[2]", "f32[2]"], "`dim` must be -1 to 0 for f32[2], got -9223372036854775808"),
        ] {
            let given = inputs.iter().enumerate().map(|(n, spec)| (n.to_string(), spec.parse().ok()));
            let mut errors = PlanErrors::default();
            let out = planned(&ConcatConfig { dim }, &Connected::of(given), &mut errors);
            match errors.into_result(()) {
                Ok(()) => assert_eq!(out.unwrap().to_string(), expected),
                Err(errors) => assert!(format!("{errors:?}").contains(expected), "{inputs:?}: {errors:?}"),
            }
        }
    }
}
