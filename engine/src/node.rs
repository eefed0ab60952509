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
pub(crate) mod metrics;
pub(crate) mod planning;
pub(crate) mod port;
pub(crate) mod ports;

pub use crate::base::error::{FieldError, PlanErrors};
pub use crate::host::descriptors::{Descriptors, Interest, Watched};
pub use crate::message::MAX_PORTS;
pub use emit::Emit;
pub use error::{NodeError, NodeErrorKind};
pub use intake::{OneOf, Picked};
pub use metrics::Metrics;
pub use planning::{Building, Connected, Planning};
pub use port::{Outputs, Port, PortList};
pub use ports::{Claim, Cost, InPort, OutPort, Ports, Setting};

/// What most nodes need: `use limen::node::prelude::*;`.
pub mod prelude {
    pub use super::{
        Building, Connected, Emit, Many, Metrics, Next, Node, NodeError, PlanErrors, Planning, Ports, Reset, Sink,
        Source, Transform,
    };
    pub use crate::message::{DType, Dim, Header, Message, PortSpec, Tensor, TensorMut};
}

use crate::host::clock::Time;
use crate::message::payload::{Message, Payload};
use arrayvec::ArrayVec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::TypeId;

/// The common half of every kind of node.
pub trait Node: Sized + 'static {
    /// What `config:` holds. `#[serde(deny_unknown_fields)]` is not needed: unknown keys are always errors.
    type Config: DeserializeOwned + JsonSchema + Send + 'static;

    /// What the node takes and gives, worked out while planning. May depend on the config, on the specs of what is
    /// connected, and on files of the graph's folder; nothing is running yet.
    ///
    /// # Errors
    /// Everything that is wrong with the config or with what is connected, naming fields and ports.
    fn ports(config: &Self::Config, given: &Connected, cx: &mut Planning<'_>) -> Result<Ports, PlanErrors>;

    /// Makes the node, on the thread that will run it.
    ///
    /// # Errors
    /// Whatever stops the node from working; the graph then does not start.
    fn build(config: Self::Config, cx: &mut Building<'_>) -> Result<Self, NodeError>;

    /// Changes a setting between turns: one that [`Ports::setting`] declared, within its range.
    ///
    /// # Errors
    /// [`NodeErrorKind::UnknownSetting`] by default.
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

/// What one call of a node is given: a message, a tuple of messages, or a [`MessageSet`].
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
pub type MessageSet<T> = ArrayVec<Message<T>, MAX_PORTS>;

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
