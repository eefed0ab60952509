//! A node between plan and stage: what it is, and what its stage is made of.

use crate::exec::endpoint::{Berth, Moored};
use crate::exec::stage::{Blueprint, Common, Stage};
use crate::exec::worker::Cx;
use crate::node::PortType;
use crate::node::emit::Begin;
use crate::node::error::NodeError;
use crate::node::intake::IntakeParts;
use crate::node::planning::Building;
use crate::node::port::PortParts;
use crate::node::ports::Ports;

/// What a planned node's stage is made of, on its thread.
pub(crate) struct NodeParts {
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
    fn moor(&mut self, berth: Berth) -> Option<Moored> {
        let _ = berth;
        None
    }
    fn make(
        self: Box<Self>,
        parts: NodeParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError>;
}
