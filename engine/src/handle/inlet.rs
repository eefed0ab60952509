//! Inlets: messages that the embedding program sends into the graph.
//!
//! `kind: inlet` is an ordinary source that forwards the program's messages. Its edge from the
//! program blocks: a program that is faster than the graph gets an error, or waits. Buffers are
//! loaned from a pool sized while planning for everything the graph can hold, the messages waiting
//! to enter it, and the buffers the program has on loan.

use super::{end_of, has_buffers, sleep_unless};
use crate::base::error::PlanErrors;
use crate::base::policy::Qos;
use crate::base::policy::WhenFull;
use crate::edge::{EdgeShared, EdgeState, OuterParams, OuterRx, OuterTx, outer};
use crate::exec::endpoint::Endpoint;
use crate::exec::endpoint::EndpointParts;
use crate::exec::endpoint::HandleKind;
use crate::exec::endpoint::NewHandle;
use crate::exec::planned::{PlannedNode, StageParts};
use crate::exec::shared::lock;
use crate::exec::stage::{SourceHooks, SourceStage, Stage};
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::{Header, Message, Payload};
use crate::message::pool::Pool;
use crate::message::port_spec::{Content, Layout, PortSpec};
use crate::message::tensor::{Tensor, TensorError, TensorMut};
use crate::node::planning::{Building, Connected, Planning};
use crate::node::ports::Ports;
use crate::node::{Next, Node, PortType, Source};
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::output::SealedOutputs;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Sends the embedding program's messages into the graph. Before the start, the program looks up
/// the inlet by node name. `limen-run` rejects a graph with an inlet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct InletConfig {
    /// Type and shape of a message: `u8[480,640,3]`. `f32[<=300,6]` sets the greatest length of a
    /// dim.
    pub spec: Option<String>,
    /// The order of an image's dims. `layout` is required only if a downstream node depends on the
    /// order.
    pub layout: Option<Layout>,
    /// Meaning of the message's elements. Default: `numbers`. Tables and JSON files store `text` as
    /// text.
    #[serde(default)]
    pub content: Content,
    /// Maximum number of messages that wait to enter the graph, at least 1. Default: the number of
    /// messages that fit in 4 MiB, but at least 2 and at most 16.
    pub capacity: Option<usize>,
    /// Maximum number of buffers, at least 1, that the program may borrow at the same time.
    /// Default: 2.
    #[serde(default = "two")]
    pub hold: usize,
}

fn two() -> usize {
    2
}

/// Upper limit of `capacity` and `hold`: more is a mistake.
pub(super) const MOST: usize = 1 << 20;

/// Parses the spec of a handle's messages.
pub(super) fn read_spec<T: Payload>(
    text: Option<&String>,
    layout: Option<Layout>,
    errors: &mut PlanErrors,
) -> Option<PortSpec> {
    match text.map(|text| text.parse::<PortSpec>()) {
        Some(_) if !has_buffers::<T>() => {
            errors.at("spec", "`spec` requires messages that are tensors, found plain values").help("remove `spec`");
            None
        }
        Some(Ok(spec)) => Some(PortSpec { layout, ..spec }),
        Some(Err(why)) => {
            errors.at("spec", why).help("write an element type and the shape of one message: `u8[480,640,3]`");
            None
        }
        None => None,
    }
}

/// The graph's end of an inlet's edge. When it is dropped, its remaining messages are left to be
/// counted.
struct GraphEnd<T: Payload> {
    rx: Option<OuterRx<T>>,
    endpoint: DynArc<Endpoint<OuterTx<T>>>,
}

impl<T: Payload> Drop for GraphEnd<T> {
    fn drop(&mut self) {
        if let Some(rx) = self.rx.take() {
            rx.leave();
            *lock(&self.endpoint.remains) = Some(Box::new(rx));
        }
    }
}

/// An inlet of a plan.
pub(crate) struct InletPlan<T: Payload> {
    ports: Ports,
    capacity: usize,
    hold: usize,
    graph_end: Option<GraphEnd<T>>,
}

