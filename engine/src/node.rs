//! The traits node authors implement, and what a node says of itself while planning.
//!
//! An author writes a config struct and one short `impl` of [`Source`], [`Transform`] or [`Sink`]; the engine owns the
//! loop, the ports, back-pressure, timing, counting, panics and stopping. What a node takes and gives is a type:
//! one payload, a tuple of payloads, or [`Many`] for ports named by the graph file. A node with several inputs is a
//! join: the engine pairs the messages of one sequence before it calls the node.

pub mod backend;
pub(crate) mod emit;
pub(crate) mod error;
pub(crate) mod intake;
pub(crate) mod port;
pub(crate) mod trial;

use crate::base::error::PlanErrors;
use crate::base::unit::{Rate, Span};
use crate::host::clock::{Clock, Time};
use crate::host::descriptors::Descriptors;
use crate::host::folders::Folders;
use crate::message::MAX_PORTS;
use crate::message::payload::{Message, Payload};
use crate::message::tensor::PortSpec;
use crate::node::emit::Emit;
use crate::node::error::NodeError;
use crate::node::port::Outputs;
use crate::node::trial::Trials;
use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The common half of every kind of node.
pub trait Node: Sized + 'static {
    /// What `config:` holds. `#[serde(deny_unknown_fields)]` is not needed: unknown keys are always errors.
    type Config: DeserializeOwned + JsonSchema + Send + 'static;

    /// What the node takes and gives, worked out while planning. May depend on the config, on the specs of what is
    /// connected, and on files of the graph's folder; nothing is running yet.
    ///
    /// # Errors
    /// Everything that is wrong with the config or with what is connected, naming fields and ports.
    fn ports(config: &Self::Config, given: &Given, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors>;

    /// Makes the node, on the thread that will run it.
    ///
    /// # Errors
    /// Whatever stops the node from working; the graph then does not start.
    fn build(config: Self::Config, cx: &mut Building<'_>) -> Result<Self, NodeError>;

    /// Changes a setting between turns: one that [`Ports::setting`] declared, within its range.
    ///
    /// # Errors
    /// [`NodeErrorKind::UnknownSetting`](crate::NodeErrorKind::UnknownSetting) by default.
    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        let _ = value;
        Err(crate::node::error::NodeErrorKind::UnknownSetting { name: name.to_string() }.into())
    }

    /// Forgets what was seen before a gap.
    fn reset(&mut self, why: Reset) {
        let _ = why;
    }

    /// Figures of the run, asked for once when the node has ended; `--fail-on` can test them. Messages that the node lost are
    /// given by [`Metrics::lost`], those it let go on purpose by [`Metrics::thinned`].
    fn metrics(&self, to: &mut Metrics) {
        let _ = to;
    }
}

/// Why a node should forget what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// Messages are missing.
    Gap,
}

/// A node that begins messages.
pub trait Source: Node {
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Emits what there is to emit, at most the declared bound, and says when to be called again. Called only while
    /// every blocking output has room. Each call has a sequence number of its own: [`Emit::header`].
    ///
    /// # Errors
    /// The call counts as failed and nothing of it is published; `on_error` decides what follows.
    fn next(&mut self, out: &mut Emit<Self::Out>) -> Result<Next, NodeError>;

    /// Whether a stop has to wait, because somebody was promised more.
    #[doc(hidden)]
    fn owes(&self) -> bool {
        false
    }

    /// A turn is over, and what it sent is published.
    #[doc(hidden)]
    fn turned(&mut self) {}

    /// There will be no more calls.
    #[doc(hidden)]
    fn ended(&mut self) {}
}

/// When a source wants its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: there is more.
    More,
    /// At a time of the run's clock; something was emitted or not.
    At(Time),
    /// When one of its [`Descriptors`] is ready, at this time of the run's clock at the latest; [`Time::NEVER`] where it waits for
    /// nothing else. A source says so when it has read all that is there, without waiting for more. It is always safe: what was
    /// left unread is ready still.
    WhenReady(Time),
    /// When something outside the graph has rung its worker: as for an inlet, whose program has sent something. A source that
    /// nobody rings for is called again only when its worker wakes for something else.
    Idle,
    /// Never: the stream has ended.
    Done,
}

