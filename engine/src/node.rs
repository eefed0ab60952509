//! The traits that node authors implement, and what a node declares while planning.
//!
//! An author writes a config struct and one short `impl`. The engine owns the loop, the ports,
//! back-pressure, timing, counting, panics and shutdown.
//!
//! | your node | implement | register with |
//! |---|---|---|
//! | changes or inspects a tensor and sends it on | [`InPlace`] | [`Registry::in_place`] |
//! | fills one tensor from another | [`OneToOne`] | [`Registry::one_to_one`] |
//! | has other ports, settings or metrics | [`Node`], [`Transform`] | [`Registry::transform`] |
//! | creates messages | [`Node`], [`Source`] | [`Registry::source`] |
//! | consumes messages | [`Node`], [`Sink`] | [`Registry::sink`] |
//!
//! The inputs and outputs of a node are a type: one payload, a tuple of payloads, or [`Many`] for
//! ports that the graph file names. A node with several inputs is a join: the engine matches
//! messages by sequence number before it calls the node, unless the graph says otherwise.
//!
//! [`Registry::in_place`]: crate::Registry::in_place
//! [`Registry::one_to_one`]: crate::Registry::one_to_one
//! [`Registry::transform`]: crate::Registry::transform
//! [`Registry::source`]: crate::Registry::source
//! [`Registry::sink`]: crate::Registry::sink

pub mod backend;
pub(crate) mod extensions;
pub(crate) mod live;
pub(crate) mod metrics;
pub(crate) mod one_to_one;
pub(crate) mod planning;
pub(crate) mod ports;
pub(crate) mod remedy;
pub(crate) mod statistics;

pub use crate::base::error::{FieldError, PlanErrors};
pub use crate::host::descriptors::{Descriptors, Interest, Watched};
pub use crate::message::MAX_PORTS;
pub use crate::port::burst::Burst;
pub use crate::port::emit::Emit;
pub use crate::port::error::{NodeError, NodeErrorKind};
pub use crate::port::intake::{Lead, OneOf, Picked};
pub use crate::port::output::{Outputs, Port, PortList};
pub use crate::port::room::{Next, Room};
pub use crate::port::{Inputs, Many, MessageSet, PortType, Taken};
pub use extensions::Extensions;
pub use live::{ClockSteps, ConnectionStatus, DiscardCounter, IncidentCounter, LossCounter, StaleStatus};
pub use metrics::Metrics;
pub use one_to_one::{InPlace, OneToOne};
pub use planning::{Building, Connected, Planning};
pub use ports::{Claim, Cost, InPort, OutPort, Ports, Setting};
pub use statistics::{EdgeStats, NodeStats, PathStats, RunStats, Statistics, StatisticsWindow};

/// The items most nodes need: `use limen::node::prelude::*;`.
pub mod prelude {
    pub use super::{
        Building, Burst, Connected, Emit, InPlace, Many, Metrics, Next, Node, NodeError, OneToOne, PlanErrors,
        Planning, Ports, Reset, Room, Sink, Source, Transform,
    };
    pub use crate::message::{DType, Dim, Header, Message, PortSpec, Tensor, TensorMut};
}

