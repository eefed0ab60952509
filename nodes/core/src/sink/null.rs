//! A sink that discards messages.

use limen::Tensor;
use limen::node::{Building, Connected, Many, MessageSet, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Sink};
use schemars::JsonSchema;
use serde::Deserialize;

/// Discards and counts messages. Inputs may have any names. With several inputs, a set of messages
/// counts as one message.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct NullConfig {}

/// Runs `kind: null`; [`NullConfig`] says what it does.
#[derive(Debug, Default)]
pub struct Null {
    messages: u64,
}

impl Node for Null {
    type Config = NullConfig;

    fn ports(_: &NullConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input_any(name));
        Ok(if given.inputs().count() == 0 { ports.input_any("in") } else { ports })
    }

    fn build(_: NullConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Null::default())
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.messages as f64);
    }
}

impl Sink for Null {
    type In = Many<Tensor>;

    #[inline]
    fn take(&mut self, _: MessageSet<Tensor>) -> Result<(), NodeError> {
        self.messages += 1;
        Ok(())
    }
}
