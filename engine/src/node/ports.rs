//! The properties a node declares while planning: its ports, cost, settings and resource claims.

use crate::base::json::object;
use crate::base::unit::{Rate, Span};
use crate::host::sync::DynArc;
use crate::message::device::Device;
use crate::message::port_spec::PortSpec;
use crate::node::backend::WorkerHost;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The rough duration of one call of a node; decides which nodes share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Cost {
    /// Below 1 µs.
    #[default]
    Light,
    /// From 1 to 50 µs.
    Medium,
    /// Above 50 µs: decoding, large resizes.
    Heavy,
    /// A model: a core of its own while cores last.
    Infer,
}

impl Cost {
    /// Returns the name printed in plans.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An input port as the node declares it.
#[derive(Clone, Debug)]
pub struct InPort {
    /// Its name in the graph file.
    pub name: String,
    /// The tensors it accepts; `None` accepts any tensor, and is the only choice for plain
    /// payloads.
    pub spec: Option<PortSpec>,
    /// Messages the node keeps beyond a call.
    pub holds: usize,
}

/// An output port as the node declares it.
#[derive(Clone, Debug)]
pub struct OutPort {
    /// Its name in the graph file.
    pub name: String,
    /// The tensors it emits; `None` for plain payloads.
    pub spec: Option<PortSpec>,
    /// Maximum number of messages one call emits.
    pub emits: usize,
    /// Number of messages that share a slot (a batch's outputs).
    pub rows: usize,
    /// The inputs whose buffers are forwarded here, so that this port needs no pool; empty if it
    /// fills its own.
    pub forwards: Vec<String>,
}

/// The ports and declared properties of a node.
///
/// ```
/// use limen::message::{DType, Dim, PortSpec};
/// use limen::node::{Cost, Ports};
/// let ports = Ports::new()
///     .input("in", PortSpec::fixed(DType::F32, [10]))
///     .output("out", PortSpec::fixed(DType::I32, []))
///     .cost(Cost::Light);
/// # let _ = ports;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ports {
    pub(crate) inputs: Vec<InPort>,
    pub(crate) outputs: Vec<OutPort>,
    pub(crate) cost: Cost,
    pub(crate) blocking: bool,
    pub(crate) helpers: usize,
    pub(crate) live: bool,
    /// Its messages may begin later than now.
    pub(crate) ahead: bool,
    /// It sends as fast as the graph takes its messages, until this is written in its config.
    pub(crate) unpaced: Option<&'static str>,
    pub(crate) endless: bool,
    pub(crate) total: Option<u64>,
    pub(crate) selective: bool,
    pub(crate) routes: bool,
    pub(crate) scatters: bool,
    /// The most parts of a message that the node reassembles.
    pub(crate) gathers: Option<usize>,
    /// It keeps a state for each stream.
    pub(crate) stateful: bool,
    pub(crate) period: Option<u64>,
    /// It is called once before its first message.
    pub(crate) wakes: bool,
    /// It sends messages of its own beside those that its outputs forward.
    pub(crate) creates: bool,
    pub(crate) waits: u64,
    /// Keys of times that go by the clock.
    pub(crate) by_clock: Vec<&'static str>,
    pub(crate) spans: usize,
    pub(crate) memory: usize,
    pub(crate) buffers: usize,
    pub(crate) takes: u64,
    pub(crate) measured: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) notes: Vec<String>,
    pub(crate) notices: Vec<String>,
    /// Outputs that a user may expect and that are no ports, and why.
    pub(crate) left_out: Vec<(String, String)>,
    pub(crate) public: bool,
    pub(crate) settings: Vec<Setting>,
    /// How to start the worker that calls its model.
    pub(crate) worker_host: Option<WorkerHost>,
    /// The device of the ports whose messages are not in host memory.
    pub(crate) device: Option<DynArc<dyn Device>>,
}

/// A number that can be changed while the graph runs, with `Running::set`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// The name of the setting.
    pub name: String,
    /// The least and the greatest value.
    pub range: RangeInclusive<f64>,
}

impl serde::Serialize for Setting {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        object!(to, name: self.name, least: self.range.start(), most: self.range.end())
    }
}

