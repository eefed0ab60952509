//! A model and its sessions, erased over their backend: the stage that calls them is compiled once,
//! not for every backend.

use crate::exec::infer::streams::{ResetRules, Streams};
use crate::host::sync::Arc;
use crate::message::payload::Header;
use crate::node::backend::{
    BackendError, BatchMut, BatchRef, DeviceCall, EnqueuedCalls, Helpers, Prepared, Session, SessionMetadata,
    Signature, Ticket, WorkerHost,
};
use crate::node::metrics::Metrics;

/// A loaded model ([`Prepared`]).
pub(crate) trait AnyPrepared: Send {
    fn signature(&self) -> &Signature;
    fn is_stateful(&self) -> bool;
    fn worker_host(&self) -> Option<WorkerHost>;
    /// Creates a session for batches of up to `max`, with initial states for streams of so many
    /// sources.
    fn session(&self, max: usize, sources: usize, resets: ResetRules) -> Result<Box<dyn AnySession>, BackendError>;
}

impl<P: Prepared> AnyPrepared for Arc<P> {
    fn signature(&self) -> &Signature {
        P::signature(self)
    }

    fn is_stateful(&self) -> bool {
        P::is_stateful(self)
    }

    fn worker_host(&self) -> Option<WorkerHost> {
        P::worker_host(self)
    }

    fn session(&self, max: usize, sources: usize, resets: ResetRules) -> Result<Box<dyn AnySession>, BackendError> {
        let session = P::session(self, max)?;
        let streams = P::is_stateful(self).then(|| Streams::new(sources, resets));
        let lanes = std::iter::repeat_with(Default::default).take(max).collect();
        Ok(Box::new(StreamedSession { session, lanes, streams, max }))
    }
}

/// A [`Session`] with the states of its streams; the methods that are not described are those of
/// [`Session`].
pub(crate) trait AnySession {
    /// Moves the states of the messages' streams into a call.
    fn lend(&mut self, headers: &[Header]);
    /// Moves them back.
    fn settle(&mut self, headers: &[Header], is_done: bool);
    /// Makes a call with the states lent.
    fn infer(&mut self, n: usize, ins: &[BatchRef<'_>], outs: &mut [BatchMut<'_>]) -> Result<(), BackendError>;
    /// Resets the states of all streams.
    fn forget(&mut self);
    /// Drops the states of all streams.
    fn drop_states(&mut self);

    fn in_flight(&self) -> usize;
    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError>;
    fn submit(&mut self, n: usize, ins: &[BatchRef<'_>]) -> Result<Ticket, BackendError>;
    fn poll(&mut self, ticket: &Ticket) -> bool;
    fn collect(&mut self, ticket: Ticket, outs: &mut [BatchMut<'_>]) -> Result<(), BackendError>;
    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError>;
    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls>;
    fn keep_warm(&mut self) -> Result<(), BackendError>;
    fn reset(&mut self);
    fn figures(&self, metrics: &mut Metrics);
    fn resume(&mut self, figures: &Metrics);
    fn metadata(&self) -> SessionMetadata;
}

struct StreamedSession<S: Session> {
    session: S,
    /// One per message of a call if the model has state; otherwise those beyond the first are not
    /// used.
    lanes: Vec<S::Lane>,
    streams: Option<Streams<S::Lane>>,
    max: usize,
}

impl<S: Session> AnySession for StreamedSession<S> {
    fn lend(&mut self, headers: &[Header]) {
        if let Some(streams) = &mut self.streams {
            streams.lend(headers, &mut self.lanes);
        }
    }

    fn settle(&mut self, headers: &[Header], is_done: bool) {
        if let Some(streams) = &mut self.streams {
            streams.settle(headers, &mut self.lanes, is_done);
        }
    }

    fn infer(&mut self, n: usize, ins: &[BatchRef<'_>], outs: &mut [BatchMut<'_>]) -> Result<(), BackendError> {
        match &mut self.lanes[..] {
            [lane] if n == 1 && self.max == 1 => self.session.infer_one(ins, outs, lane),
            lanes if self.streams.is_some() => self.session.infer_batch(n, ins, outs, lanes),
            lanes => self.session.infer_batch(n, ins, outs, &mut lanes[..1]),
        }
    }

    fn forget(&mut self) {
        self.lanes.clear();
        self.lanes.resize_with(self.max, Default::default);
        if let Some(streams) = &mut self.streams {
            streams.reset();
        }
    }

    fn drop_states(&mut self) {
        self.lanes.clear();
        self.streams = None;
    }

    fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.session.begin(helpers)
    }

    fn submit(&mut self, n: usize, ins: &[BatchRef<'_>]) -> Result<Ticket, BackendError> {
        self.session.submit(n, ins)
    }

    fn poll(&mut self, ticket: &Ticket) -> bool {
        self.session.poll(ticket)
    }

    fn collect(&mut self, ticket: Ticket, outs: &mut [BatchMut<'_>]) -> Result<(), BackendError> {
        self.session.collect(ticket, outs)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        self.session.enqueue(call)
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        self.session.enqueued()
    }

    fn keep_warm(&mut self) -> Result<(), BackendError> {
        self.session.keep_warm()
    }

    fn reset(&mut self) {
        self.session.reset();
    }

    fn figures(&self, metrics: &mut Metrics) {
        self.session.figures(metrics);
    }

    fn resume(&mut self, figures: &Metrics) {
        self.session.resume(figures);
    }

    fn metadata(&self) -> SessionMetadata {
        self.session.metadata()
    }
}
