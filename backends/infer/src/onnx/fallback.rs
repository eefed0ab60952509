//! A second backend that makes the calls that fail because the device of the first one is lost.

use super::lane::OnnxLane;
use super::reference::{AnySession, Reference};
use limen::backend::{BackendError, BatchMut, BatchRef};
use limen::node::Metrics;

/// The metric that counts its calls.
const CALLS: &str = "fallback_calls";

/// A session of the second backend, on one thread.
pub(crate) struct Fallback {
    session: AnySession,
    calls: u64,
}

impl Fallback {
    pub(crate) fn begin(reference: &Reference, max_batch: usize) -> Result<Fallback, BackendError> {
        Ok(Fallback { session: (reference.session)(max_batch)?, calls: 0 })
    }

    /// Whether it makes a call that failed with this error.
    pub(crate) fn takes(error: &BackendError) -> bool {
        matches!(error, BackendError::DeviceLost(_) | BackendError::OutOfMemory(_) | BackendError::Unavailable(_))
    }

    /// Makes a call again. The failed one left the states as they were.
    ///
    /// # Errors
    /// When this one fails, too.
    pub(crate) fn call(
        &mut self,
        batch: usize,
        inputs: &[BatchRef<'_>],
        outputs: &mut [BatchMut<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        self.calls += 1;
        self.session.infer_batch(batch, inputs, outputs, lanes)
    }

    pub(crate) fn figures(&self, metrics: &mut Metrics) {
        metrics.set(CALLS, self.calls as f64);
    }

    /// Continues the count of an earlier session.
    pub(crate) fn resume(&mut self, figures: &Metrics) {
        self.calls += figures.iter().find(|(known, _)| *known == CALLS).map_or(0.0, |(_, calls)| calls) as u64;
    }
}