/// Whether a sink that waits for descriptors takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It takes the next message. It is asked again after that message, when one of its [`Descriptors`] is ready, and at this time
    /// of the run's clock at the latest; [`Time::NEVER`] where it waits for nothing else.
    Takes(Time),
    /// It takes none, because what it has is still to be written: messages wait on its edges. It is asked again when one of its
    /// descriptors is ready, and at this time of the run's clock at the latest.
    WhenReady(Time),
}

/// A node that turns messages into messages.
pub trait Transform: Node {
    /// The payload of its input, or a tuple, or [`Many`], or `TensorMut` to write in place.
    type In: Inputs;
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Works on one message (or one set, with several inputs) and emits at most the declared bound.
    ///
    /// # Errors
    /// The inputs count as failed and nothing of the call is published; `on_error` decides what follows.
    fn apply(&mut self, input: Taken<Self::In>, out: &mut Emit<Self::Out>) -> Result<(), NodeError>;

    /// Called at the time last asked for with [`Emit::wake_at`].
    ///
    /// # Errors
    /// As [`Transform::apply`].
    fn wake(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }

    /// The stream has ended: emit what is still held.
    ///
    /// # Errors
    /// As [`Transform::apply`].
    fn finish(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }
}

/// A node that ends messages.
pub trait Sink: Node {
    /// The payload of its input, or a tuple, or [`Many`].
    type In: Inputs;
    /// Whether it waits for [`Descriptors`]: to write, to connect, to accept. Then [`Sink::progress`] says when it takes messages,
    /// and it takes them one at a time.
    const WAITS: bool = false;

    /// Takes one message, or one set.
    ///
    /// # Errors
    /// The inputs count as failed; `on_error` decides what follows.
    fn take(&mut self, input: Taken<Self::In>) -> Result<(), NodeError>;

    /// Called when there is nothing to take at the moment: write out what is buffered.
    ///
    /// # Errors
    /// The node fails.
    fn flush(&mut self) -> Result<(), NodeError> {
        Ok(())
    }

    /// The stream has ended: complete what is open.
    ///
    /// # Errors
    /// The node fails.
    fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()
    }

    /// Writes on as far as it can without waiting, and says whether the next message can be taken. Called only where
    /// [`Sink::WAITS`]: before the first message, after each, when one of its [`Descriptors`] is ready, when the time has come that it
    /// gave, and after [`Sink::finish`] until it takes messages again: that ends the node. Whoever gives up waiting for a peer
    /// counts what is lost.
    ///
    /// # Errors
    /// The node fails.
    fn progress(&mut self) -> Result<Progress, NodeError> {
        Ok(Progress::Takes(Time::NEVER))
    }

    /// How many of so many calls there is room for where messages go on to.
    #[doc(hidden)]
    fn room(&self, calls: usize) -> usize {
        calls
    }

    /// A turn is over.
    #[doc(hidden)]
    fn turned(&mut self) {}

    /// What sent messages here has failed; called before [`Sink::finish`].
    #[doc(hidden)]
    fn feeder_failed(&mut self) {}
}

/// What one call of a node is given: a message, a tuple of messages, or a [`Set`].
pub type Taken<I> = <I as Inputs>::Taken;

/// What a node takes: a payload, a tuple of payloads, [`Many`], or `TensorMut`.
pub trait Inputs: 'static {
    /// What one call is given.
    type Taken;
    #[doc(hidden)]
    type Intake: crate::node::intake::Intake<Taken = Self::Taken>;
    #[doc(hidden)]
    fn types(ports: usize) -> Vec<PortType>;
    /// How many inputs there are; `None` where the graph file names them.
    #[doc(hidden)]
    const COUNT: Option<usize>;
    /// Whether the node writes into what it takes.
    #[doc(hidden)]
    const WRITES: bool = false;
    /// Whether a call gets a message of one input instead of one of each.
    #[doc(hidden)]
    const MERGES: bool = false;
}

