//! A switch for messages.

use crate::tensor::shape;
use limen::node::{Building, Connected, DiscardCounter, Emit, Node, NodeError, PlanErrors, Planning, Ports, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards messages while it is open. Messages that arrive while it is closed are dropped and counted (`stopped`).
///
/// `open` can be changed while the graph runs: `Running::set(node, "open", 0.0)`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Whether it is open at the start; `true` by default.
    #[serde(default = "yes")]
    pub open: bool,
}

fn yes() -> bool {
    true
}

/// The node.
#[derive(Debug)]
pub struct Gate {
    open: bool,
    stopped: DiscardCounter,
}

impl Node for Gate {
    type Config = Config;

    fn ports(_: &Config, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(shape::passes(given).setting("open", 0.0..=1.0))
    }

    fn build(config: Config, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Gate { open: config.open, stopped: cx.discarded("stopped") })
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        match name {
            "open" => self.open = value != 0.0,
            _ => return Err(limen::node::NodeErrorKind::UnknownSetting { name: name.to_string() }.into()),
        }
        Ok(())
    }
}

impl Transform for Gate {
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
