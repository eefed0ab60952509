//! Outlets: messages that the embedding program receives from the graph.
//!
//! `kind: outlet` is an ordinary sink. The policy of its edge also applies to the edge to the
//! program: with `block` the graph waits for a slower program, with `latest` the program gets the
//! newest message.

use super::inlet;
use super::receiver::{Receiver, RecvError};
use crate::base::error::PlanErrors;
use crate::base::policy::WhenFull;
use crate::edge::{EdgeShared, OuterParams, OuterTx, Reason, outer};
use crate::exec::endpoint::Endpoint;
use crate::exec::endpoint::EndpointParts;
use crate::exec::endpoint::HandleKind;
use crate::exec::endpoint::NewHandle;
use crate::exec::planned::{PlannedNode, StageParts};
use crate::exec::stage::{SinkHooks, SinkStage, Stage};
use crate::exec::worker::Cx;
use crate::host::clock::Time;
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::{Message, Payload};
use crate::message::port_spec::Layout;
use crate::node::planning::{Building, Connected, Planning};
use crate::node::ports::{InPort, Ports};
use crate::node::{Node, PortType, Sink};
use crate::port::error::{NodeError, NodeErrorKind};
use crate::port::intake::SealedInputs;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// Passes messages to the embedding program. Before the start, the program looks up the outlet by
/// node name. `limen-run` rejects a graph with an outlet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct OutletConfig {
    /// Expected type and shape of a message: `f32[10]`. limen rejects a graph in which the input
    /// differs.
    pub spec: Option<String>,
    /// Expected order of an image's dims. limen rejects a graph in which the input has a different
    /// order.
    pub layout: Option<Layout>,
    /// Maximum number of messages that wait for the program, at least 1. The program may also keep
    /// up to `hold` received messages. Default: 8.
    #[serde(default = "eight")]
    pub hold: usize,
}

fn eight() -> usize {
    8
}

/// An outlet of a plan.
pub(crate) struct OutletPlan<T: Payload> {
    ports: Ports,
    hold: usize,
    tx: Option<OuterTx<T>>,
}

impl<T: Payload> OutletPlan<T> {
    pub(crate) fn new(config: &OutletConfig) -> Result<Self, PlanErrors> {
        let mut errors = PlanErrors::default();
        let spec = inlet::read_spec::<T>(config.spec.as_ref(), config.layout, &mut errors);
        let hold = config.hold;
        if hold == 0 || hold > inlet::MOST {
            let most = inlet::MOST;
            errors
                .at("hold", format!("`hold` must be 1 to {most}, got {hold}"))
                .help(format!("write a number from 1 to {most}"));
        }
        let ports = Ports::new().in_port(InPort { name: "in".into(), spec, holds: hold.saturating_mul(2) });
        errors.into_result(OutletPlan { ports, hold, tx: None })
    }
}

impl<T: Payload> PlannedNode for OutletPlan<T> {
    fn ports(&self) -> &Ports {
        &self.ports
    }
    fn input_types(&self) -> Vec<PortType> {
        vec![PortType::of::<T>()]
    }
    fn output_types(&self) -> Vec<PortType> {
        Vec::new()
    }
    fn counts(&self) -> (Option<usize>, Option<usize>) {
        (<T as SealedInputs>::COUNT, Some(0))
    }
    fn outside(&self) -> usize {
        self.hold
    }
    fn attach(&mut self, with: EndpointParts) -> Option<NewHandle> {
        let own: Arc<Bell> = Arc::default();
        let params = OuterParams {
            capacity: if with.when_full == WhenFull::Latest { 1 } else { self.hold },
            when_full: with.when_full,
            shared: Arc::<EdgeShared>::default(),
            gone: Arc::default(),
            producer_bell: with.bell,
            consumer_bell: own.clone(),
        };
        let (tx, rx) = outer(&params);
        self.tx = Some(tx);
        let endpoint = DynArc::new(Endpoint {
            name: with.name,
            kind: HandleKind::Outlet,
            end: Some(rx).into(),
            remains: None.into(),
            params,
            run: with.run,
        });
        let handle = Outlet::<T>(Receiver { endpoint: endpoint.clone(), bell: own });
        Some(NewHandle { handle: Box::new(handle), ty: PortType::of::<T>(), endpoint })
    }
    fn make(
        self: Box<Self>,
        parts: StageParts,
        building: &mut Building<'_>,
        cx: &mut Cx,
    ) -> Result<Box<dyn Stage>, NodeError> {
        let tx = self.tx.ok_or_else(|| NodeError::other("an outlet is wired before it is built"))?;
        let node = OutletNode { tx };
        // The program's end of the edge exists once: the node cannot be rebuilt.
        let parts = StageParts { blueprint: None, ..parts };
        Ok(Box::new(<SinkStage<_, OutletHooks>>::new(node, parts, building.descriptors(), cx)))
    }
}

