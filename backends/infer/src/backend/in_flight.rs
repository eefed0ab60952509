//! Several calls of a model in flight, each on its own thread, for runtimes with blocking calls.

use crate::base::caught;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, Helpers, Prepared, Session, SessionMetadata, Signature,
    TensorSpec, Ticket,
};
use limen::message::{DType, Dim, PortSpec};
use limen::node::Metrics;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A backend with several calls in flight. Its model comes with the number of calls, from 1 up.
pub(crate) struct InFlight<B>(PhantomData<B>);

impl<B: Backend> Backend for InFlight<B> {
    const NAME: &'static str = B::NAME;
    type Model = (B::Model, usize);
    type Prepared = InFlightPrepared<B::Prepared>;

    fn probe() -> Result<Capabilities, BackendError> {
        B::probe()
    }

    fn prepare((model, most): Self::Model) -> Result<Self::Prepared, BackendError> {
        Ok(InFlightPrepared::new(B::prepare(model)?, most))
    }
}

/// A loaded model, with as many sessions as calls may be in flight.
pub(crate) struct InFlightPrepared<P> {
    prepared: Arc<P>,
    most: usize,
}

impl<P: Prepared> InFlightPrepared<P> {
    pub(crate) fn new(prepared: P, most: usize) -> Self {
        InFlightPrepared { prepared: Arc::new(prepared), most }
    }
}

impl<P: Prepared> Prepared for InFlightPrepared<P> {
    type Session = InFlightSession<P>;

    fn signature(&self) -> &Signature {
        self.prepared.signature()
    }

    fn is_stateful(&self) -> bool {
        self.prepared.is_stateful()
    }

    fn session(&self, max_batch: usize) -> Result<InFlightSession<P>, BackendError> {
        let prepared = self.prepared.clone();
        let (threads, own) = (Vec::new(), None);
        Ok(InFlightSession { prepared, max_batch, most: self.most, threads, next: 0, about: None, carried: 0, own })
    }
}

/// The buffers of a batch and the result of its call; it is sent to a thread and back.
struct ThreadBatch {
    batch: usize,
    inputs: Vec<PortBuffer>,
    outputs: Vec<PortBuffer>,
    result: Result<(), BackendError>,
}

/// A batch of one input or output.
struct PortBuffer {
    dtype: DType,
    /// The shape of one item; if lengths vary, that of the item of its call.
    shape: Vec<usize>,
    /// The greatest length of each dim if any of them varies; otherwise empty.
    bounds: Vec<usize>,
    /// Bytes of the largest item.
    item_bytes: usize,
    /// In 8-byte words, so that it is aligned for every dtype.
    words: Vec<u64>,
}

impl PortBuffer {
    fn new(spec: &TensorSpec, max_batch: usize) -> Result<Self, BackendError> {
        let port = PortSpec::new(spec.dtype, spec.shape.iter().cloned());
        let shape: Option<Vec<usize>> = spec.shape.iter().map(Dim::max).collect();
        let (Some(shape), Some(item_bytes)) = (shape, port.max_bytes()) else {
            return Err(BackendError::Unsupported(format!(
                "the dims of `{}` must have a bound, got {port}",
                spec.name
            )));
        };
        let bounds = if port.fixed_shape().is_none() { shape.clone() } else { Vec::new() };
        let words = vec![0; item_bytes.saturating_mul(max_batch).div_ceil(8)];
        Ok(PortBuffer { dtype: spec.dtype, shape, bounds, item_bytes, words })
    }

    /// Returns the bytes of a batch; of an item whose length varies, those of its shape.
    fn bytes(&self, batch: usize) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        if self.bounds.is_empty() {
            return &bytes[..self.item_bytes * batch];
        }
        let item = self.shape.iter().fold(self.dtype.size(), |n, length| n.saturating_mul(*length));
        &bytes[..item.min(self.item_bytes)]
    }

    /// Copies an input of a call.
    fn take(&mut self, batch: usize, input: &BatchRef<'_>) -> Result<(), BackendError> {
        if self.bounds.is_empty() {
            self.bytes_mut(batch).copy_from_slice(input.bytes);
            return Ok(());
        }
        let room = bytemuck::cast_slice_mut(&mut self.words).get_mut(..input.bytes.len());
        match room.filter(|_| self.shape.len() == input.shape.len()) {
            Some(room) => room.copy_from_slice(input.bytes),
            None => {
                let (dtype, shape, bounds) = (input.dtype, input.shape, &self.bounds);
                return Err(BackendError::Call(format!(
                    "expected an input of at most {bounds:?}, found {dtype}{shape:?}"
                )));
            }
        }
        self.shape.copy_from_slice(input.shape);
        Ok(())
    }

    /// Copies an output of a finished call. A length that varies is in its shape.
    fn give(&self, batch: usize, output: &mut BatchMut<'_>) {
        let bytes = self.bytes(batch);
        if self.bounds.is_empty() {
            output.bytes.copy_from_slice(bytes);
        } else {
            output.shape.copy_from_slice(&self.shape);
            output.bytes[..bytes.len()].copy_from_slice(bytes);
        }
    }

    fn bytes_mut(&mut self, batch: usize) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.item_bytes * batch]
    }
}

