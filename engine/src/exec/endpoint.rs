//! Endpoints: the state shared by a program's handle, its stage and the report.
//!
//! The program's end is behind a lock that no worker ever takes. The report takes it, so that
//! nothing is sent or received while it counts what is left.

use crate::base::policy::WhenFull;
use crate::edge::{EdgeShared, OuterParams, OuterRx, OuterTx, Reason, Remains};
use crate::exec::shared::{RunShared, lock};
use crate::host::clock::{Clock, Time};
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::Payload;
use crate::message::pool::Pool;
use crate::node::PortType;
use std::any::Any;
use std::sync::Mutex;

/// The kind of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum HandleKind {
    /// From the program into the graph.
    Inlet,
    /// Out of the graph into the program.
    Outlet,
    /// Copies for the program; the graph's own messages are unaffected.
    Tap,
}

impl HandleKind {
    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The message counts of one handle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandleReport {
    /// The node's name; for a tap, `node/port`.
    pub name: String,
    /// Inlet, outlet or tap.
    pub kind: HandleKind,
    /// Messages sent; for a tap, messages observed.
    pub sent: u64,
    /// Messages received at the other end.
    pub received: u64,
    /// Messages sent and never received, by reason, superseded ones included. A tap loses only
    /// copies.
    pub lost: Vec<(Reason, u64)>,
    /// Messages in flight when the report was made. Those left in an outlet or a tap can still be
    /// received.
    pub left: u64,
    /// Whether the graph's end answered; only then is `left` exact.
    pub counted: bool,
}

impl HandleReport {
    /// Returns the messages lost for any reason except `Superseded`.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| *reason != Reason::Superseded).map(|(_, n)| n).sum()
    }

    /// Returns the messages superseded by newer ones, as the edge's policy says.
    pub fn discarded_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| *reason == Reason::Superseded).map(|(_, n)| n).sum()
    }
}

/// The state shared by a handle, its stage and the report.
pub(crate) struct Endpoint<E> {
    pub(crate) name: String,
    pub(crate) kind: HandleKind,
    /// The program's end, until it is dropped or the report takes it.
    pub(crate) end: Mutex<Option<E>>,
    /// The consumer's end, once its owner is gone; counted when no more messages can be sent.
    pub(crate) remains: Mutex<Option<Box<dyn Remains>>>,
    pub(crate) params: OuterParams,
    pub(crate) run: Arc<RunShared>,
}

/// An endpoint, erased over its payload.
pub(crate) trait AnyEndpoint: Send + Sync {
    /// Closes the endpoint and counts. `answered` says whether the stage's thread has ended.
    fn report(&self, answered: bool) -> HandleReport;
    /// The bell of the program's end.
    fn bell(&self) -> Arc<Bell>;
}

/// The parts an endpoint is made from.
pub(crate) struct EndpointParts {
    pub(crate) name: String,
    pub(crate) when_full: WhenFull,
    /// The pool of the node's output, if it has one.
    pub(crate) pool: Option<Pool>,
    pub(crate) run: Arc<RunShared>,
    /// The bell of the node's worker.
    pub(crate) bell: Arc<Bell>,
}

/// A handle not yet taken, and its endpoint.
pub(crate) struct NewHandle {
    pub(crate) handle: Box<dyn Any + Send>,
    pub(crate) ty: PortType,
    pub(crate) endpoint: DynArc<dyn AnyEndpoint>,
}

impl<E> Endpoint<E> {
    pub(crate) fn counts(&self) -> &EdgeShared {
        &self.params.shared
    }

    /// The time by the run's clock; zero before the run has one.
    pub(crate) fn now(&self) -> Time {
        self.run.clock().map_or(Time::ZERO, Clock::now)
    }

    pub(crate) fn reported(&self, left: Option<u64>) -> HandleReport {
        let counts = self.counts();
        HandleReport {
            name: self.name.clone(),
            kind: self.kind,
            sent: counts.producer.moved.get(),
            received: counts.consumer.moved.get(),
            lost: Reason::ALL.iter().map(|r| (*r, counts.lost(*r))).filter(|(_, n)| *n > 0).collect(),
            left: left.unwrap_or(0),
            counted: left.is_some(),
        }
    }
}

/// An inlet: the graph receives from the program.
impl<T: Payload> AnyEndpoint for Endpoint<OuterTx<T>> {
    fn report(&self, _: bool) -> HandleReport {
        // No message is sent after this.
        drop(lock(&self.end).take());
        self.params.leave();
        let left = lock(&self.remains).take().map(Remains::count);
        self.reported(left)
    }

    fn bell(&self) -> Arc<Bell> {
        self.params.producer_bell.clone()
    }
}

/// An outlet or a tap: the program receives from the graph.
impl<T: Payload> AnyEndpoint for Endpoint<OuterRx<T>> {
    fn report(&self, answered: bool) -> HandleReport {
        // A stage that does not answer will not close it.
        self.params.close(true);
        let end = lock(&self.end);
        let left = match &*end {
            Some(rx) => rx.len() as u64,
            None => {
                // Messages sent while the handle was being dropped.
                let late = lock(&self.remains).take().map_or(0, Remains::count);
                self.counts().consumer.lose(Reason::ConsumerGone, late);
                0
            }
        };
        self.reported(answered.then_some(left))
    }

    fn bell(&self) -> Arc<Bell> {
        self.params.consumer_bell.clone()
    }
}