/// Any number of inputs or outputs of one payload, named by the graph file or by the node while planning.
#[derive(Debug)]
pub struct Many<T>(std::marker::PhantomData<T>);

/// The messages of one sequence, one for each input of a [`Many`], in the order of [`Ports`].
pub type Set<T> = ArrayVec<Message<T>, MAX_PORTS>;

/// A payload's type, compared while planning.
#[derive(Clone, Copy)]
pub struct PortType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
    pub(crate) connect: crate::edge::Connect,
    /// Bytes of a message in a queue.
    pub(crate) message: usize,
}

impl PortType {
    /// The type of a payload.
    pub fn of<T: Payload>() -> Self {
        let (id, name, connect) = (TypeId::of::<T>(), short_name::<T>(), crate::edge::connect::<T>());
        PortType { id, name, connect, message: size_of::<Message<T>>() }
    }
}

impl PartialEq for PortType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl std::fmt::Debug for PortType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A type's name without its path.
pub(crate) fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

/// How long one call of a node takes, roughly; decides which nodes share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Cost {
    /// Below 1 µs.
    #[default]
    Light,
    /// Between.
    Medium,
    /// Above 50 µs: decoding, large resizes.
    Heavy,
    /// A model: a core of its own while cores last.
    Infer,
}

impl Cost {
    /// The word printed in plans.
    pub fn name(self) -> &'static str {
        match self {
            Cost::Light => "light",
            Cost::Medium => "medium",
            Cost::Heavy => "heavy",
            Cost::Infer => "infer",
        }
    }
}

/// An input port as the node declares it.
#[derive(Clone, Debug)]
pub struct InPort {
    /// Its name in the graph file.
    pub name: String,
    /// What it takes; `None` takes any tensor, and is the only choice for plain payloads.
    pub spec: Option<PortSpec>,
    /// Messages the node keeps beyond a call.
    pub holds: usize,
}

/// An output port as the node declares it.
#[derive(Clone, Debug)]
pub struct OutPort {
    /// Its name in the graph file.
    pub name: String,
    /// What it gives; `None` for plain payloads.
    pub spec: Option<PortSpec>,
    /// Most messages one call emits.
    pub emits: usize,
    /// Messages that share a slot (a batch's outputs).
    pub rows: usize,
    /// The inputs whose very buffers come out here, so that this port needs no pool; none where it fills its own.
    pub forwards: Vec<String>,
}

/// What a node takes and gives.
///
/// ```
/// use limen::{DType, Dim, PortSpec, Ports, Cost};
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
    pub(crate) endless: bool,
    pub(crate) total: Option<u64>,
    pub(crate) selective: bool,
    pub(crate) routes: bool,
    pub(crate) scatters: bool,
    pub(crate) gathers: bool,
    pub(crate) period: Option<u64>,
    pub(crate) waits: u64,
    pub(crate) spans: usize,
    pub(crate) memory: usize,
    pub(crate) takes: u64,
    pub(crate) measured: u64,
    pub(crate) claims: Vec<Claim>,
    pub(crate) notes: Vec<String>,
    pub(crate) notices: Vec<String>,
    pub(crate) public: bool,
    pub(crate) settings: Vec<Setting>,
}

/// A number that may be changed while the graph runs, with `Running::set`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// What it may be.
    pub range: RangeInclusive<f64>,
}

/// Something outside the process that two nodes must not both have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// A file that is written.
    File(PathBuf),
    /// A device or port, by any name that is unique on the machine.
    Device(String),
}

impl Ports {
    /// No ports.
    pub fn new() -> Self {
        Ports::default()
    }

    /// Adds an input that takes tensors of a spec.
    #[must_use]
    pub fn input(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.in_port(InPort { name: name.into(), spec: Some(spec), holds: 0 })
    }

    /// Adds an input that takes any tensor, or a plain payload.
    #[must_use]
    pub fn input_any(self, name: impl Into<String>) -> Self {
        self.in_port(InPort { name: name.into(), spec: None, holds: 0 })
    }

    /// Adds an input.
    #[must_use]
    pub fn in_port(mut self, port: InPort) -> Self {
        self.inputs.push(port);
        self
    }

