//! The traits node authors implement, and what a node declares while planning.
//!
//! An author writes a config struct and one short `impl` of [`Source`], [`Transform`] or [`Sink`]; the engine owns the
//! loop, the ports, backpressure, timing, counting, panics and shutdown. The inputs and outputs of a node are a type:
//! one payload, a tuple of payloads, or [`Many`] for ports named by the graph file. A node with several inputs is a
//! join: the engine matches messages by sequence number before it calls the node.

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
pub use live::{ClockSteps, ConnectionStatus, DiscardCounter, IncidentCounter, LossCounter};
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

/// The part common to every kind of node.
pub trait Node: Sized + 'static {
    /// What `config:` holds. `#[serde(deny_unknown_fields)]` is not needed: unknown keys are always errors. `serde` reads it, and
    /// `schemars` describes it to `limen-run kinds`, `explain` and `schema`.
    type Config: DeserializeOwned + JsonSchema + Send + 'static;

    /// Returns the node's ports, while planning. They may depend on the config, on the specs of the connected ports,
    /// and on files in the graph's folder; nothing is running yet.
    ///
    /// # Errors
    /// All problems of the config and the connected ports, each naming its field or port.
    fn ports(config: &Self::Config, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors>;

    /// Builds the node, on the thread that will run it.
    ///
    /// # Errors
    /// Whatever keeps the node from working; the graph then does not start.
    fn build(config: Self::Config, cx: &mut Building<'_>) -> Result<Self, NodeError>;

    /// Changes a setting between turns. The setting was declared by [`Ports::setting`], and the value is within its
    /// range.
    ///
    /// # Errors
    /// [`NodeErrorKind::UnknownSetting`] by default.
    fn set(&mut self, name: &str, value: f64) -> Result<(), NodeError> {
        let _ = value;
        Err(crate::port::error::NodeErrorKind::UnknownSetting { name: name.to_string() }.into())
    }

    /// Resets the node's state after a gap.
    fn reset(&mut self, why: Reset) {
        let _ = why;
    }

    /// Reports the node's metrics, once, when the node has ended; `--fail-on` can test them. Messages that the node loses while it runs are
    /// counted by [`Building::lost`]; [`Metrics::lost`] is for what is known only at the end. Messages that it discarded on purpose are
    /// reported by [`Metrics::discarded`].
    fn metrics(&self, to: &mut Metrics) {
        let _ = to;
    }
}

/// Why a node must reset its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// Messages are missing.
    Gap,
}

mod engine_only {
    /// An argument of the methods that only the engine's handles implement: no other crate can name its type.
    #[derive(Clone, Copy, Debug)]
    pub struct EngineOnly;
}
pub(crate) use engine_only::EngineOnly;

/// A node that creates messages.
pub trait Source: Node {
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Emits the available messages, at most the declared bound, and returns when to be called again. Called only while
    /// every blocking output has room. Each call has its own sequence number: [`Emit::header`].
    ///
    /// # Errors
    /// The call counts as failed and nothing of it is published; `on_error` decides what follows.
    fn next(&mut self, out: &mut Emit<Self::Out>) -> Result<Next, NodeError>;

    /// Makes the calls that there is room for, or some of them: [`Source::next`] each, if not overridden. An implementation may do once what
    /// every call would repeat ([`Room::each`]), or send tensors at once ([`Room::fill`]). `next` may be called instead, so both must do the
    /// same.
    ///
    /// # Errors
    /// The call that failed counts as failed, as for `next`; those before it are made. An error of its own is one more call.
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

    /// Whether a stop has to wait for messages already promised.
    #[doc(hidden)]
    fn owes(&self, _: EngineOnly) -> bool {
        false
    }

    /// Called after a turn, when its output has been published.
    #[doc(hidden)]
    fn turned(&mut self, _: EngineOnly) {}

    /// Called after the last call.
    #[doc(hidden)]
    fn ended(&mut self, _: EngineOnly) {}
}

