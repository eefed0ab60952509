//! The end of messages that nobody needs.

use limen::{Building, Given, Message, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Takes messages and drops them, counting.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Config {}

/// The node.
#[derive(Debug, Default)]
pub struct Null {
    messages: u64,
}

impl Node for Null {
    type Config = Config;

    fn ports(_: &Config, _: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }

    fn build(_: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Null::default())
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.messages as f64);
    }
}

impl Sink for Null {
    type In = Tensor;

    #[inline]
    fn take(&mut self, _: Message<Tensor>) -> Result<(), NodeError> {
        self.messages += 1;
        Ok(())
    }
}