    /// Adds an output that gives one tensor of a spec per call.
    #[must_use]
    pub fn output(self, name: impl Into<String>, spec: PortSpec) -> Self {
        self.out_port(OutPort { name: name.into(), spec: Some(spec), emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output that gives one plain payload per call.
    #[must_use]
    pub fn output_plain(self, name: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec: None, emits: 1, rows: 1, forwards: Vec::new() })
    }

    /// Adds an output on which the messages of an input go on as they are.
    #[must_use]
    pub fn output_forwarding(self, name: impl Into<String>, spec: Option<PortSpec>, input: impl Into<String>) -> Self {
        self.out_port(OutPort { name: name.into(), spec, emits: 1, rows: 1, forwards: vec![input.into()] })
    }

    /// Adds an output.
    #[must_use]
    pub fn out_port(mut self, port: OutPort) -> Self {
        self.outputs.push(port);
        self
    }

    /// How long a call takes.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Calls may wait in the kernel (disks, devices without a descriptor): the node runs on a helper thread. What waits for
    /// a descriptor does not have to: [`Next::WhenReady`], [`Sink::progress`].
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// The node starts so many threads for its calls ([`Helpers::spawn`](crate::node::backend::Helpers::spawn)), which need a
    /// core that does not spin.
    #[must_use]
    pub fn helpers(mut self, threads: usize) -> Self {
        self.helpers = threads;
        self
    }

    /// A source that cannot be slowed down.
    #[must_use]
    pub fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// A source that never ends by itself.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.endless = true;
        self
    }

    /// A source that begins so many messages and then ends: what progress is reckoned by.
    #[must_use]
    pub fn total(mut self, messages: u64) -> Self {
        self.total = Some(messages);
        self
    }

    /// The node passes on some messages and not others, so that a join behind it misses those.
    #[must_use]
    pub fn selective(mut self) -> Self {
        self.selective = true;
        self
    }

    /// The node sends each message by one of its outputs and not by the others, so that a join of two of them misses those.
    #[must_use]
    pub fn routes(mut self) -> Self {
        self.routes = true;
        self
    }

    /// The node takes messages apart: what one call sends are the parts of what it was given.
    #[must_use]
    pub fn scatters(mut self) -> Self {
        self.scatters = true;
        self
    }

    /// The node puts parts together again, so that there must be one before it that took them apart.
    #[must_use]
    pub fn gathers(mut self) -> Self {
        self.gathers = true;
        self
    }

    /// What a call sends may be made from messages of so many calls before it, and then has the header of one of those: its
    /// latency is counted from theirs, also where several sources are behind them.
    #[must_use]
    pub fn spans(mut self, calls: usize) -> Self {
        self.spans = calls;
        self
    }

    /// The node takes so many bytes for itself when it is built: what it puts messages together in, buffers of sockets. What all
    /// calls of this add up to counts against `run.max_memory`. Not the pools of its outputs: those the plan knows.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = self.memory.saturating_add(bytes);
        self
    }

    /// In the ordinary course no message leaves the node sooner than so long after it began, however fast everything is.
    #[must_use]
    pub fn waits(mut self, time: Span) -> Self {
        self.waits = time.as_nanos();
        self
    }

    /// A source that begins so many messages a second, if it is given: what it is taken together with by number has to as well.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<Option<Rate>>) -> Self {
        self.period = rate.into().map(|rate| rate.period_ns() as u64);
        self
    }

    /// No call takes less than this. A deadline that it exceeds is refused.
    #[must_use]
    pub fn takes(mut self, time: Span) -> Self {
        self.takes = time.as_nanos();
        self
    }

    /// What a call took when it was measured on this machine. A deadline that it exceeds is noted in the plan.
    #[must_use]
    pub fn measured(mut self, time: Span) -> Self {
        self.measured = time.as_nanos();
        self
    }

    /// Claims something outside the process for this node alone.
    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    /// Adds a setting: what is set from outside is held against its range before the node hears of it.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, range: RangeInclusive<f64>) -> Self {
        self.settings.push(Setting { name: name.into(), range });
        self
    }

    /// A line for `--plan`.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// A line that nobody who runs the graph may miss, such as that other machines reach it: it stands among the notes of the
    /// plan and of the report, and `limen-run` prints it before it starts.
    #[must_use]
    pub fn notice(mut self, notice: impl Into<String>) -> Self {
        self.notices.push(notice.into());
        self
    }

    /// The node listens where other machines reach it, which is planned only with
    /// [`Options::allow_public`](crate::Options::allow_public). `how` is a notice, such as `listens on 0.0.0.0:9000`.
    #[must_use]
    pub fn public(mut self, how: impl Into<String>) -> Self {
        self.public = true;
        self.notice(how)
    }
}

