//! A source that ticks.

use crate::pace::Pace;
use limen::Tensor;
use limen::message::{DType, PortSpec};
use limen::node::{Building, Connected, Emit, Next, Node, NodeError, PlanErrors, Planning, Ports, Source};
use limen::unit::Rate;
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends the numbers 0, 1, 2 and so on at a fixed rate: `tick` `u64[]`.
///
/// The node sends a late tick immediately. The origin of a tick is the tick's scheduled time.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct TimerConfig {
    /// Ticks per second, such as `100Hz`.
    pub rate: Rate,
    /// Number of ticks to send. Default: unlimited.
    pub count: Option<u64>,
}

/// Runs `kind: timer`; [`TimerConfig`] says what it does.
#[derive(Debug)]
pub struct Timer {
    pace: Pace,
}

impl Node for Timer {
    type Config = TimerConfig;

    fn ports(config: &TimerConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().output("tick", PortSpec::fixed(DType::U64, [])).live().rate(config.rate);
        Ok(match config.count {
            Some(count) => ports.total(count),
            None => ports.endless(),
        })
    }

    fn build(config: TimerConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Timer { pace: Pace::new(Some(config.rate)).at_most(config.count) })
    }
}

impl Source for Timer {
    type Out = Tensor;

    fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
        let origin = match self.pace.begin(out.now(), || out.clock()) {
            Ok(origin) => origin,
            Err(early) => return Ok(early),
        };
        if out.is_connected() {
            let header = out.header(origin);
            let mut tick = out.loan(&header)?;
            tick.as_mut_slice::<u64>()?[0] = header.seq;
            out.send(tick);
        }
        Ok(self.pace.then(out.now()))
    }
}