impl<T: Payload> InletPlan<T> {
    pub(crate) fn new(config: &InletConfig) -> Result<Self, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = read_spec::<T>(config.spec.as_ref(), config.layout, &mut errors);
        let spec = spec.map(|spec| spec.with_content(config.content));
        if config.spec.is_none() && has_buffers::<T>() {
            errors.at("spec", "`spec` of the program's messages is missing").help("write `spec: \"u8[480,640,3]\"`");
        }
        for (key, n) in [("capacity", config.capacity.unwrap_or(1)), ("hold", config.hold)] {
            if n == 0 || n > MOST {
                errors
                    .at(key, format!("`{key}` must be 1 to {MOST}, got {n}"))
                    .help(format!("write a number from 1 to {MOST}"));
            }
        }
        let bytes = spec.as_ref().and_then(PortSpec::max_bytes).unwrap_or(64).max(1);
        let capacity = config.capacity.unwrap_or_else(|| ((4 << 20) / bytes).clamp(2, 16));
        let ports = match spec {
            Some(spec) => Ports::new().output("out", spec),
            None => Ports::new().output_plain("out"),
        };
        errors.into_result(InletPlan { ports, capacity, hold: config.hold, graph_end: None })
    }

    /// Creates an inlet that replaces a source with these ports.
    pub(crate) fn instead_of(ports: Ports, capacity: usize, hold: usize) -> Self {
        InletPlan { ports, capacity, hold, graph_end: None }
    }
}

impl<T: Payload> PlannedNode for InletPlan<T> {
    fn ports(&self) -> &Ports {
        &self.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn output_types(&self) -> Vec<PortType> {
        vec![PortType::of::<T>()]
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (Some(0), <T as SealedOutputs>::COUNT)
    }
    fn outside(&self) -> usize {
        self.capacity + self.hold
    }
    fn attach(&mut self, with: EndpointParts) -> Option<NewHandle> {
        let own: Arc<Bell> = Arc::default();
        let params = OuterParams {
            capacity: self.capacity,
            when_full: WhenFull::Block,
            shared: Arc::<EdgeShared>::default(),
            gone: Arc::default(),
            producer_bell: own.clone(),
            consumer_bell: with.bell,
        };
        let (tx, rx) = outer(&params);
        let endpoint = DynArc::new(Endpoint {
            name: with.name,
            kind: HandleKind::Inlet,
            end: Some(tx).into(),
            remains: None.into(),
            params,
            run: with.run,
        });
        self.graph_end = Some(GraphEnd { rx: Some(rx), endpoint: endpoint.clone() });
        let handle = Inlet::<T> { endpoint: endpoint.clone(), pool: with.pool, bell: own };
        Some(NewHandle { handle: Box::new(handle), ty: PortType::of::<T>(), endpoint })
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let graph_end = self.graph_end.ok_or_else(|| NodeError::other("an inlet is wired before it is built"))?;
        // The program's end of the edge exists once: the node cannot be rebuilt.
        let parts = StageParts { blueprint: None, ..parts };
        Ok(Box::new(<SourceStage<_, InletHooks>>::new(InletNode { graph_end }, parts, building.descriptors(), cx)))
    }
}

/// The node at the graph's end of the edge.
struct InletNode<T: Payload> {
    graph_end: GraphEnd<T>,
}

/// In `Header::reserved`: the origin is by the run's own clock, not a device's.
const OWN_CLOCK: u16 = 1;

impl<T: Payload> Node for InletNode<T> {
    type Config = InletConfig;
    fn ports(config: &InletConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        InletPlan::<T>::new(config).map(|plan| plan.ports)
    }
    fn build(_: InletConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Err(NodeError::other("an inlet is made by its plan"))
    }
}

impl<T: Payload> Source for InletNode<T> {
    type Out = T;