impl ThreadBatch {
    fn new(signature: &Signature, max_batch: usize) -> Result<Self, BackendError> {
        let sides = |specs: &[TensorSpec]| -> Result<Vec<PortBuffer>, BackendError> {
            specs.iter().map(|spec| PortBuffer::new(spec, max_batch)).collect()
        };
        Ok(ThreadBatch {
            batch: 0,
            inputs: sides(&signature.inputs)?,
            outputs: sides(&signature.outputs)?,
            result: Ok(()),
        })
    }

    fn run<S: Session>(&mut self, session: &mut S, lane: &mut S::Lane) -> Result<(), BackendError> {
        let ThreadBatch { batch, inputs, outputs, .. } = self;
        let ins = |side| {
            let PortBuffer { dtype, shape, .. }: &PortBuffer = side;
            BatchRef { dtype: *dtype, shape, bytes: side.bytes(*batch) }
        };
        let ins: Vec<BatchRef<'_>> = inputs.iter().map(ins).collect();
        let mut outs: Vec<BatchMut<'_>> = outputs
            .iter_mut()
            .map(|PortBuffer { dtype, shape, bounds, item_bytes, words }| {
                if !bounds.is_empty() {
                    // The session has written another shape in an earlier call.
                    shape.copy_from_slice(bounds);
                }
                let bytes = &mut bytemuck::cast_slice_mut(words)[..*item_bytes * *batch];
                BatchMut { dtype: *dtype, shape, bytes }
            })
            .collect();
        session.infer_batch(*batch, &ins, &mut outs, std::slice::from_mut(lane))
    }
}

/// A task of a thread.
enum ThreadTask {
    Call(ThreadBatch),
    /// The figures of its session for the report.
    Figures(SyncSender<Metrics>),
}

/// A thread with a session, and its batch.
struct SessionThread {
    /// Dropped to end the thread.
    tasks: Option<SyncSender<ThreadTask>>,
    handle: Option<JoinHandle<()>>,
    done: Receiver<ThreadBatch>,
    /// The batch, while no call is in flight.
    here: Option<ThreadBatch>,
    is_under_way: bool,
}

impl SessionThread {
    /// Whether the call has finished or the thread is gone.
    fn has_finished(&mut self) -> bool {
        if self.here.is_some() || !self.is_under_way {
            return true;
        }
        match self.done.try_recv() {
            Ok(job) => self.here = Some(job),
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => {}
        }
        true
    }

    /// Returns the figures of its session, unless a call is in flight.
    fn figures(&self) -> Option<Metrics> {
        if self.is_under_way {
            return None;
        }
        let (to, figures) = sync_channel(1);
        self.tasks.as_ref()?.try_send(ThreadTask::Figures(to)).ok()?;
        figures.recv_timeout(Duration::from_secs(1)).ok()
    }
}

/// A session whose calls take turns on several threads.
pub(crate) struct InFlightSession<P: Prepared> {
    prepared: Arc<P>,
    max_batch: usize,
    most: usize,
    threads: Vec<SessionThread>,
    /// The next ticket: the number of batches submitted.
    next: u64,
    about: Option<SessionMetadata>,
    /// Bytes of the buffers of one thread's batch.
    carried: u64,
    /// The session for blocking calls, which use no thread.
    own: Option<(P::Session, <P::Session as Session>::Lane)>,
}

/// Joins all threads but those whose call has not returned.
impl<P: Prepared> Drop for InFlightSession<P> {
    fn drop(&mut self) {
        for thread in &mut self.threads {
            drop(thread.tasks.take());
        }
        for thread in &mut self.threads {
            let has_finished = thread.has_finished();
            if let Some(handle) = thread.handle.take().filter(|_| has_finished) {
                let _ = handle.join();
            }
        }
    }
}

impl<P: Prepared> InFlightSession<P> {
    fn thread(&mut self, ticket: u64) -> Result<&mut SessionThread, BackendError> {
        let at = ticket % self.most.max(1) as u64;
        self.threads.get_mut(at as usize).ok_or_else(|| BackendError::Call("the session has no threads".into()))
    }
}

/// Makes a session and runs tasks until their sender is dropped.
fn work<P: Prepared>(
    prepared: &P,
    max_batch: usize,
    ready: &SyncSender<Result<SessionMetadata, BackendError>>,
    (tasks, done): (&Receiver<ThreadTask>, &SyncSender<ThreadBatch>),
    helpers: &Helpers,
) {
    let session = caught(|| prepared.session(max_batch)).map_err(BackendError::Call).and_then(|session| session);
    let mut session = match session {
        Ok(session) => session,
        // `begin` is waiting for this message.
        Err(error) => return ready.send(Err(error)).unwrap_or(()),
    };
    let _ = ready.send(Ok(session.metadata()));
    let mut lane = Default::default();
    while let Ok(task) = tasks.recv() {
        let mut job = match task {
            ThreadTask::Call(job) => job,
            ThreadTask::Figures(to) => {
                let mut metrics = Metrics::default();
                session.figures(&mut metrics);
                let _ = to.send(metrics);
                continue;
            }
        };
        job.result = caught(|| job.run(&mut session, &mut lane)).map_err(BackendError::Call).and_then(|ran| ran);
        if done.send(job).is_err() {
            break;
        }
        helpers.wake();
    }
}

