//! Sinks that record what they take.

use super::{number, value};
use limen::node::{
    Building, Connected, Cost, Many, MessageSet, Metrics, Node, NodeError, PlanErrors, Planning, Ports, Reset, Sink,
};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Counts the messages it takes, and sums the numbers of each input.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct CollectConfig {
    /// Busy-waiting per message, in ns.
    #[serde(default)]
    pub(crate) work_ns: u64,
    /// Whether it gets its own core.
    #[serde(default)]
    pub(crate) heavy: bool,
}

/// See [`CollectConfig`].
#[derive(Debug)]
pub(crate) struct Collect {
    config: CollectConfig,
    names: Vec<String>,
    sums: Vec<u64>,
    count: u64,
    last: Option<u64>,
    disorder: u64,
    resets: u64,
}

impl Node for Collect {
    type Config = CollectConfig;
    fn ports(config: &CollectConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = given.inputs().fold(Ports::new(), |ports, (name, _)| ports.input(name, number()));
        Ok(ports.cost(if config.heavy { Cost::Heavy } else { Cost::Light }))
    }
    fn build(config: CollectConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        let names: Vec<String> = cx.inputs().iter().map(|(name, _)| name.clone()).collect();
        Ok(Collect { config, sums: vec![0; names.len()], names, count: 0, last: None, disorder: 0, resets: 0 })
    }
    fn reset(&mut self, _: Reset) {
        self.resets += 1;
    }
    fn metrics(&self, to: &mut Metrics) {
        to.set("count", self.count as f64);
        to.set("resets", self.resets as f64);
        to.set("disorder", self.disorder as f64);
        for (name, sum) in self.names.iter().zip(&self.sums) {
            to.set(format!("sum_{name}"), *sum as f64);
        }
        if let Some(last) = self.last {
            to.set("last", last as f64);
        }
    }
}

impl Sink for Collect {
    type In = Many<Tensor>;
    fn take(&mut self, input: MessageSet<Tensor>) -> Result<(), NodeError> {
        if self.config.work_ns > 0 {
            let end = std::time::Instant::now() + Duration::from_nanos(self.config.work_ns);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        self.count += 1;
        for (message, sum) in input.iter().zip(&mut self.sums) {
            *sum += value(message)?;
        }
        let seq = input[0].header().seq;
        self.disorder += u64::from(self.last.is_some_and(|last| last > seq));
        self.last = Some(seq);
        Ok(())
    }
}

/// Takes tensors of numbers, and reports the first number, length and source of each, and the
/// highest latency.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct TrailConfig {}

/// See [`TrailConfig`].
#[derive(Debug)]
pub(crate) struct Trail {
    seen: Vec<(u64, usize, u16)>,
    clock: limen::Clock,
    latest: u64,
}

impl Node for Trail {
    type Config = TrailConfig;
    fn ports(_: &TrailConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input_any("in"))
    }
    fn build(_: TrailConfig, cx: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Trail { seen: Vec::new(), clock: cx.clock(), latest: 0 })
    }
    fn metrics(&self, to: &mut Metrics) {
        for (at, (number, length, source)) in self.seen.iter().enumerate() {
            to.set(format!("number_{at}"), *number as f64);
            to.set(format!("length_{at}"), *length as f64);
            to.set(format!("source_{at}"), f64::from(*source));
        }
        to.set("latest_us", self.latest as f64 / 1e3);
    }
}

impl Sink for Trail {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        let numbers: &[u64] = input.body.as_slice()?;
        self.seen.push((numbers[0], numbers.len(), input.header().source));
        self.latest = self.latest.max(self.clock.now().since(input.header().origin));
        Ok(())
    }
}
