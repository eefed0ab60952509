//! Several inputs as one stream.

use limen::Tensor;
use limen::message::{Content, PortSpec};
use limen::node::{
    Building, Connected, Emit, Node, NodeError, OneOf, OutPort, Picked, PlanErrors, Planning, Ports, Transform,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Forwards the messages of all inputs without copying the messages.
///
/// Inputs may have any names. `join: { policy: in_turn }` selects the inputs in turn. With
/// `priority`, the node selects the first input that has a message. `oldest_first` is also
/// supported. By default, the node alternates between inputs that have messages.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct MergeConfig {}

/// Runs `kind: merge`; [`MergeConfig`] says what it does.
#[derive(Debug)]
pub struct MergeNode;

impl Node for MergeNode {
    type Config = MergeConfig;

    fn ports(_: &MergeConfig, given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        let first = given.inputs().find_map(|(_, spec)| spec.cloned());
        // The output has the content of the inputs only if they agree; otherwise it is bytes.
        let same = |content| given.inputs().all(|(_, spec)| spec.is_none_or(|spec| spec.content == content));
        let labels = |spec: &PortSpec| {
            given.inputs().all(|(_, other)| other.is_none_or(|other| other.labels() == spec.labels()))
        };
        let first = first.map(|spec| if labels(&spec) { spec } else { spec.with_labels([]) });
        let spec = first.map(|spec| if same(spec.content) { spec } else { spec.with_content(Content::Bytes) });
        // A quaternion is known only if it has one place in all messages.
        let place = |spec: &PortSpec| (spec.quaternion(), spec.has_unknown_orientation());
        let spec = spec.map(|spec| {
            match given.inputs().filter_map(|(_, other)| other).all(|other| place(other) == place(&spec)) {
                true => spec,
                false => spec.with_orientation(),
            }
        });
        let names: Vec<String> = given.inputs().map(|(name, _)| name.to_string()).collect();
        let ports = names.iter().fold(Ports::new(), |ports, name| match &spec {
            Some(spec) => ports.input(name, spec.clone()),
            None => ports.input_any(name),
        });
        Ok(ports.out_port(OutPort { name: "out".into(), spec, emits: 1, rows: 1, forwards: names }))
    }

    fn build(_: MergeConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Ok(MergeNode)
    }
}

impl Transform for MergeNode {
    type In = OneOf<Tensor>;
    type Out = Tensor;

    fn apply(&mut self, input: Picked<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
        out.send(input.message);
        Ok(())
    }
}