use crate::host::clock::Time;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// The part common to every kind of node: its config, its ports, and how to build it. [`Source`],
/// [`Transform`] and [`Sink`] show complete nodes.
pub trait Node: Sized + 'static {
    /// The type of the node's `config:` in the graph file. `serde` reads it, and `schemars`
    /// describes it to `limen-run kinds`, `explain` and `schema`. `#[serde(deny_unknown_fields)]`
    /// is not needed: unknown keys are always errors.
    type Config: DeserializeOwned + JsonSchema + Send + 'static;

    /// Declares the node's ports and properties, while planning. They may depend on the config, on
    /// the specs of the connected ports, and on files in the graph's folder. Nothing runs yet.
    ///
    /// # Errors
    /// All errors of the config and the connected ports, each with its field or port.
    fn ports(config: &Self::Config, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors>;

    /// Builds the node, on the thread that will run it. Open files and devices and allocate state
    /// here.
    ///
    /// # Errors
    /// Any reason why the node cannot work. The graph then does not start.
    fn build(config: Self::Config, cx: &mut Building<'_>) -> Result<Self, NodeError>;

    /// Changes a setting between two turns; see [`Running::set`](crate::Running::set). `ports`
    /// declared the setting with [`Ports::setting`], and the value is within its range.
    ///
    /// # Errors
    /// [`NodeErrorKind::UnknownSetting`] by default.
    ///
    /// ```
    /// # use limen::node::{NodeError, NodeErrorKind};
    /// # struct Gain(f64);
    /// # impl Gain {
    /// fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
    ///     match name {
    ///         "gain" => self.0 = value,
    ///         _ => return Err(NodeErrorKind::UnknownSetting { name: name.into() }.into()),
    ///     }
    ///     Ok(())
    /// }
    /// # }
    /// ```
    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        let _ = value;
        Err(crate::port::error::NodeErrorKind::UnknownSetting { name: name.to_string() }.into())
    }

    /// Resets the node's state after a gap in its input, for a node whose result depends on earlier
    /// messages, such as a filter. Does nothing by default.
    fn reset(&mut self, why: Reset) {
        let _ = why;
    }

    /// Reports the node's metrics, once, when the node has ended. `--fail-on` can test them.
    ///
    /// Count messages that the node loses or discards while it runs with [`Building::lost`] and
    /// [`Building::discarded`]. [`Metrics::lost`] and [`Metrics::discarded`] are for counts that
    /// are known only at the end.
    fn metrics(&self, to: &mut Metrics) {
        let _ = to;
    }
}

/// Why a node must reset its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// Messages are missing between the last message and the next one.
    Gap,
}

/// A node that creates messages.
///
/// A complete source, in a graph from text:
///
/// ```
/// use limen::node::prelude::*;
/// use limen::{Plan, Registry, Spec};
///
/// /// Sends the numbers from 0 on.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct CountConfig {
///     /// How many numbers to send.
///     total: u64,
/// }
///
/// struct Count {
///     total: u64,
/// }
///
/// impl Node for Count {
///     type Config = CountConfig;
///
///     fn ports(
///         config: &CountConfig,
///         _: &Connected,
///         _: &mut Planning<'_>,
///     ) -> Result<Ports, PlanErrors> {
///         let number = PortSpec::fixed(DType::U64, []);
///         Ok(Ports::new().output("number", number).total(config.total))
///     }
///
///     fn build(config: CountConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
///         Ok(Count { total: config.total })
///     }
/// }
///
/// impl Source for Count {
///     type Out = Tensor;
///
///     fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
///         let header = out.header(out.now());
///         if header.seq == self.total {
///             return Ok(Next::Done);
///         }
///         let mut number = out.loan(&header)?;
///         number.as_mut_slice::<u64>()?[0] = header.seq;
///         out.send(number);
///         Ok(Next::More)
///     }
/// }
///
/// const GRAPH: &str = "
/// version: 1
/// nodes:
///   numbers: { kind: count, config: { total: 3 } }
///   out: { kind: outlet, from: numbers }
/// ";
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new().source::<Count>("count").outlet::<Tensor>("outlet");
/// let mut graph = Plan::new(Spec::from_text(GRAPH, "count.yaml")?, &registry)?.wire()?;
/// let mut out = graph.outlet::<Tensor>("out")?;
/// let running = graph.start()?;
/// for number in 0..3 {
///     assert_eq!(out.recv()?.body.as_slice::<u64>()?, [number]);
/// }
/// assert_eq!(running.wait().lost_total(), 0);
/// # Ok(())
/// # }
/// ```
///
/// [`Next`] says when the engine calls the source again. A source that reads a socket or a device
/// waits for its descriptor: [`Descriptors`].
pub trait Source: Node {
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Emits the available messages, at most the declared bound, and returns when to be called
    /// again. Called only while every blocking output has room. Each call that sends something has
    /// its own sequence number: [`Emit::header`].
    ///
    /// # Errors
    /// The call counts as failed and nothing of it is published; `on_error` decides what follows.
    fn next(&mut self, out: &mut Emit<Self::Out>) -> Result<Next, NodeError>;

