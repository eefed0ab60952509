//! Where a program takes part in a graph: what a handle, its stage and the report share.
//!
//! The program's end lies behind a lock, which no worker ever touches: the report takes it to count what is left at a
//! moment when nobody is sending or taking.

use crate::base::policy::WhenFull;
use crate::edge::{OuterParams, OuterRx, OuterTx, Reason, Remains, Shared};
use crate::exec::shared::{RunShared, lock};
use crate::host::clock::{Clock, Time};
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::Payload;
use crate::message::pool::Pool;
use crate::node::PortType;
use std::any::Any;
use std::sync::Mutex;

/// Which way messages go through a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// From the program into the graph.
    In,
    /// Out of the graph into the program.
    Out,
    /// Past the program, which looks on.
    Past,
}

impl HandleKind {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            HandleKind::In => "inlet",
            HandleKind::Out => "outlet",
            HandleKind::Past => "tap",
        }
    }
}

/// What moved through one handle. `sent = received + lost + left`, as on every edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleReport {
    /// The node; of a tap, `node/port`.
    pub name: String,
    /// Which way messages went.
    pub way: HandleKind,
    /// Messages that went in; of a tap, those that went by.
    pub sent: u64,
    /// Messages that came out at the other end.
    pub received: u64,
    /// Messages that went in and never came out, by reason: those lost, and those superseded on purpose. A tap loses copies: of the graph's own messages none.
    pub lost: Vec<(Reason, u64)>,
    /// Messages on their way when the report was made. What is left in an outlet or a tap can still be taken.
    pub left: u64,
    /// Whether the graph's end answered, so that `left` is exact.
    pub counted: bool,
}

impl HandleReport {
    /// Messages lost, for any reason; not those that were superseded.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| *reason != Reason::Superseded).map(|(_, n)| n).sum()
    }

    /// Messages that gave way to newer ones, because the graph says so.
    pub fn thinned_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| *reason == Reason::Superseded).map(|(_, n)| n).sum()
    }
}

/// What a handle, its stage and the report share.
pub(crate) struct Endpoint<E> {
    pub(crate) name: String,
    pub(crate) way: HandleKind,
    /// The program's end, until it is dropped or the report takes it.
    pub(crate) end: Mutex<Option<E>>,
    /// The consumer's end, once its owner is gone: to be counted when nobody sends any more.
    pub(crate) remains: Mutex<Option<Box<dyn Remains>>>,
    pub(crate) params: OuterParams,
    pub(crate) run: Arc<RunShared>,
}

/// A endpoint, whatever travels through it.
pub(crate) trait AnyEndpoint: Send + Sync {
    /// Ends it and counts. `answered` where the stage's thread has ended.
    fn report(&self, answered: bool) -> HandleReport;
    /// The bell of whoever waits at the program's end.
    fn bell(&self) -> Arc<Bell>;
}

/// What a endpoint is made with.
pub(crate) struct EndpointParts {
    pub(crate) name: String,
    pub(crate) when_full: WhenFull,
    /// The pool of the node's output, if it has one.
    pub(crate) pool: Option<Pool>,
    pub(crate) run: Arc<RunShared>,
    /// The bell of the node's worker.
    pub(crate) bell: Arc<Bell>,
}

/// A handle that was made and not yet taken, and its endpoint.
pub(crate) struct NewHandle {
    pub(crate) handle: Box<dyn Any + Send>,
    pub(crate) ty: PortType,
    pub(crate) endpoint: DynArc<dyn AnyEndpoint>,
}

impl<E> Endpoint<E> {
    pub(crate) fn counts(&self) -> &Shared {
        &self.params.shared
    }

    /// Now, by the clock of the run; zero before it has one.
    pub(crate) fn now(&self) -> Time {
        self.run.clock().map_or(Time::ZERO, Clock::now)
    }

    pub(crate) fn reported(&self, left: Option<u64>) -> HandleReport {
        let counts = self.counts();
        HandleReport {
            name: self.name.clone(),
            way: self.way,
            sent: counts.producer.moved.get(),
            received: counts.consumer.moved.get(),
            lost: Reason::ALL.iter().map(|r| (*r, counts.lost(*r))).filter(|(_, n)| *n > 0).collect(),
            left: left.unwrap_or(0),
            counted: left.is_some(),
        }
    }
}

/// The graph takes from the program.
impl<T: Payload> AnyEndpoint for Endpoint<OuterTx<T>> {
    fn report(&self, _: bool) -> HandleReport {
        // From here on nobody sends.
        drop(lock(&self.end).take());
        self.params.leave();
        let left = lock(&self.remains).take().map(Remains::count);
        self.reported(left)
    }

    fn bell(&self) -> Arc<Bell> {
        self.params.producer_bell.clone()
    }
}

/// The program takes from the graph.
impl<T: Payload> AnyEndpoint for Endpoint<OuterRx<T>> {
    fn report(&self, answered: bool) -> HandleReport {
        // A stage that does not answer will not say so itself.
        self.params.close(true);
        let end = lock(&self.end);
        let left = match &*end {
            Some(rx) => rx.len() as u64,
            None => {
                // What was sent at the very moment when the handle was dropped.
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
