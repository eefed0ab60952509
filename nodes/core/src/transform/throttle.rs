//! An upper bound on the rate of a stream.

use crate::tensor::shape;
use limen::node::{
    Building, Connected, DiscardCounter, Emit, Node, NodeError, PlanErrors, Planning, Ports, Reset, Transform,
};
use limen::unit::Rate;
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards at most one message per period, measured by the origins of the messages.
///
/// The node discards the other messages and counts them (`stopped`).
///
/// A program can change `rate` while the graph runs: `Running::set(node, "rate", 5.0)` sets 5 Hz.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ThrottleConfig {
    /// Maximum number of messages per second, such as `10Hz`.
    pub rate: Rate,
}

/// Limits of the setting `rate`, Hz: one message in a quarter of an hour to one per nanosecond.
const SLOWEST: f64 = 1e-3;
const FASTEST: f64 = 1e9;

/// Runs `kind: throttle`; [`ThrottleConfig`] says what it does.
#[derive(Debug)]
pub struct Throttle {
    period: u64,
    /// The earliest origin of the next message to forward, ns.
    next: u64,
    stopped: DiscardCounter,
}

impl Node for Throttle {
    type Config = ThrottleConfig;

    fn ports(_: &ThrottleConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(shape::passes(given).setting("rate", SLOWEST..=FASTEST))
    }

    fn build(config: ThrottleConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Throttle { period: config.rate.period_ns() as u64, next: 0, stopped: cx.discarded("stopped") })
    }

    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        match name {
            "rate" => {
                let period = (1e9 / value) as u64;
                // The new period counts from the last message that was forwarded.
                if self.next > 0 {
                    self.next = self.next.saturating_sub(self.period).saturating_add(period);
                }
                self.period = period;
            }
            _ => return Err(limen::node::NodeErrorKind::UnknownSetting { name: name.to_string() }.into()),
        }
        Ok(())
    }

    fn reset(&mut self, _: Reset) {
        self.next = 0;
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
        // A stream of exactly this rate with some jitter keeps its rate; a stream that paused gets
        // no extra messages.
        let on_time = self.next.saturating_add(self.period);
        self.next = if begun < on_time && self.next > 0 { on_time } else { begun.saturating_add(self.period) };
        out.send(input);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_rate_counts_from_the_last_message() {
        let mut throttle = Throttle { period: 100_000_000, next: 700_000_000, stopped: DiscardCounter::default() };
        for (rate, next) in [(5.0, 800_000_000), (20.0, 650_000_000), (10.0, 700_000_000)] {
            throttle.set("rate", rate).unwrap();
            assert_eq!((throttle.next, throttle.period), (next, (1e9 / rate) as u64), "{rate} Hz");
        }
        throttle.next = 0;
        throttle.set("rate", FASTEST).unwrap();
        assert_eq!((throttle.next, throttle.period), (0, 1), "the first message has nothing to wait for");
        assert!(throttle.set("rat", 5.0).is_err());
    }
}