    /// Makes the calls that there is room for, or some of them. By default, each is
    /// [`Source::next`].
    ///
    /// An implementation may do once what every call would repeat ([`Room::each`]), or send tensors
    /// at once ([`Room::fill`]). The engine may call `next` instead, so both must do the same.
    ///
    /// # Errors
    /// The call that failed counts as failed, as in `next`. The earlier calls are made. An error
    /// outside of a call counts as one more call.
    ///
    /// ```
    /// use limen::node::prelude::*;
    /// # struct Numbers;
    /// # impl Node for Numbers {
    /// #     type Config = ();
    /// #     fn ports(_: &(), _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
    /// #         Ok(Ports::new().output("out", PortSpec::fixed(DType::U64, [])).endless())
    /// #     }
    /// #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(Numbers) }
    /// # }
    /// impl Source for Numbers {
    ///     type Out = Tensor;
    ///     fn next(&mut self, out: &mut Emit<Tensor>) -> Result<Next, NodeError> {
    ///         let header = out.header(out.now());
    ///         let mut number = out.loan(&header)?;
    ///         number.as_mut_slice::<u64>()?[0] = header.seq;
    ///         out.send(number);
    ///         Ok(Next::More)
    ///     }
    ///     fn next_burst(&mut self, room: &mut Room<'_, Tensor>) -> Result<Next, NodeError> {
    ///         let filled = room.fill(u64::MAX, room.now(), |number, seq| {
    ///             number.as_mut_slice::<u64>()?[0] = seq;
    ///             Ok(())
    ///         })?;
    ///         if filled > 0 { Ok(Next::More) } else { room.each(|out| self.next(out)) }
    ///     }
    /// }
    /// ```
    #[inline(always)]
    fn next_burst(&mut self, room: &mut Room<'_, Self::Out>) -> Result<Next, NodeError> {
        room.each(|out| self.next(out))
    }
}

/// Whether a sink that waits for descriptors can take messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It can take the next message. [`Sink::progress`] is called again after that message, when
    /// one of its [`Descriptors`] is ready, and at this time of the run's clock at the latest;
    /// [`Time::NEVER`] for no time limit.
    Takes(Time),
    /// It cannot take a message until earlier output is written; messages wait on its edges.
    /// [`Sink::progress`] is called again when one of its descriptors is ready, and at this time of
    /// the run's clock at the latest.
    WhenReady(Time),
}