/// A resource outside the process that only one node may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// A file that the node writes.
    File(PathBuf),
    /// A device or port, by any name that is unique on the machine.
    Device(String),
}

impl Ports {
    /// Creates a declaration without ports.
    pub fn new() -> Self {
        Ports::default()
    }

    /// Adds an input that reads tensors of a spec. Planning rejects a connection with another spec.
    #[must_use]
    pub fn input(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.in_port(InPort { name: name.into(), spec: Some(spec), holds: 0 })
    }

    /// Adds an input that reads any tensor, or a plain payload.
    #[must_use]
    pub fn input_any(self, name: impl Into<String>) -> Self {
        self.in_port(InPort { name: name.into(), spec: None, holds: 0 })
    }

    /// Adds an input whose node keeps messages beyond a call ([`InPort::holds`]).
    #[must_use]
    pub fn in_port(mut self, port: InPort) -> Self {
        self.inputs.push(port);
        self
    }

    /// Adds an output that emits one tensor of a spec per call.
    #[must_use]
    pub fn output(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.out_port(OutPort { name: name.into(), spec: Some(spec), emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output that emits one plain payload per call.
    #[must_use]
    pub fn output_plain(self, name: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec: None, emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output that forwards the messages of an input unchanged.
    #[must_use]
    pub fn output_forwarding(self, name: impl Into<String>, spec: Option<PortSpec>, input: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec, emits: 1, rows: 1, forwards: vec![input.into()] })
    }

    /// Adds an output with a bound, rows or forwarding that the shorter methods do not set.
    #[must_use]
    pub fn out_port(mut self, port: OutPort) -> Self {
        self.outputs.push(port);
        self
    }

    /// Sets the rough duration of one call, which decides where planning places the node.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Declares that calls may block in the kernel (disks, devices without a descriptor): the node
    /// runs on a helper thread. Waiting for a descriptor does not need this:
    /// [`Next::WhenReady`](crate::node::Next::WhenReady),
    /// [`Sink::progress`](crate::node::Sink::progress).
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// Declares how many threads the node starts for its calls
    /// ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)); they need a core that does not
    /// spin.
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.helpers = threads;
        self
    }

    /// Declares a source that cannot be slowed down.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Declares a source whose origin times may lie in the future, such as a recording that is
    /// replayed faster than it was made. A join by time accepts its messages however far ahead they
    /// are.
    #[must_use]
    pub fn ahead(mut self) -> Self {
        self.ahead = true;
        self
    }

    /// Declares a source that sends as fast as the graph accepts its messages. `paced` is what to
    /// write in its config to send by the clock, such as `rate: 30Hz`. Planning rejects such a
    /// source with more than one message at a join that reads the newest message.
    #[must_use]
    pub fn unpaced(mut self, paced: &'static str) -> Self {
        self.unpaced = Some(paced);
        self
    }

    /// Declares a source that never ends by itself.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// Declares how many messages the source creates before it ends. Programs compute progress from
    /// it.
    #[must_use]
    pub fn total(mut self, messages: u64) -> Self {
        self.total = Some(messages);
        self
    }

    /// Declares that the node forwards only some messages. A downstream join does not receive the
    /// others.
    #[must_use]
    pub fn selective(mut self) -> Self {
        self.selective = true;
        self
    }

    /// Declares that the node sends each message on only one of its outputs. A join of two of its
    /// outputs does not receive every message.
    #[must_use]
    pub fn routes(mut self) -> Self {
        self.routes = true;
        self
    }

    /// Declares that the node splits messages: the output of one call is the parts of its input.
    #[must_use]
    pub fn scatters(mut self) -> Self {
        self.scatters = true;
        self
    }

    /// Declares that the node reassembles messages of at most this many parts, so a node upstream
    /// must have split them.
    #[must_use]
    pub fn gathers(mut self, parts: usize) -> Self {
        self.gathers = Some(parts);
        self
    }

    /// Declares that a call's output may derive from messages of this many earlier calls, and has
    /// the header of one of them. Latency counts from that message's origin, also with several
    /// sources upstream.
    #[must_use]
    pub fn spans(mut self, calls: usize) -> Self {
        self.spans = calls;
        self
    }

    /// Declares that [`Transform::wake`](crate::node::Transform::wake) is also called once when the
    /// run begins, and again after a restart of the node. The node can then act before its first
    /// message.
    ///
    /// ```
    /// use limen::node::Ports;
    /// let ports = Ports::new().input_any("in").output_plain("out").wakes();
    /// # let _ = ports;
    /// ```
    #[must_use]
    pub fn wakes(mut self) -> Self {
        self.wakes = true;
        self
    }

    /// Declares that the node also sends messages of its own through outputs that forward messages
    /// ([`Ports::output_forwarding`]). Planning allocates pools for these outputs, too.
    #[must_use]
    pub fn creates(mut self) -> Self {
        self.creates = true;
        self
    }

    /// Declares memory that the node allocates when it is built, in bytes, such as socket buffers.
    /// The calls of this method add up, and the sum counts against `run.max_memory`. The pools of
    /// the outputs are not part of it: the plan computes them.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = self.memory.saturating_add(bytes);
        self
    }

