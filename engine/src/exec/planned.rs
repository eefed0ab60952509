//! A node between planning and running: the plan of a stage, and the parts it is built from.

use crate::base::document::Tree;
use crate::base::policy::NodePolicy;
use crate::exec::endpoint::{EndpointParts, NewHandle};
use crate::exec::stage::{Blueprint, BySource, Common, Rules, Stage};
use crate::exec::worker::Cx;
use crate::node::PortType;
use crate::node::planning::Building;
use crate::node::ports::Ports;
use crate::port::emit::Begin;
use crate::port::error::NodeError;
use crate::port::intake::{IntakeParts, JoinRule};
use crate::port::output::PortParts;

/// The plan of a node's stage: the node's policy from the graph file, and what planning derived.
/// Built by the planner, moved whole to the node's thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct StagePlan {
    pub(crate) policy: NodePolicy,
    /// The node's config, if it may be rebuilt.
    pub(crate) config: Option<Tree>,
    /// How messages of several inputs are joined, by input position.
    pub(crate) rule: JoinRule,
    /// Its source number, if it is a source.
    pub(crate) source: u16,
    /// The sources upstream whose origins are tracked, and whether their messages may have been
    /// used in earlier calls.
    pub(crate) sources: Vec<(u16, bool)>,
    /// Whether the origins of its input messages are tracked.
    pub(crate) traced: bool,
    /// Whether the messages of one call may have originated at different times.
    pub(crate) joins: bool,
    /// Whether a full edge fails the node.
    pub(crate) refuses: bool,
    /// Whether a transform is called once before its first message.
    pub(crate) wakes: bool,
    /// The largest input buffer, in messages.
    pub(crate) buffer: usize,
    /// By source: the shortest deadline of the paths through this node, ns; set only if the
    /// worker's schedule uses it.
    pub(crate) urgency: BySource<u64>,
    /// The deadlines and ages its messages must keep.
    pub(crate) rules: Rules,
}

/// The parts of a planned node's stage, on its thread.
pub(crate) struct StageParts {
    pub(crate) common: Common,
    pub(crate) intake: IntakeParts,
    pub(crate) outputs: Vec<PortParts>,
    /// Numbers of the sources whose messages reach this node, and whether they may have been used
    /// in earlier calls.
    pub(crate) sources: Vec<(u16, bool)>,
    /// Initial header values of its messages, if it is a source.
    pub(crate) begin: Begin,
    /// Whether a transform is called once before its first message.
    pub(crate) wakes: bool,
    /// What is needed to rebuild the node, if it may be rebuilt.
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
    /// Messages that the embedding program may hold, or that are on their way to it.
    fn outside(&self) -> usize {
        0
    }
    /// Creates the handle of a node through which the program takes part in the graph.
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
