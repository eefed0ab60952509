//! Programs of stock kinds, whose calls take and give messages in the memory of the device.

use super::{MadeProgram, ProgramDevice};
use crate::device::{SessionCalls, SharedDevice};
use crate::lowering::Program;
use limen::backend::{
    Backend, BackendError, BatchMut, BatchRef, Capabilities, DeviceCall, EnqueuedCalls, Helpers, Ops, Prepared,
    Session, SessionMetadata, Signature, Ticket,
};
use limen::node::Metrics;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

/// A program of a stock kind as a backend: planning and stages are those of models.
#[derive(Debug)]
pub(crate) struct ProgramBackend<A>(PhantomData<fn() -> A>);

impl<A: ProgramDevice> Backend for ProgramBackend<A> {
    const NAME: &'static str = A::NAME;
    type Model = PreparedProgram<A>;
    type Prepared = PreparedProgram<A>;

    fn probe() -> Result<Capabilities, BackendError> {
        Ok(Capabilities::cpu("", [], Ops::Unlisted))
    }

    fn prepare(model: PreparedProgram<A>) -> Result<PreparedProgram<A>, BackendError> {
        model.bind()?;
        Ok(model)
    }
}

/// A program and the device that it runs on.
#[derive(Debug)]
pub(crate) struct PreparedProgram<A: ProgramDevice> {
    pub(crate) program: Arc<Program>,
    pub(crate) device: Arc<SharedDevice<A>>,
    pub(crate) signature: Signature,
    /// The folder of the cache.
    pub(crate) cache: Option<PathBuf>,
}

impl<A: ProgramDevice> PreparedProgram<A> {
    fn bind(&self) -> Result<(u32, A::Bound), BackendError> {
        let (generation, api) = self.device.api()?;
        Ok((generation, api.bind(self.program.clone(), self.cache.as_deref())?))
    }
}

impl<A: ProgramDevice> Prepared for PreparedProgram<A> {
    type Session = ProgramSession<A>;

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: usize) -> Result<ProgramSession<A>, BackendError> {
        let calls = SessionCalls::new(self.device.clone());
        Ok(ProgramSession { calls, bound: self.bind()?, cache: self.cache.clone() })
    }
}

/// A program on one thread.
pub(crate) struct ProgramSession<A: ProgramDevice> {
    calls: SessionCalls<A>,
    /// It, and the generation of the device that it was made for.
    bound: (u32, A::Bound),
    cache: Option<PathBuf>,
}

impl<A: ProgramDevice> Session for ProgramSession<A> {
    type Lane = ();

    fn infer_batch(
        &mut self,
        _: usize,
        _: &[BatchRef<'_>],
        _: &mut [BatchMut<'_>],
        _: &mut [()],
    ) -> Result<(), BackendError> {
        Err(BackendError::Unsupported("messages in host memory".into()))
    }

    fn begin(&mut self, helpers: &Helpers) -> Result<bool, BackendError> {
        self.calls.begin(helpers)
    }

    fn enqueue(&mut self, call: &DeviceCall<'_>) -> Result<Ticket, BackendError> {
        let ProgramSession { calls, bound, cache } = self;
        calls.enqueue(call.inputs, call.outputs, false, |on| {
            if bound.0 != on.generation {
                *bound = (on.generation, on.api.bind(bound.1.program().clone(), cache.as_deref())?);
            }
            bound.1.encode(on, call)
        })
    }

    fn enqueued(&mut self) -> Option<&mut dyn EnqueuedCalls> {
        Some(&mut self.calls)
    }

    fn figures(&self, metrics: &mut Metrics) {
        self.calls.figures(metrics);
    }

    fn metadata(&self) -> SessionMetadata {
        let memory = self.bound.1.memory();
        SessionMetadata { device: A::NAME.into(), threads: 1, memory, ..SessionMetadata::default() }
    }
}