    fn next(&mut self, out: &mut Emit<T>) -> Result<Next, NodeError> {
        let Some(rx) = &mut self.graph_end.rx else { return Ok(Next::Done) };
        let Some(message) = rx.pop() else {
            return Ok(if rx.state() == EdgeState::Open { Next::Idle } else { Next::Done });
        };
        rx.received(1);
        let given = *message.header();
        // Messages that waited for the run to start originate at its start.
        let origin = if given.origin == Time::ZERO { out.now() } else { given.origin };
        let own = given.reserved & OWN_CLOCK != 0;
        let begun = if own { out.header_here(origin) } else { out.header(origin) };
        let header = Header {
            deadline: given.deadline,
            flags: given.flags,
            segment: given.segment,
            qos: if given.qos == Qos::default() { begun.qos } else { given.qos },
            trace: if given.trace == 0 { begun.trace } else { given.trace },
            ..begun
        };
        out.send(T::with_header(message, &header));
        Ok(Next::More)
    }
}

struct InletHooks;

impl<T: Payload> SourceHooks<InletNode<T>> for InletHooks {
    fn owes(node: &InletNode<T>) -> bool {
        node.graph_end.rx.as_ref().is_some_and(|rx| rx.len() > 0)
    }
    fn turned(node: &mut InletNode<T>) {
        if let Some(rx) = &mut node.graph_end.rx {
            rx.ring();
        }
    }
    fn ended(node: &mut InletNode<T>) {
        if let Some(rx) = &node.graph_end.rx {
            rx.leave();
        }
    }
}

/// A message that an inlet did not accept, with the reason.
///
/// ```
/// use limen::{Inlet, Message, SendError, Tensor};
///
/// /// Sends a message, or returns it if the graph has no room for it now.
/// fn offer(
///     inlet: &mut Inlet<Tensor>,
///     message: Message<Tensor>,
/// ) -> Result<Option<Message<Tensor>>, SendError<Tensor>> {
///     match inlet.try_send(message) {
///         Ok(()) => Ok(None),
///         Err(SendError::Full(message)) => Ok(Some(message)),
///         Err(error) => Err(error),
///     }
/// }
/// ```
#[non_exhaustive]
pub enum SendError<T: Payload> {
    /// There is no room, or there was none in time: the graph is slower than the program.
    Full(Message<T>),
    /// The graph accepts no more: it was asked to stop, has ended, or the inlet's node has failed.
    Closed(Message<T>),
    /// The buffer was not loaned by this inlet, or has another handle.
    Foreign(Message<T>),
    /// There is no room, and this thread drives the graph, so it would wait for itself.
    OwnTurn(Message<T>),
}

impl<T: Payload> SendError<T> {
    /// Returns the message.
    pub fn into_message(self) -> Message<T> {
        match self {
            SendError::Full(m) | SendError::Closed(m) | SendError::Foreign(m) | SendError::OwnTurn(m) => m,
        }
    }
}

impl<T: Payload> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full(_) => "the inlet is full",
            SendError::Closed(_) => "the graph accepts no more messages",
            SendError::Foreign(_) => "the buffer must be loaned by this inlet and have no other handle",
            SendError::OwnTurn(_) => "the inlet is full while this thread drives the graph",
        })
    }
}

impl<T: Payload> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            SendError::Full(_) => "Full",
            SendError::Closed(_) => "Closed",
            SendError::Foreign(_) => "Foreign",
            SendError::OwnTurn(_) => "OwnTurn",
        };
        f.write_str(name)
    }
}

impl<T: Payload> std::error::Error for SendError<T> {}

/// Sends messages into a graph. Taken by [`Wired::inlet`](crate::Wired::inlet); dropping it ends
/// the stream.
///
/// Messages arrive in the order in which they were sent. Before the start they wait; after a stop
/// request no more are accepted, and earlier ones are still processed.
///
/// ```
/// # use limen::{Message, Plan, Registry, Spec};
/// # use limen::message::Plain;
/// # #[derive(Clone, Debug)] struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let plan = Plan::new(Spec::from_text(text, "g.yaml").unwrap(), &registry).unwrap();
/// let mut graph = plan.wire().unwrap();
/// let mut numbers = graph.inlet::<Number>("a").unwrap();
/// # let outlet = graph.outlet::<Number>("z").unwrap();
/// let running = graph.start().unwrap();
/// numbers.send(Message::new(numbers.header(), Number(7))).unwrap();
/// numbers.close();
/// # drop(outlet);
/// assert_eq!(running.wait().node("a").unwrap().done, 1);
/// ```
pub struct Inlet<T: Payload> {
    endpoint: DynArc<Endpoint<OuterTx<T>>>,
    pool: Option<Pool>,
    bell: Arc<Bell>,
}