/// The node at the graph's end of the edge.
struct OutletNode<T: Payload> {
    tx: OuterTx<T>,
}

impl<T: Payload> Node for OutletNode<T> {
    type Config = OutletConfig;
    fn ports(config: &OutletConfig, _: &Connected, _: &mut Planning<'_>) -> Result<Ports, PlanErrors> {
        OutletPlan::<T>::new(config).map(|plan| plan.ports)
    }
    fn build(_: OutletConfig, _: &mut Building<'_>) -> Result<Self, NodeError> {
        Err(NodeError::other("an outlet is made by its plan"))
    }
}

impl<T: Payload> Sink for OutletNode<T> {
    type In = T;

    fn take(&mut self, message: Message<T>) -> Result<(), NodeError> {
        if self.tx.is_gone() {
            // The program has dropped its end; the graph continues without it.
            self.tx.lose(Reason::ConsumerGone, 1);
            return Ok(());
        }
        self.tx.push(message).map_err(|_| NodeErrorKind::EdgeFull { edge: "to the program".into() }.into())
    }

    fn finish(&mut self) -> Result<(), NodeError> {
        self.tx.close(false);
        Ok(())
    }
}

struct OutletHooks;

impl<T: Payload> SinkHooks<OutletNode<T>> for OutletHooks {
    fn room(node: &OutletNode<T>, calls: usize) -> usize {
        if node.tx.is_gone() { calls } else { node.tx.room().min(calls) }
    }
    fn turned(node: &mut OutletNode<T>) {
        node.tx.ring();
    }
    fn feeder_failed(node: &mut OutletNode<T>) {
        node.tx.close(true);
    }
}

/// Receives messages from a graph. Taken by [`Wired::outlet`](crate::Wired::outlet); if it is
/// dropped, the graph continues, and further messages count as lost.
///
/// Messages waiting when a run has ended can still be received; in a report made before that they
/// count as *left*. A stop waits, within its time limit, for an outlet whose edge blocks: keep
/// receiving, or drop the outlet, before requesting a stop.
///
/// ```
/// # use limen::{Message, Plan, Registry, Spec};
/// # use limen::message::Plain;
/// # #[derive(Clone, Debug)] struct Number(u64);
/// # impl Plain for Number {}
/// # let registry = Registry::new().inlet::<Number>("numbers").outlet::<Number>("results");
/// # let text = "version: 1\nnodes: { a: { kind: numbers }, z: { kind: results, from: a } }";
/// # let plan = Plan::new(Spec::from_text(text, "g.yaml").unwrap(), &registry).unwrap();
/// # use limen::RecvError;
/// let mut graph = plan.wire().unwrap();
/// let mut results = graph.outlet::<Number>("z").unwrap();
/// # let mut numbers = graph.inlet::<Number>("a").unwrap();
/// # numbers.send(Message::new(numbers.header(), Number(7))).unwrap();
/// # numbers.close();
/// let running = graph.start().unwrap();
/// assert_eq!(results.recv().unwrap().body.0, 7);
/// assert_eq!(results.recv().unwrap_err(), RecvError::Ended);
/// # running.wait();
/// ```
pub struct Outlet<T: Payload>(Receiver<T>);

impl<T: Payload> Outlet<T> {
    /// Returns the next message, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if there is none now; [`RecvError::Ended`] or [`RecvError::Failed`] if
    /// none will arrive.
    pub fn try_recv(&mut self) -> Result<Message<T>, RecvError> {
        self.0.try_recv()
    }

    /// Waits for the next message. Before the start it waits for that too.
    ///
    /// # Errors
    /// [`RecvError::Ended`] or [`RecvError::Failed`] if none will arrive; [`RecvError::OwnTurn`] if
    /// this thread drives the graph.
    pub fn recv(&mut self) -> Result<Message<T>, RecvError> {
        self.0.recv_until(Time::NEVER)
    }

    /// Waits for the next message, for at most `time`.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none arrived in time; [`RecvError::Ended`] or [`RecvError::Failed`]
    /// if none will arrive; [`RecvError::OwnTurn`] if this thread drives the graph.
    pub fn recv_timeout(&mut self, time: Duration) -> Result<Message<T>, RecvError> {
        self.0.recv_timeout(time)
    }
}

impl<T: Payload> fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("name", &self.0.endpoint.name).finish_non_exhaustive()
    }
}
