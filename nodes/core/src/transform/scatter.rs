//! The rows of a tensor as messages.

use crate::tensor::parts::Empty;
use crate::tensor::shape;
use limen::message::{Dim, PortSpec};
use limen::node::{Building, Connected, Emit, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends each row of a tensor of shape `[n, ...]` as a message of shape `[...]`, such as each box
/// of an image.
///
/// All parts have the header of the original message, with `part` and `parts` set. `gather`
/// reassembles the parts.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct ScatterConfig {
    /// What the node does with a tensor without rows. Default: `drop`.
    #[serde(default)]
    pub empty: Empty,
}

/// Runs `kind: scatter`; [`ScatterConfig`] says what it does.
#[derive(Debug)]
pub struct Scatter {
    empty: Empty,
}

impl Node for Scatter {
    type Config = ScatterConfig;

    fn ports(_: &ScatterConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = given.single().cloned();
        let rows = spec.as_ref().and_then(|spec| {
            let is_fixed = |dim: &Dim| matches!(dim, Dim::Fixed(_));
            match spec.shape.split_first() {
                Some((Dim::Fixed(n) | Dim::AtMost(n), rest)) if *n > 0 && rest.iter().all(is_fixed) => {
                    Some((*n, PortSpec::new(spec.dtype, rest.iter().cloned()).with_orientation_of(spec)))
                }
                _ => {
                    let message = format!("expected a bounded first dim and fixed other dims, found {spec}");
                    errors.input("in", message).help("connect a tensor with a bounded number of rows of one shape");
                    None
                }
            }
        });
        let (emits, row) = rows.map_or((1, None), |(n, row)| (n, Some(row)));
        let out = OutPort { name: "out".into(), spec: row, emits, rows: 1, forwards: Vec::new() };
        errors.into_result(shape::takes(spec).out_port(out).selective().scatters())
    }

    fn build(config: ScatterConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Scatter { empty: config.empty })
    }
}

impl Transform for Scatter {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let rows = input.body.shape().first().copied().unwrap_or(0);
        let bytes = input.body.bytes();
        for row in 0..rows {
            let item = bytes.len() / rows;
            let mut part = out.loan(input.header())?;
            // The engine numbers the parts only if there are several; a single one would keep the
            // numbers of its input.
            (part.header_mut().part, part.header_mut().parts) = (0, 1);
            part.bytes_mut().copy_from_slice(&bytes[row * item..(row + 1) * item]);
            out.send(part);
        }
        if rows == 0 && self.empty == Empty::Send {
            let mut nothing = out.loan(input.header())?;
            (nothing.header_mut().part, nothing.header_mut().parts) = (0, 0);
            nothing.bytes_mut().fill(0);
            out.send(nothing);
        }
        Ok(())
    }
}
