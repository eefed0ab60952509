//! A fixed delay.

use limen::node::{
    Building, Connected, Emit, InPort, Metrics, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform,
};
use limen::unit::Span;
use limen::{Message, Tensor, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::VecDeque;

/// Forwards each message when the time `by` has passed since the message's origin.
///
/// Use `delay` to align a fast branch with a slow branch. The node holds at most `holds` messages.
/// If a message arrives while the node holds `holds` messages, the node forwards the oldest message
/// early and counts it (`early`). When the stream ends, the node forwards all held messages at
/// once.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DelayConfig {
    /// Time from the origin of a message until the node forwards the message.
    pub by: Span,
    /// Maximum number of held messages, 1 to 4096. Default: 64.
    #[serde(default = "sixty_four")]
    pub holds: usize,
}

fn sixty_four() -> usize {
    64
}

/// Runs `kind: delay`; [`DelayConfig`] says what it does.
#[derive(Debug)]
pub struct Delay {
    by: u64,
    holds: usize,
    held: VecDeque<Message<Tensor>>,
    early: u64,
}

impl Delay {
    fn due(&self) -> Time {
        self.held.front().map_or(Time::NEVER, |message| message.header().origin + self.by)
    }
}

impl Node for Delay {
    type Config = DelayConfig;

    fn ports(config: &DelayConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if !(1..=1 << 12).contains(&config.holds) {
            errors.at("holds", format!("`holds` must be 1 to 4096, got {}", config.holds)).help("write 1 to 4096");
        }
        let spec = given.single().cloned();
        let input = InPort { name: "in".into(), spec: spec.clone(), holds: config.holds };
        let output = OutPort { name: "out".into(), spec, emits: config.holds, rows: 1, forwards: vec!["in".into()] };
        errors.into_result(Ports::new().in_port(input).out_port(output).waits(config.by).by_clock("by"))
    }

    fn build(config: DelayConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let held = VecDeque::with_capacity(config.holds + 1);
        Ok(Delay { by: config.by.as_nanos(), holds: config.holds, held, early: 0 })
    }

    fn metrics(&self, to: &mut Metrics) {
        to.set("early", self.early as f64);
    }
}

impl Transform for Delay {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.held.len() == self.holds
            && let Some(oldest) = self.held.pop_front()
        {
            self.early += 1;
            out.send(oldest);
        }
        self.held.push_back(input);
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }

    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let now = out.clock();
        while self.due() <= now
            && let Some(message) = self.held.pop_front()
        {
            out.send(message);
        }
        let due = self.due();
        out.wake_at(due);
        Ok(())
    }

    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.held.drain(..).for_each(|message| out.send(message));
        Ok(())
    }
}
