//! Several streams, matched and forwarded separately.

use limen::Tensor;
use limen::node::{
    Building, Connected, Emit, Many, MessageSet, Node, NodeError, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards sets of matching messages without copying the messages.
///
/// Inputs may have any names. The node sends each message to the output with the name of its input.
/// Each message keeps its header, with its origin and source.
///
/// `join` decides which messages match, for example `join: { policy: by_time, within: 5ms }`. The
/// join discards messages without a match. Each edge counts its discarded messages (`unmatched`).
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct SynchronizeConfig {}

/// Runs `kind: synchronize`; [`SynchronizeConfig`] says what it does.
#[derive(Debug)]
pub struct Synchronize;

impl Node for Synchronize {
    type Config = SynchronizeConfig;

    fn ports(_: &SynchronizeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let mut errors = PlanErrors::default();
        if given.inputs().count() < 2 {
            errors
                .node(format!("the node must have at least 2 inputs, got {}", given.inputs().count()))
                .help("write at least 2 inputs, such as `inputs: { image: camera, motion: imu }`");
        }
        let ports = given.inputs().fold(Ports::new(), |ports, (name, spec)| {
            let ports = match spec {
                Some(spec) => ports.input(name, spec.clone()),
                None => ports.input_any(name),
            };
            ports.output_forwarding(name, spec.cloned(), name)
        });
        errors.into_result(ports)
    }

    fn build(_: SynchronizeConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(Synchronize)
    }
}

impl Transform for Synchronize {
    type In = Many<Tensor>;
    type Out = Many<Tensor>;

    #[inline]
    fn apply(&mut self, input: MessageSet<Tensor>, out: &mut Emit<Many<Tensor>>) -> Result<(), NodeError> {
        for (port, message) in out.iter_mut().zip(input) {
            port.send(message);
        }
        Ok(())
    }
}
