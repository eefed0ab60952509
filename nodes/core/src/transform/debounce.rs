//! The last message before a pause.

use limen::node::{
    Building, Connected, DiscardCounter, Emit, InPort, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform,
};
use limen::unit::Span;
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards a message if no other message arrives within the time `quiet`, or if the stream ends.
///
/// The node discards all other messages and counts them (`stopped`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct DebounceConfig {
    /// Time without messages after which the node forwards the last message.
    pub quiet: Span,
}

/// Runs `kind: debounce`; [`DebounceConfig`] says what it does.
#[derive(Debug)]
pub struct Debounce {
    quiet: u64,
    last: Option<Message<Tensor>>,
    stopped: DiscardCounter,
}

impl Node for Debounce {
    type Config = DebounceConfig;

    fn ports(config: &DebounceConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let spec = given.single().cloned();
        let input = InPort { name: "in".into(), spec: spec.clone(), holds: 1 };
        Ok(Ports::new()
            .in_port(input)
            .output_forwarding("out", spec, "in")
            .selective()
            .waits(config.quiet)
            .by_clock("quiet"))
    }

    fn build(config: DebounceConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Debounce { quiet: config.quiet.as_nanos(), last: None, stopped: cx.discarded("stopped") })
    }

    fn reset(&mut self, _: Reset) {
        self.stopped += u64::from(self.last.take().is_some());
    }
}

impl Transform for Debounce {
    type In = Tensor;
    type Out = Tensor;

    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.stopped += u64::from(self.last.replace(input).is_some());
        let wake = out.now() + self.quiet;
        out.wake_at(wake);
        Ok(())
    }

    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.finish(out)
    }

    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if let Some(last) = self.last.take() {
            out.send(last);
        }
        Ok(())
    }
}