impl<T: Payload> Inlet<T> {
    /// Returns the header of a message that originates now, by the clock of the run. Deadline,
    /// class, trace and segment may be changed; the graph sets sequence number and source.
    pub fn header(&self) -> Header {
        Header { reserved: OWN_CLOCK, ..self.header_at(self.endpoint.now()) }
    }

    /// Returns the header of a message that originated at a time of the device's clock. The node's
    /// `clock:` says how such times are converted; without it they are times of the run's clock.
    pub fn header_at(&self, origin: Time) -> Header {
        Header { trace: 0, ..Header::new(0, origin) }
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// The message, and why it was not accepted.
    pub fn try_send(&mut self, message: impl Into<Message<T>>) -> Result<(), SendError<T>> {
        self.offer(message.into())
    }

    /// Sends a message, waiting for room without limit. Before the start it waits for that too.
    ///
    /// # Errors
    /// The message, if the graph accepts no more or this thread drives it.
    pub fn send(&mut self, message: impl Into<Message<T>>) -> Result<(), SendError<T>> {
        self.send_until(message.into(), Time::NEVER)
    }

    /// Sends a message, waiting for room for at most `time`.
    ///
    /// # Errors
    /// The message, if the graph accepts no more, this thread drives it, or there was no room in
    /// time ([`SendError::Full`]).
    pub fn send_timeout(&mut self, message: impl Into<Message<T>>, time: Duration) -> Result<(), SendError<T>> {
        self.send_until(message.into(), end_of(time))
    }

    /// Returns whether the graph accepts no more messages.
    pub fn is_closed(&self) -> bool {
        self.endpoint.run.is_stopping() || lock(&self.endpoint.end).as_ref().is_none_or(OuterTx::is_gone)
    }

    /// Ends the stream, as dropping the inlet does; messages already sent are still processed.
    pub fn close(self) {}

    fn offer(&mut self, message: Message<T>) -> Result<(), SendError<T>> {
        if !T::is_sole(&message, self.pool.as_ref()) {
            return Err(SendError::Foreign(message));
        }
        let mut end = lock(&self.endpoint.end);
        match &mut *end {
            Some(tx) if !self.endpoint.run.is_stopping() && !tx.is_gone() => {
                tx.push(message).map_err(SendError::Full)?;
                tx.ring();
                Ok(())
            }
            _ => Err(SendError::Closed(message)),
        }
    }

    fn send_until(&mut self, mut message: Message<T>, until: Time) -> Result<(), SendError<T>> {
        loop {
            message = match self.offer(message) {
                Err(SendError::Full(message)) => message,
                other => return other,
            };
            let endpoint = &self.endpoint;
            let is_due = || {
                endpoint.run.is_stopping()
                    || lock(&endpoint.end).as_ref().is_none_or(|tx| tx.room() > 0 || tx.is_gone())
            };
            if !sleep_unless(&endpoint.run, &self.bell, until, is_due) {
                return Err(SendError::OwnTurn(message));
            }
            if until <= end_of(Duration::ZERO) {
                return self.offer(message);
            }
        }
    }
}

impl Inlet<Tensor> {
    /// Loans a free buffer, to be written and sent; the [example of the crate](crate#example) shows
    /// it. There is always one while the program has fewer than the node's `hold` on loan. Its
    /// content is unspecified.
    ///
    /// # Errors
    /// [`TensorError::PoolEmpty`] if the program has too many on loan.
    pub fn loan(&mut self, header: &Header) -> Result<TensorMut, TensorError> {
        let none = || TensorError::PoolEmpty { pool: self.endpoint.name.clone(), slots: 0 };
        let mut tensor = self.pool.as_mut().ok_or_else(none)?.take()?;
        *tensor.header_mut() = *header;
        Ok(tensor)
    }
}

impl<T: Payload> Drop for Inlet<T> {
    fn drop(&mut self) {
        // The end is kept for counting; closing is final.
        if let Some(tx) = &*lock(&self.endpoint.end) {
            tx.close(false);
        }
    }
}

impl<T: Payload> fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").field("name", &self.endpoint.name).finish_non_exhaustive()
    }
}
