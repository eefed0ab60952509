//! The common part of outlets and taps: receiving messages, waiting for them, and teardown.

use super::{end_of, sleep_unless};
use crate::edge::{EdgeState, OuterRx, Reason};
use crate::exec::endpoint::Endpoint;
use crate::exec::shared::lock;
use crate::host::clock::Time;
use crate::host::sync::{Arc, DynArc};
use crate::host::wait::Bell;
use crate::message::payload::{Message, Payload};
use std::time::Duration;

/// Why a handle returns no message.
///
/// ```
/// use limen::{Outlet, RecvError, Tensor};
///
/// /// Returns the newest waiting message, if there is one.
/// fn newest(outlet: &mut Outlet<Tensor>) -> Result<Option<Tensor>, RecvError> {
///     let mut newest = None;
///     loop {
///         match outlet.try_recv() {
///             Ok(message) => newest = Some(message.body),
///             Err(RecvError::Empty) => return Ok(newest),
///             Err(error) => return Err(error),
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// There is none now, or the time is over.
    #[error("no message is waiting")]
    Empty,
    /// The stream has ended and everything was received.
    #[error("the stream has ended")]
    Ended,
    /// The sender has failed or was abandoned, and everything was received.
    #[error("the sender has failed")]
    Failed,
    /// There is none, and this thread drives the graph, so it would wait for itself.
    #[error("no message is waiting while this thread drives the graph")]
    OwnTurn,
}

/// The consumer's end of an outer edge.
pub(super) struct Receiver<T: Payload> {
    pub(super) endpoint: DynArc<Endpoint<OuterRx<T>>>,
    pub(super) bell: Arc<Bell>,
}

impl<T: Payload> Receiver<T> {
    pub(super) fn try_recv(&mut self) -> Result<Message<T>, RecvError> {
        let mut end = lock(&self.endpoint.end);
        let Some(rx) = &mut *end else { return Err(RecvError::Ended) };
        if let Some(message) = rx.pop() {
            rx.received(1);
            rx.ring();
            return Ok(message);
        }
        match rx.state() {
            EdgeState::Open => Err(RecvError::Empty),
            EdgeState::Finished => Err(RecvError::Ended),
            EdgeState::Failed => Err(RecvError::Failed),
        }
    }

    pub(super) fn recv_timeout(&mut self, time: Duration) -> Result<Message<T>, RecvError> {
        self.recv_until(end_of(time))
    }

    pub(super) fn recv_until(&mut self, until: Time) -> Result<Message<T>, RecvError> {
        loop {
            match self.try_recv() {
                Err(RecvError::Empty) => {}
                other => return other,
            }
            let is_due =
                || lock(&self.endpoint.end).as_ref().is_none_or(|rx| rx.len() > 0 || rx.state() != EdgeState::Open);
            if !sleep_unless(&self.endpoint.run, &self.bell, until, is_due) {
                return Err(RecvError::OwnTurn);
            }
            if until <= end_of(Duration::ZERO) {
                return self.try_recv();
            }
        }
    }
}

impl<T: Payload> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Held to the end: a report made meanwhile must not see a partial teardown.
        let mut end = lock(&self.endpoint.end);
        let Some(mut rx) = end.take() else { return };
        // Marked as gone first: messages sent after that are counted by the sender.
        rx.leave();
        rx.discard(Reason::ConsumerGone);
        *lock(&self.endpoint.remains) = Some(Box::new(rx));
    }
}