/// What is connected to a node's inputs, as far as it is known while planning.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub(crate) inputs: Vec<(String, Option<PortSpec>)>,
    pub(crate) outputs: Vec<String>,
}

impl Given {
    /// What is connected to each input, in the order of the graph file, as far as it is known: to plan a node without a graph.
    pub fn of(inputs: impl IntoIterator<Item = (String, Option<PortSpec>)>) -> Self {
        Given { inputs: inputs.into_iter().collect(), outputs: Vec::new() }
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

    /// Where a source or a sink registers the file descriptors that it waits for, now and later; see [`Next::WhenReady`] and
    /// [`Sink::progress`].
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

/// Figures a node gives when it has ended.
///
/// What a node lost, before it was a message or after it was taken, and what it let go on purpose are figures too, which the
/// report adds to its totals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    figures: BTreeMap<String, (f64, Tells)>,
    pub(crate) notes: Vec<String>,
}

/// What a figure tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tells {
    #[default]
    Figure,
    Lost,
    Thinned,
}

impl Metrics {
    /// Sets a figure.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), (value, Tells::Figure));
    }

    /// Adds a sentence to the report's notes, below the node's name: what a figure alone does not say.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Sets a figure: so many messages that the node lost, and why.
    pub fn lost(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, Tells::Lost));
    }

    /// Sets a figure: so many messages that the node let go because that is what it is for.
    pub fn thinned(&mut self, reason: impl Into<String>, messages: u64) {
        self.figures.insert(reason.into(), (messages as f64, Tells::Thinned));
    }

    /// The figures by name, losses and what was thinned among them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.figures.iter().map(|(k, (value, _))| (k.as_str(), *value))
    }

    /// What was lost, by reason; nothing that is 0.
    pub fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        self.told(Tells::Lost)
    }

    /// What may be lost, by reason, with how much was.
    pub(crate) fn may_lose(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(|(_, (_, tells))| *tells == Tells::Lost);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// What was let go on purpose, by reason; nothing that is 0.
    pub fn thinning(&self) -> impl Iterator<Item = (&str, u64)> {
        self.told(Tells::Thinned)
    }

    fn told(&self, what: Tells) -> impl Iterator<Item = (&str, u64)> {
        let all = self.figures.iter().filter(move |(_, (value, tells))| *tells == what && *value > 0.0);
        all.map(|(name, (value, _))| (name.as_str(), *value as u64))
    }

    /// Adds what the node had lost and let go before it was built again; other figures began anew.
    pub(crate) fn go_on_from(&mut self, before: Metrics) {
        self.notes.splice(..0, before.notes);
        for (name, (value, tells)) in before.figures {
            if tells != Tells::Figure {
                self.figures.entry(name).or_insert((0.0, tells)).0 += value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_before_a_node_was_built_again_is_counted_on() {
        let (mut before, mut after) = (Metrics::default(), Metrics::default());
        before.set("received", 9.0);
        before.lost("overrun", 3);
        before.lost("partial", 0);
        before.thinned("stopped", 2);
        after.set("received", 4.0);
        after.lost("overrun", 1);
        after.go_on_from(before);
        let figures = [("overrun", 4.0), ("partial", 0.0), ("received", 4.0), ("stopped", 2.0)];
        assert_eq!(after.iter().collect::<Vec<_>>(), figures);
        assert_eq!(
            (after.losses().collect(), after.thinning().collect()),
            (vec![("overrun", 4)], vec![("stopped", 2)])
        );
    }
}
