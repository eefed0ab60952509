//! Transforms with one input.

use super::{number, value};
use limen::node::{
    Building, Burst, Connected, Cost, Emit, InPort, Node, NodeError, OutPort, PlanErrors, Planning, Ports, Transform,
};
use limen::{Message, Tensor, TensorMut, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// Passes numbers on, after some work.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct StepConfig {
    /// Busy-waiting per message, in ns.
    #[serde(default)]
    pub(crate) work_ns: u64,
    /// Whether it is planned as heavy, so that it gets its own core.
    #[serde(default)]
    pub(crate) heavy: bool,
    /// Whether it is planned as blocking, so that it runs on a helper thread.
    #[serde(default)]
    pub(crate) blocking: bool,
    /// Whether it forwards its input, or fills a new message.
    #[serde(default)]
    pub(crate) forward: bool,
}

/// See [`StepConfig`].
#[derive(Debug)]
pub(crate) struct Step(StepConfig);

impl Node for Step {
    type Config = StepConfig;
    fn ports(config: &StepConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().input("in", number());
        let ports = if config.forward {
            ports.output_forwarding("out", Some(number()), "in")
        } else {
            ports.output("out", number())
        };
        let ports = ports.cost(if config.heavy { Cost::Heavy } else { Cost::Light });
        Ok(if config.blocking { ports.blocking() } else { ports })
    }
    fn build(config: StepConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Step(config))
    }
}

impl Transform for Step {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.work_ns > 0 {
            let end = out.clock() + self.0.work_ns;
            while out.clock() < end {
                std::hint::spin_loop();
            }
        }
        if self.0.forward {
            out.send(input);
            return Ok(());
        }
        let mut tensor = out.loan(input.header())?;
        tensor.as_mut_slice::<u64>()?[0] = value(&input)?;
        out.send(tensor);
        Ok(())
    }
    fn apply_burst(&mut self, burst: &mut Burst<'_, Message<Tensor>>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.forward && self.0.work_ns == 0 {
            burst.forward(out)?;
        }
        Ok(())
    }
}

/// Emits every number `times` times.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct SplitConfig {
    /// The number of times.
    pub(crate) times: usize,
}

/// See [`SplitConfig`].
#[derive(Debug)]
pub(crate) struct Split(usize);

impl Node for Split {
    type Config = SplitConfig;
    fn ports(config: &SplitConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).out_port(OutPort {
            name: "out".into(),
            spec: Some(number()),
            emits: config.times,
            rows: 1,
            forwards: Vec::new(),
        }))
    }
    fn build(config: SplitConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Split(config.times))
    }
}

impl Transform for Split {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        for _ in 0..self.0 {
            let mut tensor = out.loan(input.header())?;
            tensor.as_mut_slice::<u64>()?[0] = value(&input)?;
            out.send(tensor);
        }
        Ok(())
    }
}

/// Adds a number in place.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct AddConfig {
    /// The number to add.
    pub(crate) n: u64,
}

/// See [`AddConfig`].
#[derive(Debug)]
pub(crate) struct Add(u64);

impl Node for Add {
    type Config = AddConfig;
    fn ports(_: &AddConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).output_forwarding("out", Some(number()), "in"))
    }
    fn build(config: AddConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Add(config.n))
    }
}

impl Transform for Add {
    type In = TensorMut;
    type Out = Tensor;
    fn apply(&mut self, mut input: TensorMut, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        input.as_mut_slice::<u64>()?[0] += self.0;
        out.send(input);
        Ok(())
    }
}

/// Passes numbers on, but swaps two that arrive within a microsecond: an injected bug that shows
/// only in some orders of turns, for the simulation to find.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct HastyConfig {}

/// See [`HastyConfig`].
#[derive(Debug, Default)]
pub(crate) struct Hasty(Option<(Message<Tensor>, Time)>);

impl Node for Hasty {
    type Config = HastyConfig;
    fn ports(_: &HastyConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let input = InPort { name: "in".into(), spec: Some(number()), holds: 1 };
        let output =
            OutPort { name: "out".into(), spec: Some(number()), emits: 2, rows: 1, forwards: vec!["in".into()] };
        Ok(Ports::new().in_port(input).out_port(output))
    }
    fn build(_: HastyConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Hasty::default())
    }
}

impl Transform for Hasty {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        match self.0.take() {
            None => {
                self.0 = Some((input, out.now()));
                out.wake_at(out.now() + 3_000);
            }
            Some((first, at)) if out.now().since(at) < 1_000 => {
                out.send(input);
                out.send(first);
            }
            Some((first, _)) => {
                out.send(first);
                out.send(input);
            }
        }
        Ok(())
    }
    fn wake(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        self.finish(out)
    }
    fn finish(&mut self, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if let Some((message, _)) = self.0.take() {
            out.send(message);
        }
        Ok(())
    }
}
