//! A node between plan and stage: what it is, and what its stage is made of.

use crate::base::document::Tree;
use crate::base::policy::NodePolicy;
use crate::exec::endpoint::{EndpointParts, NewHandle};
use crate::exec::stage::{Blueprint, BySource, Common, Rules, Stage};
use crate::exec::worker::Cx;
use crate::node::PortType;
use crate::node::emit::Begin;
use crate::node::error::NodeError;
use crate::node::intake::{IntakeParts, JoinRule};
use crate::node::planning::Building;
use crate::node::port::PortParts;
use crate::node::ports::Ports;

/// What a node's stage is told: what the graph file asks of the node, and what planning has found around it. Made by the planner,
/// moved whole to the node's thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct StagePlan {
    pub(crate) policy: NodePolicy,
    /// The node's config, where it may be built again.
    pub(crate) config: Option<Tree>,
    /// What of several inputs is taken together, by the inputs' positions.
    pub(crate) rule: JoinRule,
    /// Its number among the sources, if it is one.
    pub(crate) source: u16,
    /// The sources behind what it takes whose origins are told, and whether their messages may have been in others before.
    pub(crate) sources: Vec<(u16, bool)>,
    /// Whether the origins of what it takes are followed.
    pub(crate) traced: bool,
    /// Whether what it takes together may have begun at different times.
    pub(crate) joins: bool,
    /// Whether an edge fails the node where it has no room.
    pub(crate) refuses: bool,
    /// The largest buffer of an input.
    pub(crate) buffer: usize,
    /// By source: the shortest deadline of the paths through here, ns; where the worker's schedule asks.
    pub(crate) urgency: BySource<u64>,
    /// What its messages must keep.
    pub(crate) rules: Rules,
}

/// What a planned node's stage is made of, on its thread.
pub(crate) struct StageParts {
    pub(crate) common: Common,
    pub(crate) intake: IntakeParts,
    pub(crate) outputs: Vec<PortParts>,
    /// Numbers of the sources whose messages get here, and whether they may have been in others before.
    pub(crate) sources: Vec<(u16, bool)>,
    /// What its messages begin with, if it is a source.
    pub(crate) begin: Begin,
    /// What it takes to build the node once more, where it may be.
    pub(crate) blueprint: Option<Blueprint>,
}

/// A node whose kind, config and ports are known; erased over its type.
pub(crate) trait PlannedNode: Send {
    fn ports(&self) -> &Ports;
    fn input_types(&self) -> Vec<PortType>;
    fn output_types(&self) -> Vec<PortType>;
    fn counts(&self) -> (Option<usize>, Option<usize>);
    fn writes(&self) -> bool {
        false
    }
    fn merges(&self) -> bool {
        false
    }
    /// Messages one call takes of each input.
    fn batch(&self) -> usize {
        1
    }
    /// Messages that may be in the hands of the program around the graph, or on their way there.
    fn outside(&self) -> usize {
        0
    }
    /// Makes the handle of a node that is the program's end of the graph.
    fn attach(&mut self, with: EndpointParts) -> Option<NewHandle> {
        let _ = with;
        None
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError>;
}
