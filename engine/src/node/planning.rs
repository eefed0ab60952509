//! What a node is given while it is planned and built.

use crate::base::policy::Trials;
use crate::host::clock::{Clock, Time};
use crate::host::descriptors::Descriptors;
use crate::host::folders::Folders;
use crate::message::tensor::PortSpec;

/// What is connected to a node's inputs, as far as it is known while planning.
#[derive(Clone, Debug, Default)]
pub struct Connected {
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) outputs: Vec<String>,
}

impl Connected {
    /// What is connected to each input, in the order of the graph file, as far as it is known: to plan a node without a graph.
    pub fn of(inputs: impl IntoIterator<Item = (String, Option<PortSpec>)>) -> Self {
        Connected { inputs: inputs.into_iter().collect(), outputs: Vec::new() }
    }

    /// The spec of what is connected to an input; `None` where nothing is, or where it is not known yet (a cycle, a
    /// plain payload).
    pub fn input(&self, port: &str) -> Option<&PortSpec> {
        self.inputs.iter().find(|(name, _)| name == port)?.1.as_ref()
    }

    /// The spec of the only input of a node that has one.
    pub fn single(&self) -> Option<&PortSpec> {
        self.inputs.first()?.1.as_ref()
    }

    /// The connected inputs, in the order of the graph file.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Option<&PortSpec>)> {
        self.inputs.iter().map(|(name, spec)| (name.as_str(), spec.as_ref()))
    }

    /// The outputs that something takes from.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(String::as_str)
    }
}

/// What a node may use while planning.
#[derive(Debug)]
pub struct Planning<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Where the graph may read and write.
    pub folders: &'a Folders,
    /// How models are tried.
    pub trials: &'a Trials,
}

/// What a node may use while it is built.
#[derive(Debug)]
pub struct Building<'a> {
    pub(crate) node: &'a str,
    pub(crate) folders: &'a Folders,
    pub(crate) clock: &'a Clock,
    pub(crate) ports: &'a PlannedPorts,
    pub(crate) descriptors: &'a Descriptors,
}

impl Building<'_> {
    /// The node's name.
    pub fn node(&self) -> &str {
        self.node
    }

    /// Where the graph may read and write.
    pub fn folders(&self) -> &Folders {
        self.folders
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock of the run.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Where a source or a sink registers the file descriptors that it waits for, now and later; see [`Next::WhenReady`](crate::node::Next::WhenReady) and
    /// [`Sink::progress`](crate::node::Sink::progress).
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors.clone()
    }

    /// Name and spec of every input, in the order in which messages are given to the node.
    pub fn inputs(&self) -> &[(String, Option<PortSpec>)] {
        &self.ports.inputs
    }

    /// Name and spec of every output, in the order of the node's output ports.
    pub fn outputs(&self) -> &[(String, Option<PortSpec>)] {
        &self.ports.outputs
    }
}

/// A node's ports as planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedPorts {
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) outputs: Vec<(String, Option<PortSpec>)>,
}
