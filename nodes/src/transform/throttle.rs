//! No more often than so many times a second.

use crate::shape;
use limen::unit::Rate;
use limen::{
    Building, Emit, Given, Message, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Reset, Tensor, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends on at most one message a period, by the time messages began; what comes in between is counted (`stopped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Config {
    /// Most messages a second, such as `10Hz`.
    pub rate: Rate,
}

/// The node.
#[derive(Debug)]
pub struct Throttle {
    period: u64,
    /// When the next message may have begun at the earliest.
    next: u64,
    stopped: u64,
}

impl Node for Throttle {
    type Config = Config;

    fn ports(_: &Config, given: &Given, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(shape::passes(given))
    }

    fn build(config: Config, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Throttle { period: config.rate.period_ns() as u64, next: 0, stopped: 0 })
    }

    fn reset(&mut self, _: Reset) {
        self.next = 0;
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("stopped", self.stopped as f64);
    }
}

impl Transform for Throttle {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let begun = input.header().origin.0;
        if begun < self.next {
            self.stopped += 1;
            return Ok(());
        }
        // A stream of just this rate that trembles a little keeps its rate; one that paused does not catch up.
        let on_time = self.next.saturating_add(self.period);
        self.next = if begun < on_time && self.next > 0 { on_time } else { begun.saturating_add(self.period) };
        out.send(input);
        Ok(())
    }
}
