//! Measures the time of a model's calls.

use super::buffers::ModelBuffers;
use super::lane::OnnxLane;
use super::reference::AnySession;
use crate::base::Access;
use limen::backend::{BackendError, BatchRef, Signature, TensorSpec};
use limen::unit::show_bytes;
use std::time::{Duration, Instant};

/// The most bytes of inputs and outputs for which a batch is measured.
pub(super) const MAX_MEASURED_BYTES: usize = 256 << 20;

/// Measures the time per item alone and in a batch of `max_batch`, ns; each for about `time`.
pub(crate) fn measure(
    signature: &Signature,
    mut session: AnySession,
    max_batch: usize,
    time: Duration,
) -> Result<[u64; 2], BackendError> {
    let alone = measure_batch(signature, &mut session, 1, time)?;
    let together = if max_batch > 1 { measure_batch(signature, &mut session, max_batch, time)? } else { alone };
    Ok([alone, together])
}

/// Measures the time per item in calls of `batch` items, ns: the median of the calls that fit in
/// `time`, at least three.
fn measure_batch(
    signature: &Signature,
    session: &mut AnySession,
    batch: usize,
    time: Duration,
) -> Result<u64, BackendError> {
    let bytes = |specs: &[TensorSpec]| ModelBuffers::new(specs, 1).0.iter().map(|b| b.item_bytes).sum::<usize>();
    let bytes = (bytes(&signature.inputs) + bytes(&signature.outputs)).saturating_mul(batch);
    if bytes > MAX_MEASURED_BYTES {
        let why = format!("{batch} items are too large to be measured: {}", show_bytes(bytes as u64));
        return Err(BackendError::Call(why));
    }
    let mut inputs = ModelBuffers::new(&signature.inputs, batch);
    inputs.0.iter_mut().for_each(|input| {
        let access = Access::for_dtype(input.spec.dtype);
        let values = (0..).map(|at| f64::from(at % 5) / 4.0);
        access.write(values, bytemuck::cast_slice_mut(&mut input.words));
    });
    let mut outputs = ModelBuffers::new(&signature.outputs, batch);
    let mut lanes = vec![OnnxLane::default(); batch];
    let given: Vec<BatchRef<'_>> = inputs.batches(batch).collect();
    let mut times = Vec::new();
    let now = Instant::now;
    // The first call warms the caches.
    outputs.run(session, batch, &given, &mut lanes)?;
    let begun = now();
    while times.len() < 3 || (begun.elapsed() < time && times.len() < 1000) {
        let begun = now();
        outputs.run(session, batch, &given, &mut lanes)?;
        times.push(begun.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2] / batch as u64)
}
