//! Planned nodes of each role, and the stages that they become.

use crate::base::document::Tree;
use crate::base::error::{PlanErrors, Problems};
use crate::exec::infer::InferPlan;
use crate::exec::planned::{PlannedNode, StageParts};
use crate::exec::stage::{SinkStage, SourceStage, Stage, TransformStage, build_node};
use crate::exec::worker::Cx;
use crate::message::tensor::Tensor;
use crate::node::planning::{Building, Connected, Planning};
use crate::node::ports::Ports;
use crate::node::{Node, PortType, Sink, Source, Transform};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::intake::Intake;
use crate::port::intake::SealedInputs;
use crate::port::output::SealedOutputs;

pub(super) struct PlannedConfig<N: Node> {
    config: N::Config,
    ports: Ports,
}

pub(super) fn plan_node<N: Node>(
    config: &Tree,
    given: &Connected,
    cx: &mut Planning<'_>,
    problems: &mut Problems,
    erase: fn(PlannedConfig<N>) -> Box<dyn PlannedNode>,
) -> Option<Result<Box<dyn PlannedNode>, PlanErrors>> {
    let config = config.read_config::<N::Config>(problems)?;
    Some(N::ports(&config, given, cx).map(|ports| erase(PlannedConfig { config, ports })))
}

pub(super) struct SourceNode<N: Source>(pub(super) PlannedConfig<N>);
pub(super) struct TransformNode<N: Transform>(pub(super) PlannedConfig<N>);
pub(super) struct SinkNode<N: Sink>(pub(super) PlannedConfig<N>);

impl<N: Source> PlannedNode for SourceNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn output_types(&self) -> Vec<PortType> {
        N::Out::types(self.0.ports.outputs.len())
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (Some(0), <N::Out as SealedOutputs>::COUNT)
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(<SourceStage<N>>::new(node, parts, building.descriptors(), cx)))
    }
}

impl<N: Transform> PlannedNode for TransformNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        N::In::types(self.0.ports.inputs.len())
    }
    fn output_types(&self) -> Vec<PortType> {
        N::Out::types(self.0.ports.outputs.len())
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (<N::In as SealedInputs>::COUNT, <N::Out as SealedOutputs>::COUNT)
    }
    fn writes(&self) -> bool {
        N::In::WRITES
    }
    fn merges(&self) -> bool {
        N::In::MERGES
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(TransformStage::new(node, parts, cx)))
    }
}

impl<N: Sink> PlannedNode for SinkNode<N> {
    fn ports(&self) -> &Ports {
        &self.0.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        N::In::types(self.0.ports.inputs.len())
    }
    fn output_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (<N::In as SealedInputs>::COUNT, Some(0))
    }
    fn merges(&self) -> bool {
        N::In::MERGES
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let node: N = build_node(self.0.config, building)?;
        Ok(Box::new(<SinkStage<N>>::new(node, parts, building.descriptors(), cx)))
    }
}

impl PlannedNode for InferPlan {
    fn ports(&self) -> &Ports {
        &self.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        vec![PortType::of::<Tensor>(); self.ports.inputs.len()]
    }
    fn output_types(&self) -> Vec<PortType> {
        vec![PortType::of::<Tensor>(); self.ports.outputs.len()]
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (Some(self.ports.inputs.len()), Some(self.ports.outputs.len()))
    }
    fn batch(&self) -> usize {
        self.batch.max
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        _: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let intake = Intake::build(parts.intake);
        let emit = Emit::new(parts.outputs, parts.begin, cx.clock().clone());
        self.stage(parts.common, intake, emit, cx)
    }
}