    /// Declares how many bytes of messages each input holds if the graph sets no `capacity`. It is
    /// for a node that may stall, such as a writer to a disk.
    #[must_use]
    pub fn buffers(mut self, bytes: usize) -> Self {
        self.buffers = bytes;
        self
    }

    /// Declares the least time between a message's origin and its departure from the node, even if
    /// every call took no time. Planning compares it with deadlines.
    #[must_use]
    pub fn waits(mut self, time: Span) -> Self {
        self.waits = time.as_nanos();
        self
    }

    /// Declares that the config's `key` is a time by the run's clock, not between the origins of
    /// messages. Planning adds a note if a source runs ahead of the clock.
    #[must_use]
    pub fn by_clock(mut self, key: &'static str) -> Self {
        self.by_clock.push(key);
        self
    }

    /// Declares how many messages a second a source creates, if known. Sources joined with it by
    /// sequence number must have the same rate.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<Option<Rate>>) -> Self {
        self.period = rate.into().map(|rate| rate.period_ns() as u64);
        self
    }

    /// Declares the minimum duration of a call. Planning rejects a shorter deadline.
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.takes = time.as_nanos();
        self
    }

    /// Declares the duration of a call, measured on this machine. The plan has a note if a deadline
    /// is shorter.
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.measured = time.as_nanos();
        self
    }

    /// Claims a resource outside the process for this node alone. Planning rejects a graph in which
    /// two nodes claim the same resource.
    ///
    /// ```
    /// use limen::node::{Claim, Ports};
    /// let ports = Ports::new().input_any("in").claim(Claim::File("out.csv".into()));
    /// # let _ = ports;
    /// ```
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Adds a setting, which [`Running::set`](crate::Running::set) changes while the graph runs.
    /// The engine checks a new value against the range, and passes it to
    /// [`Node::set`](crate::node::Node::set).
    ///
    /// ```
    /// use limen::node::Ports;
    /// let ports = Ports::new().input_any("in").setting("gain", 0.0..=10.0);
    /// # let _ = ports;
    /// ```
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, range: RangeInclusive<f64>) -> Self {
        self.settings.push(Setting { name: name.into(), range });
        self
    }

    /// Names an output that a user may expect and that the node lacks. The error of a connection to
    /// it says `why`.
    #[must_use]
    pub fn left_out(mut self, name: impl Into<String>, why: impl Into<String>) -> Self {
        self.left_out.push((name.into(), why.into()));
        self
    }

    /// Adds a remark on the node, which the plan shows
    /// ([`NodePlan::notes`](crate::plan::NodePlan::notes)).
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a remark that every user of the graph must see, such as that other machines can reach
    /// it. It is in the notes of the plan and of the report, and `limen-run` prints it before it
    /// starts.
    #[must_use]
    pub fn notice(mut self, notice: impl Into<String>) -> Self {
        self.notices.push(notice.into());
        self
    }

    /// Declares that the node listens where other machines can reach it, which is planned only with
    /// [`Options::allow_public`](crate::Options::allow_public). `how` is a notice, such as
    /// `listens on 0.0.0.0:9000`.
    #[must_use]
    pub fn public(mut self, how: impl Into<String>) -> Self {
        self.public = true;
        self.notice(how)
    }
}
