//! Taps: a program observes messages without slowing the graph.

use super::receiver::{Receiver, RecvError};
use crate::base::policy::WhenFull;
use crate::edge::{EdgeShared, OuterParams, OuterRx, TapTx, outer};
use crate::exec::endpoint::Endpoint;
use crate::exec::endpoint::HandleKind;
use crate::exec::shared::RunShared;
use crate::host::clock::Time;
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::{Message, Payload};
use crate::message::pool::Pool;
use std::fmt;
use std::time::Duration;

/// Default number of copies that a tap holds.
pub(crate) const TAP_HOLDS: usize = 4;

/// Observes the messages of a node's output. Taken by [`Wired::tap`](crate::Wired::tap).
///
/// It holds a few copies in buffers of its own. While these are full, no more copies are made, and
/// further messages count as lost by the tap, not by the graph, which is unaffected. The first
/// message read may therefore be old; to get the newest, read all that are there.
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
/// let mut tap = graph.tap::<Number>("a").unwrap();
/// # let mut numbers = graph.inlet::<Number>("a").unwrap();
/// # let outlet = graph.outlet::<Number>("z").unwrap();
/// # numbers.send(Message::new(numbers.header(), Number(7))).unwrap();
/// # drop((numbers, outlet));
/// let report = graph.start().unwrap().wait();
/// assert_eq!(tap.try_recv().unwrap().body.0, 7);
/// assert_eq!(report.handles.iter().find(|handle| handle.name == "a/out").unwrap().left, 1);
/// ```
pub struct Tap<T: Payload>(Receiver<T>);

/// The ends of a new tap.
pub(crate) struct Tapped<T: Payload> {
    pub(crate) tap: Tap<T>,
    pub(crate) tx: TapTx<T>,
    pub(crate) endpoint: DynArc<Endpoint<OuterRx<T>>>,
    pub(crate) bell: Arc<Bell>,
}

impl<T: Payload> Tap<T> {
    pub(crate) fn made(name: String, hold: usize, pool: Option<Pool>, run: Arc<RunShared>) -> Tapped<T> {
        let own: Arc<Bell> = Arc::default();
        let params = OuterParams {
            capacity: hold,
            // Lets `room` be checked before a copy is made; no stage blocks on it.
            when_full: WhenFull::Block,
            shared: Arc::<EdgeShared>::default(),
            gone: Arc::default(),
            // No thread sleeps until a tap has room.
            producer_bell: Arc::default(),
            consumer_bell: own.clone(),
        };
        let (tx, rx) = outer(&params);
        let endpoint = DynArc::new(Endpoint {
            name,
            kind: HandleKind::Tap,
            end: Some(rx).into(),
            remains: None.into(),
            params,
            run,
        });
        let tap = Tap(Receiver { endpoint: endpoint.clone(), bell: own.clone() });
        Tapped { tap, tx: TapTx::new(tx, pool), endpoint, bell: own }
    }

    /// Returns the next observed message, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if there is none now; [`RecvError::Ended`] or [`RecvError::Failed`] if
    /// none will arrive.
    pub fn try_recv(&mut self) -> Result<Message<T>, RecvError> {
        self.0.try_recv()
    }

    /// Waits for the next message.
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

impl<T: Payload> fmt::Debug for Tap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("name", &self.0.endpoint.name).finish_non_exhaustive()
    }
}
