//! The information and services available to a node while it is planned and built.

use crate::base::policy::{Isolation, Trials};
use crate::host::clock::{Clock, Time};
use crate::host::descriptors::Descriptors;
use crate::host::folders::Folders;
use crate::message::port_spec::{Memory, PortSpec};
use crate::node::extensions::Extensions;
use crate::node::live::{
    ClockSteps, ConnectionStatus, DiscardCounter, IncidentCounter, LiveCounters, LossCounter, StaleStatus,
};
use crate::node::statistics::Statistics;
use crate::port::intake::Lead;

/// The connections of a node and the specs of its inputs, as far as planning knows them.
///
/// ```
/// use limen::message::{DType, PortSpec};
/// use limen::node::Connected;
/// let numbers = PortSpec::fixed(DType::F32, [3]);
/// let given = Connected::of([("in".to_string(), Some(numbers.clone()))]);
/// assert_eq!(given.single(), Some(&numbers));
/// assert_eq!(given.input("other"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Connected {
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) outputs: Vec<String>,
    pub(crate) on_device: bool,
}

impl Connected {
    /// Creates the connections of a node to be planned without a graph: the spec connected to each
    /// input, in order, where known.
    pub fn of(inputs: impl IntoIterator<Item = (String, Option<PortSpec>)>) -> Self {
        Connected { inputs: inputs.into_iter().collect(), ..Connected::default() }
    }

    /// Returns the spec connected to an input; `None` if nothing is connected, or if it is not
    /// known yet (a cycle, a plain payload).
    pub fn input(&self, port: &str) -> Option<&PortSpec> {
        self.inputs.iter().find(|(name, _)| name == port)?.1.as_ref()
    }

    /// Returns the spec connected to the only input of a node with one input.
    pub fn single(&self) -> Option<&PortSpec> {
        self.inputs.first()?.1.as_ref()
    }

    /// Returns the connected inputs, in the order of the graph file.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Option<&PortSpec>)> {
        self.inputs.iter().map(|(name, spec)| (name.as_str(), spec.as_ref()))
    }

    /// Returns whether the node keeps its messages on the device that its kind named for its config
    /// ([`Infer::device`](crate::infer::Infer::device)).
    pub fn is_on_device(&self) -> bool {
        self.on_device
    }

    /// Returns these connections as if all messages were in host memory, for what depends only on
    /// their types.
    #[must_use]
    pub fn in_host_memory(&self) -> Self {
        let mut there = self.clone();
        there.inputs.iter_mut().filter_map(|(_, spec)| spec.as_mut()).for_each(|spec| spec.memory = Memory::Host);
        there
    }

    /// Returns these connections for a node that keeps its messages on a device.
    #[must_use]
    pub fn on_device(self) -> Self {
        Connected { on_device: true, ..self }
    }

    /// Returns the connected outputs, each once.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outputs.iter().map(String::as_str)
    }
}

/// The services for a node while it is planned: its name, and the files that it may read and write.
///
/// ```
/// use limen::node::{Connected, PlanErrors, Planning, Ports};
/// # struct Config { file: String }
/// fn ports(
///     config: &Config,
///     _: &Connected,
///     cx: &mut Planning<'_>,
/// ) -> Result<Ports, PlanErrors> {
///     let mut errors = PlanErrors::default();
///     if let Err(why) = cx.folders.input(&config.file) {
///         errors.at("file", why);
///     }
///     errors.into_result(Ports::new().input_any("in"))
/// }
/// ```
#[derive(Debug)]
pub struct Planning<'a> {
    /// The node's name in the graph file.
    pub node: &'a str,
    /// The folders where the graph may read and write.
    pub folders: &'a Folders,
    /// The policy for trial runs of models.
    pub trials: &'a Trials,
    /// The values that the program added with
    /// [`Registry::with_extension`](crate::Registry::with_extension).
    pub extensions: &'a Extensions,
    /// Whether the node uses its device in this process or in one of its own.
    pub isolation: Isolation,
}

/// The services for a node while it is built: its counters, its clock, its files and its
/// descriptors.
///
/// ```
/// use limen::node::{Building, DiscardCounter, LossCounter, NodeError};
/// struct Decoder {
///     malformed: LossCounter,
///     paused: DiscardCounter,
/// }
///
/// fn build(cx: &mut Building<'_>) -> Result<Decoder, NodeError> {
///     Ok(Decoder { malformed: cx.lost("malformed"), paused: cx.discarded("paused") })
/// }
///
/// fn decode(decoder: &mut Decoder, bytes: &[u8]) {
///     if bytes.is_empty() {
///         decoder.malformed += 1;
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Building<'a> {
    pub(crate) node: &'a str,
    pub(crate) folders: &'a Folders,
    pub(crate) clock: &'a Clock,
    pub(crate) ports: &'a PlannedPorts,
    pub(crate) descriptors: &'a Descriptors,
    pub(crate) run_id: &'a str,
    pub(crate) statistics: &'a Statistics,
    pub(crate) live: &'a LiveCounters,
    pub(crate) wall_offset: u64,
}

