//! Nodes that fail on purpose.

use super::{number, value};
use limen::node::{Building, Connected, Cost, Emit, Node, NodeError, PlanErrors, Planning, Ports, Sink, Transform};
use limen::{Message, Tensor};
use schemars::JsonSchema;
use serde::Deserialize;

/// Passes numbers on and fails on purpose.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct FaultConfig {
    /// The number at which a call fails.
    pub(crate) at: Option<u64>,
    /// A call fails at every number divisible by this.
    pub(crate) every: Option<u64>,
    /// How it fails.
    #[serde(default)]
    pub(crate) how: How,
    /// The method that fails instead of a call.
    pub(crate) place: Option<Where>,
    /// Whether it gets its own core.
    #[serde(default)]
    pub(crate) heavy: bool,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub(crate) enum How {
    #[default]
    Error,
    Panic,
    Hang,
    TooMany,
}

/// Methods that may fail instead of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub(crate) enum Where {
    Build,
    Finish,
    Drop,
}

/// See [`FaultConfig`].
#[derive(Debug)]
pub(crate) struct Fault(FaultConfig);

impl Fault {
    fn fail(&self) -> Result<(), NodeError> {
        match self.0.how {
            How::Error | How::TooMany => Err(NodeError::other("this was asked for")),
            How::Panic => panic!("this was asked for"),
            How::Hang => loop {
                std::thread::park();
            },
        }
    }

    fn is_due(&self, n: u64) -> bool {
        self.0.at == Some(n) || self.0.every.is_some_and(|every| n.is_multiple_of(every))
    }
}

impl Node for Fault {
    type Config = FaultConfig;
    fn ports(config: &FaultConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let ports = Ports::new().input("in", number()).cost(if config.heavy { Cost::Heavy } else { Cost::Light });
        Ok(if given.outputs().count() > 0 || config.place != Some(Where::Build) || config.how != How::TooMany {
            ports.output("out", number())
        } else {
            ports
        })
    }
    fn build(config: FaultConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        let fault = Fault(config);
        if fault.0.place == Some(Where::Build) {
            fault.fail()?;
        }
        Ok(fault)
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if self.0.place == Some(Where::Drop) && !std::thread::panicking() {
            panic!("this was asked for");
        }
    }
}

impl Transform for Fault {
    type In = Tensor;
    type Out = Tensor;
    fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        let n = value(&input)?;
        let mut tensor = out.loan(input.header())?;
        tensor.as_mut_slice::<u64>()?[0] = n;
        out.send(tensor);
        if self.is_due(n) && self.0.how == How::TooMany {
            out.send(input);
            return Ok(());
        }
        // It fails after sending: no message of a failed call may be published.
        if self.is_due(n) { self.fail() } else { Ok(()) }
    }
    fn finish(&mut self, _: &mut Emit<Tensor>) -> Result<(), NodeError> {
        if self.0.place == Some(Where::Finish) { self.fail() } else { Ok(()) }
    }
}

/// A sink that fails as [`Fault`] does.
#[derive(Debug)]
pub(crate) struct FaultSink(Fault);

impl Node for FaultSink {
    type Config = FaultConfig;
    fn ports(config: &FaultConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        Ok(Ports::new().input("in", number()).cost(if config.heavy { Cost::Heavy } else { Cost::Light }))
    }
    fn build(config: FaultConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(FaultSink(Fault(config)))
    }
}

impl Sink for FaultSink {
    type In = Tensor;
    fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
        if self.0.is_due(value(&input)?) { self.0.fail() } else { Ok(()) }
    }
}
