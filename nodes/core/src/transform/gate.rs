//! A switch for messages.

use crate::tensor::shape;
use limen::node::{Building, Connected, DiscardCounter, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards messages while the gate is open.
///
/// While the gate is closed, the node discards messages and counts them (`stopped`).
///
/// A program can change `open` while the graph runs: `Running::set(node, "open", 0.0)` closes the
/// gate.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct GateConfig {
    /// Whether the gate is open at the start. Default: `true`.
    #[serde(default = "yes")]
    pub open: bool,
}

fn yes() -> bool {
    true
}

/// Runs `kind: gate`; [`GateConfig`] says what it does.
#[derive(Debug)]
pub struct GateNode {
    open: bool,
    stopped: DiscardCounter,
}

impl Node for GateNode {
    type Config = GateConfig;

    fn ports(_: &GateConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(shape::passes(given).setting("open", 0.0..=1.0))
    }

    fn build(config: GateConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(GateNode { open: config.open, stopped: cx.discarded("stopped") })
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        match name {
            "open" => self.open = value != 0.0,
            _ => return Err(limen::node::NodeErrorKind::UnknownSetting { name: name.to_string() }.into()),
        }
        Ok(())
    }
}

impl Transform for GateNode {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.open {
            out.send(input);
        } else {
            self.stopped += 1;
        }
        Ok(())
    }
}