/// A node that turns messages into messages.
///
/// A complete transform, in a graph from text:
///
/// ```
/// use limen::node::prelude::*;
/// use limen::{Plan, Registry, Spec};
///
/// /// Computes the mean of the numbers of a message.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct MeanConfig {
///     /// A message has at most this many numbers.
///     max: usize,
/// }
///
/// struct Mean;
///
/// impl Node for Mean {
///     type Config = MeanConfig;
///
///     fn ports(
///         config: &MeanConfig,
///         _: &Connected,
///         _: &mut Planning<'_>,
///     ) -> Result<Ports, PlanErrors> {
///         let mut errors = PlanErrors::default();
///         if config.max == 0 {
///             errors.at("max", "`max` must be at least 1, got 0").help("write `max: 16`");
///         }
///         // Planning rejects an input of another element type or rank, and longer messages.
///         let numbers = PortSpec::new(DType::F32, [Dim::AtMost(config.max)]);
///         let mean = PortSpec::fixed(DType::F32, []);
///         errors.into_result(Ports::new().input("in", numbers).output("out", mean))
///     }
///
///     fn build(_: MeanConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
///         Ok(Mean)
///     }
/// }
///
/// impl Transform for Mean {
///     type In = Tensor;
///     type Out = Tensor;
///
///     fn apply(
///         &mut self,
///         input: Message<Tensor>,
///         out: &mut Emit<Tensor>,
///     ) -> Result<(), NodeError> {
///         let numbers = input.body.as_slice::<f32>()?;
///         let mut mean = out.loan(input.header())?;
///         mean.as_mut_slice::<f32>()?[0] = numbers.iter().sum::<f32>() / numbers.len() as f32;
///         out.send(mean);
///         Ok(())
///     }
/// }
///
/// const GRAPH: &str = "
/// version: 1
/// nodes:
///   numbers: { kind: inlet, config: { spec: 'f32[3]' } }
///   mean: { kind: mean, config: { max: 16 }, from: numbers }
///   out: { kind: outlet, from: mean }
/// ";
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new()
///     .inlet::<Tensor>("inlet")
///     .transform::<Mean>("mean")
///     .outlet::<Tensor>("outlet");
/// let mut graph = Plan::new(Spec::from_text(GRAPH, "mean.yaml")?, &registry)?.wire()?;
/// let mut numbers = graph.inlet::<Tensor>("numbers")?;
/// let mut out = graph.outlet::<Tensor>("out")?;
/// let running = graph.start()?;
/// let header = numbers.header();
/// let mut tensor = numbers.loan(&header)?;
/// tensor.as_mut_slice::<f32>()?.copy_from_slice(&[1.0, 2.0, 6.0]);
/// numbers.send(tensor)?;
/// assert_eq!(out.recv()?.body.as_slice::<f32>()?, [3.0]);
/// numbers.close();
/// assert_eq!(running.wait().exit_code(), 0);
/// # Ok(())
/// # }
/// ```
///
/// `type In` may be a tuple or [`Many`] for several inputs, [`OneOf`] for one message of any input,
/// and `TensorMut` to write in place.
pub trait Transform: Node {
    /// The payload of its input, or a tuple, or [`Many`], or `TensorMut` to write in place.
    type In: Inputs;
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Processes one message (or one set, with several inputs) and emits at most the declared
    /// bound.
    ///
    /// # Errors
    /// The inputs count as failed and nothing of the call is published; `on_error` decides what
    /// follows.
    fn apply(&mut self, input: Taken<Self::In>, out: &mut Emit<Self::Out>) -> Result<(), NodeError>;

    /// Processes messages that were published together, one call for each. By default, each is
    /// [`Transform::apply`].
    ///
    /// An implementation may do once what every call would repeat ([`Burst::each`]), or send all
    /// messages on ([`Burst::forward`]). The engine passes the messages that it leaves to `apply`.
    /// The engine may pass any message to `apply` instead, and a burst may be a single message, so
    /// both must do the same.
    ///
    /// # Errors
    /// The last message taken counts as failed, or the first one if none was taken; `on_error`
    /// decides what follows.
    ///
    /// ```
    /// use limen::node::prelude::*;
    /// # struct Tap;
    /// # impl Node for Tap {
    /// #     type Config = ();
    /// #     fn ports(_: &(), given: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
    /// #         Ok(Ports::new().input_any("in").output_forwarding("out", given.single().cloned(), "in"))
    /// #     }
    /// #     fn build(_: (), _: &mut Building<'_>) -> Result<Self, NodeError> { Ok(Tap) }
    /// # }
    /// impl Transform for Tap {
    ///     type In = Tensor;
    ///     type Out = Tensor;
    ///     fn apply(&mut self, input: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    ///         out.send(input);
    ///         Ok(())
    ///     }
    ///     fn apply_burst(&mut self, burst: &mut Burst<'_, Message<Tensor>>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    ///         burst.forward(out)
    ///     }
    /// }
    /// ```
    #[inline(always)]
    fn apply_burst(
        &mut self,
        burst: &mut Burst<'_, Taken<Self::In>>,
        out: &mut Emit<Self::Out>,
    ) -> Result<(), NodeError> {
        burst.each(out, |input, out| self.apply(input, out))
    }

    /// Called at the time last requested with [`Emit::wake_at`], also if no message arrives. With
    /// [`Ports::wakes`], also called once when the run begins.
    ///
    /// # Errors
    /// The call counts as failed and nothing of it is published; `on_error` decides what follows.
    fn wake(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }

    /// Called once when the stream has ended. Emit the messages that the node still holds.
    ///
    /// # Errors
    /// The call counts as failed and nothing of it is published; `on_error` decides what follows.
    fn finish(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }
}

