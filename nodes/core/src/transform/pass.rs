//! A node that does nothing, to measure the cost of a hop or to name a place in a graph.

use crate::tensor::shape;
use limen::node::{Building, Burst, Connected, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards every message unchanged, without copying the message.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct PassConfig {}

/// Runs `kind: pass`; [`PassConfig`] says what it does.
#[derive(Debug)]
pub struct Pass;

impl Node for Pass {
    type Config = PassConfig;

    fn ports(_: &PassConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned();
        Ok(shape::takes(spec.clone()).output_forwarding("out", spec, "in"))
    }

    fn build(_: PassConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Pass)
    }
}

impl Transform for Pass {
    type In = Tensor;
    type Out = Tensor;

    #[inline]
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input);
        Ok(())
    }

    #[inline]
    fn apply_burst(&mut self, burst: &mut Burst<'_, Message<Tensor>>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        burst.forward(out)
    }
}