impl<P: Prepared> Session for InFlightSession<P> {
    type Lane = ();

    fn infer_batch(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        if self.own.is_none() {
            self.own = Some((self.prepared.session(self.max_batch)?, Default::default()));
        }
        let Some((session, lane)) = &mut self.own else {
            return Err(BackendError::Call("the session does not exist".into()));
        };
        session.infer_batch(batch, inputs, outputs, std::slice::from_mut(lane))
    }

    fn in_flight(&self) -> usize {
        self.most
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        for _ in 0..self.most {
            let (tasks, coming) = sync_channel(1);
            let (going, done) = sync_channel(1);
            let (ready, is_ready) = sync_channel(1);
            let (prepared, max_batch, waker) = (self.prepared.clone(), self.max_batch, helpers.clone());
            let run = move || work(&*prepared, max_batch, &ready, (&coming, &going), &waker);
            let handle = Some(helpers.spawn("call", run)?);
            let gone = || BackendError::Unavailable("the thread for a call has ended".into());
            let about = is_ready.recv().map_err(|_| gone())??;
            self.about.get_or_insert(about);
            let job = ThreadBatch::new(self.prepared.signature(), self.max_batch)?;
            self.carried = job.inputs.iter().chain(&job.outputs).map(|side| 8 * side.words.len() as u64).sum();
            let here = Some(job);
            self.threads.push(SessionThread { tasks: Some(tasks), handle, done, here, is_under_way: false });
        }
        Ok(true)
    }

    fn submit(&mut self, batch: usize, inputs: &[BatchRef<'_>]) -> Result<Ticket, BackendError> {
        let ticket = Ticket(self.next);
        let thread = self.thread(ticket.0)?;
        let mut job =
            thread.here.take().ok_or_else(|| BackendError::Call("all threads of the session are busy".into()))?;
        job.batch = batch;
        let taken = job.inputs.iter_mut().zip(inputs).try_for_each(|(side, input)| side.take(batch, input));
        if let Err(error) = taken {
            thread.here = Some(job);
            return Err(error);
        }
        let sent = thread.tasks.as_ref().is_some_and(|tasks| tasks.try_send(ThreadTask::Call(job)).is_ok());
        if !sent {
            return Err(BackendError::Call("the thread of this call has ended".into()));
        }
        thread.is_under_way = true;
        self.next += 1;
        Ok(ticket)
    }

    fn poll(&mut self, ticket: &Ticket) -> bool {
        self.thread(ticket.0).map_or(true, SessionThread::has_finished)
    }

    fn collect(&mut self, ticket: Ticket, outputs: &mut [BatchMut<'_>]) -> Result<(), BackendError> {
        let thread = self.thread(ticket.0)?;
        thread.is_under_way = false;
        let job = thread.here.as_mut().ok_or_else(|| BackendError::Call("the thread of this call has ended".into()))?;
        let result = std::mem::replace(&mut job.result, Ok(()));
        if result.is_ok() {
            job.outputs.iter().zip(outputs).for_each(|(side, output)| side.give(job.batch, output));
        }
        result
    }

    fn metadata(&self) -> SessionMetadata {
        match (&self.about, &self.own) {
            (Some(about), _) => {
                let SessionMetadata { threads, memory, shared, .. } = *about;
                // Each thread has its own session buffers and batch; the weights are shared.
                let most = self.most as u64;
                let own = memory.saturating_sub(shared).saturating_add(self.carried);
                let memory = shared.saturating_add(own.saturating_mul(most));
                SessionMetadata { threads: threads * self.most, memory, ..about.clone() }
            }
            (None, Some((own, _))) => own.metadata(),
            (None, None) => SessionMetadata { device: "cpu".into(), threads: 1, ..SessionMetadata::default() },
        }
    }

    fn figures(&self, metrics: &mut Metrics) {
        if let Some((own, _)) = &self.own {
            own.figures(metrics);
        }
        // Compiled models are shared, so the sessions report the same or less; of measured times
        // the longest is reported.
        for (name, value) in self
            .threads
            .iter()
            .filter_map(SessionThread::figures)
            .flat_map(|figures| figures.iter().map(|(n, v)| (n.to_string(), v)).collect::<Vec<_>>())
        {
            let known = metrics.iter().find(|(known, _)| *known == name).map_or(f64::MIN, |(_, known)| known);
            metrics.set(name, value.max(known));
        }
    }
}