/// A node that consumes messages.
///
/// A complete sink, in a graph from text:
///
/// ```
/// use limen::node::prelude::*;
/// use limen::{Plan, Registry, Spec};
///
/// /// Keeps the largest number.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct PeakConfig {}
///
/// struct Peak(f32);
///
/// impl Node for Peak {
///     type Config = PeakConfig;
///
///     fn ports(
///         _: &PeakConfig,
///         _: &Connected,
///         _: &mut Planning<'_>,
///     ) -> Result<Ports, PlanErrors> {
///         Ok(Ports::new().input("in", PortSpec::fixed(DType::F32, [])))
///     }
///
///     fn build(_: PeakConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
///         Ok(Peak(f32::NEG_INFINITY))
///     }
///
///     fn metrics(&self, to: &mut Metrics) {
///         to.set("peak", self.0.into());
///     }
/// }
///
/// impl Sink for Peak {
///     type In = Tensor;
///
///     fn take(&mut self, input: Message<Tensor>) -> Result<(), NodeError> {
///         self.0 = self.0.max(input.body.as_slice::<f32>()?[0]);
///         Ok(())
///     }
/// }
///
/// const GRAPH: &str = "
/// version: 1
/// nodes:
///   numbers: { kind: inlet, config: { spec: f32 } }
///   peak: { kind: peak, from: numbers }
/// ";
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new().inlet::<Tensor>("inlet").sink::<Peak>("peak");
/// let mut graph = Plan::new(Spec::from_text(GRAPH, "peak.yaml")?, &registry)?.wire()?;
/// let mut numbers = graph.inlet::<Tensor>("numbers")?;
/// let running = graph.start()?;
/// for number in [1.5, 4.0, -2.0] {
///     let header = numbers.header();
///     let mut tensor = numbers.loan(&header)?;
///     tensor.as_mut_slice::<f32>()?[0] = number;
///     numbers.send(tensor)?;
/// }
/// numbers.close();
/// assert_eq!(running.wait().metric("peak.peak"), Some(4.0));
/// # Ok(())
/// # }
/// ```
///
/// A sink that writes to a socket sets [`Sink::WAITS`] and implements [`Sink::progress`]. A sink
/// that buffers output writes it in [`Sink::flush`] and completes it in [`Sink::finish`].
pub trait Sink: Node {
    /// The payload of its input, or a tuple, or [`Many`].
    type In: Inputs;
    /// Whether it waits for [`Descriptors`]: to write, to connect, to accept. Then
    /// [`Sink::progress`] decides when it takes messages, and it takes them one at a time.
    const WAITS: bool = false;

    /// Consumes one message, or one set of messages with several inputs.
    ///
    /// # Errors
    /// The inputs count as failed; `on_error` decides what follows.
    fn take(&mut self, input: Taken<Self::In>) -> Result<(), NodeError>;

    /// Writes buffered output. Called when no message is waiting, and twice a second while messages
    /// keep coming. Does nothing by default.
    ///
    /// # Errors
    /// The call counts as failed; `on_error` decides what follows.
    fn flush(&mut self) -> Result<(), NodeError> {
        Ok(())
    }

    /// Completes open output, such as the end of a file. Called once when the stream has ended;
    /// calls [`Sink::flush`] by default.
    ///
    /// Not called if the run failed before the first message arrived. The engine then drops the
    /// sink, which must leave an existing file as it was.
    ///
    /// # Errors
    /// The call counts as failed; `on_error` decides what follows.
    fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()
    }

    /// Writes as much as possible without blocking, and returns whether the next message can be
    /// taken. Called only if [`Sink::WAITS`]: before the first message, after each message, when
    /// one of its [`Descriptors`] is ready, at the time it returned last, and after
    /// [`Sink::finish`] until it returns [`Progress::Takes`], which ends the node. A sink that
    /// gives up waiting for a peer counts the lost messages itself.
    ///
    /// # Errors
    /// The node fails.
    fn progress(&mut self) -> Result<Progress, NodeError> {
        Ok(Progress::Takes(Time::NEVER))
    }
}
