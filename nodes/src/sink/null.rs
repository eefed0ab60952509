//! The end of messages that nobody needs.

use limen::{Building, Given, Many, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Set, Sink, Tensor};
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

    fn ports(_: &Config, given: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let add = |ports: Ports, (name, spec): (&str, Option<&limen::PortSpec>)| match spec {
            Some(spec) => ports.input(name, spec.clone()),
            None => ports.input_any(name),
        };
        Ok(given.inputs().fold(Ports::new(), add))
    }

    fn build(_: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Null::default())
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("messages", self.messages as f64);
    }
}

impl Sink for Null {
    type In = Many<Tensor>;

    #[inline]
    fn take(&mut self, input: Set<Tensor>) -> Result<(), NodeError> {
        self.messages += input.len() as u64;
        Ok(())
    }
}