impl Building<'_> {
    /// Returns the node's name in the graph file.
    pub fn node(&self) -> &str {
        self.node
    }

    /// Returns the id of the run, 16 random hexadecimal digits, by which the files that a run
    /// leaves can be told to belong together.
    pub fn run_id(&self) -> &str {
        self.run_id
    }

    /// Returns the nanoseconds to add to a time of the run's clock for the time since 1970. It is 0
    /// if the run's clock is simulated.
    ///
    /// The engine reads it once in a run. All nodes therefore compute the same time for a message,
    /// and setting the wall clock does not change distances.
    pub fn wall_offset(&self) -> u64 {
        self.wall_offset
    }

    /// Returns a reader of the statistics of the run, for a node that shows or records them.
    pub fn statistics(&self) -> Statistics {
        self.statistics.clone()
    }

    /// Returns the counter of the messages that the node loses for `reason`, before data becomes a
    /// message or after the node read a message. Events, metrics and statistics show the losses
    /// while the graph runs. The report adds them to the losses that [`Node::metrics`] sets.
    ///
    /// A restarted node continues with the same counters.
    ///
    /// [`Node::metrics`]: crate::node::Node::metrics
    pub fn lost(&self, reason: &'static str) -> LossCounter {
        self.live.lost(reason)
    }

    /// Returns the counter of messages with a defect that the node does not lose, such as a missing
    /// value. The first defect is an event. Statistics, metrics and the report have the number.
    pub fn incidents(&self, name: &'static str) -> IncidentCounter {
        self.live.incidents_of(name)
    }

    /// Returns the counter of the messages that the node discards on purpose for `reason`.
    /// Statistics and metrics have the number while the graph runs. The report adds it to the
    /// discards that [`Node::metrics`](crate::node::Node::metrics) sets. A restarted node continues
    /// with the same counter.
    pub fn discarded(&self, reason: &'static str) -> DiscardCounter {
        self.live.discarded(reason)
    }

    /// Returns the state of the node's connection to its device or peer. The node reports when it
    /// connects, when it is disconnected, and why it cannot connect again. Each is an event, at
    /// most one a second. The report has the number of ended connections as the metric
    /// `disconnects`.
    pub fn connection(&self) -> ConnectionStatus {
        self.live.connection()
    }

    /// Returns the counter of a source whose messages have the times of another clock, for each
    /// time that clock was set back. It is an event, at most one a second, and the metric
    /// `clock_steps` of the report. The source also begins a
    /// [segment](crate::node::Emit::begin_segment).
    pub fn clock_steps(&self) -> ClockSteps {
        self.live.clock_steps()
    }

    /// Returns the state of a node that acts when its messages are too old. The node reports when
    /// messages become too old, and when a young one arrives. Each is an event. The report has the
    /// number as the metric `stale_periods`.
    pub fn staleness(&self) -> StaleStatus {
        self.live.staleness(self.node, self.statistics)
    }

    /// Returns the folders where the graph may read and write.
    pub fn folders(&self) -> &Folders {
        self.folders
    }

    /// Returns the current time of the run's clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns the clock of the run.
    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Returns the registry where a source or a sink adds the file descriptors it waits for, now or
    /// later; see [`Next::WhenReady`](crate::node::Next::WhenReady) and
    /// [`Sink::progress`](crate::node::Sink::progress).
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors.clone()
    }

    /// Returns name and spec of every input, in the order in which messages are passed to the node.
    pub fn inputs(&self) -> &[(String, Option<PortSpec>)] {
        &self.ports.inputs
    }

    /// Returns which header represents a set of messages, for a sink that writes a sequence number
    /// or a time.
    pub fn lead(&self) -> Lead {
        self.ports.lead
    }

    /// Returns name and spec of every output, in the order of the node's output ports.
    pub fn outputs(&self) -> &[(String, Option<PortSpec>)] {
        &self.ports.outputs
    }
}

/// A node's ports as planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedPorts {
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) outputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) lead: Lead,
}
