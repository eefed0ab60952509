//! One of every few messages.

use crate::tensor::shape;
use limen::node::{
    Building, Connected, DiscardCounter, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards the first message of each group of `keep_every` messages.
///
/// The node discards the other messages and counts them (`stopped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DecimateConfig {
    /// Number of messages in a group, at least 1. With `keep_every: 1`, the node forwards all
    /// messages.
    pub keep_every: u64,
}

/// Runs `kind: decimate`; [`DecimateConfig`] says what it does.
#[derive(Debug)]
pub struct Decimate {
    keep_every: u64,
    count: u64,
    stopped: DiscardCounter,
}

impl Node for Decimate {
    type Config = DecimateConfig;

    fn ports(config: &DecimateConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if config.keep_every == 0 {
            errors
                .at("keep_every", "`keep_every` must be at least 1, got 0")
                .help("write 1 to keep all messages, or 2 to keep every second message");
        }
        errors.into_result(shape::passes(given))
    }

    fn build(config: DecimateConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Decimate { keep_every: config.keep_every, count: 0, stopped: cx.discarded("stopped") })
    }

    fn reset(&mut self, _: Reset) {
        self.count = 0;
    }
}

impl Transform for Decimate {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.count == 0 {
            out.send(input);
        } else {
            self.stopped += 1;
        }
        self.count = (self.count + 1) % self.keep_every;
        Ok(())
    }
}