/// Whether a sink that waits for descriptors can take messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// It can take the next message. [`Sink::progress`] is called again after that message, when one of its
    /// [`Descriptors`] is ready, and at this time of the run's clock at the latest; [`Time::NEVER`] for no time limit.
    Takes(Time),
    /// It cannot take a message until earlier output is written; messages wait on its edges. [`Sink::progress`] is
    /// called again when one of its descriptors is ready, and at this time of the run's clock at the latest.
    WhenReady(Time),
}

/// A node that turns messages into messages.
pub trait Transform: Node {
    /// The payload of its input, or a tuple, or [`Many`], or `TensorMut` to write in place.
    type In: Inputs;
    /// The payloads of its outputs.
    type Out: Outputs;

    /// Processes one message (or one set, with several inputs) and emits at most the declared bound.
    ///
    /// # Errors
    /// The inputs count as failed and nothing of the call is published; `on_error` decides what follows.
    fn apply(&mut self, input: Taken<Self::In>, out: &mut Emit<Self::Out>) -> Result<(), NodeError>;

    /// Processes messages that were published together, one call for each: [`Transform::apply`], if not overridden. An implementation may
    /// do once what every call would repeat ([`Burst::each`]), or send all messages on ([`Burst::forward`]); those that it leaves are given
    /// to `apply`. Any message may be given to `apply` instead, and a burst may be a single message, so both must do the same.
    ///
    /// # Errors
    /// The last message taken counts as failed, or the first one if none was taken; `on_error` decides what follows.
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

    /// Called at the time last requested with [`Emit::wake_at`].
    ///
    /// # Errors
    /// As [`Transform::apply`].
    fn wake(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }

    /// Called when the stream has ended: emit what is still held.
    ///
    /// # Errors
    /// As [`Transform::apply`].
    fn finish(&mut self, out: &mut Emit<Self::Out>) -> Result<(), NodeError> {
        let _ = out;
        Ok(())
    }
}

/// A node that consumes messages.
pub trait Sink: Node {
    /// The payload of its input, or a tuple, or [`Many`].
    type In: Inputs;
    /// Whether it waits for [`Descriptors`]: to write, to connect, to accept. Then [`Sink::progress`] decides when it
    /// takes messages, and it takes them one at a time.
    const WAITS: bool = false;

    /// Takes one message, or one set.
    ///
    /// # Errors
    /// The inputs count as failed; `on_error` decides what follows.
    fn take(&mut self, input: Taken<Self::In>) -> Result<(), NodeError>;

    /// Called when no message is waiting, and twice a second while messages keep coming: write out what is buffered.
    ///
    /// # Errors
    /// The node fails.
    fn flush(&mut self) -> Result<(), NodeError> {
        Ok(())
    }

    /// Called when the stream has ended: complete what is open. Not called if the run has failed before the first message came: then the
    /// sink is dropped, and leaves what it would replace as it was.
    ///
    /// # Errors
    /// The node fails.
    fn finish(&mut self) -> Result<(), NodeError> {
        self.flush()
    }

    /// Writes as much as possible without blocking, and returns whether the next message can be taken. Called only if
    /// [`Sink::WAITS`]: before the first message, after each message, when one of its [`Descriptors`] is ready, at the
    /// time it returned last, and after [`Sink::finish`] until it returns [`Progress::Takes`], which ends the node. A
    /// sink that gives up waiting for a peer counts the lost messages itself.
    ///
    /// # Errors
    /// The node fails.
    fn progress(&mut self) -> Result<Progress, NodeError> {
        Ok(Progress::Takes(Time::NEVER))
    }

    /// Returns how many of `calls` calls there is room for downstream.
    #[doc(hidden)]
    fn room(&self, calls: usize, _: EngineOnly) -> usize {
        calls
    }

    /// Called after a turn.
    #[doc(hidden)]
    fn turned(&mut self, _: EngineOnly) {}

    /// Called before [`Sink::finish`] if the upstream node has failed.
    #[doc(hidden)]
    fn feeder_failed(&mut self, _: EngineOnly) {}
}
