//! Runs of a recorded case.

use super::case::{Case, CaseError, item_of};
use super::comparison::{Tolerance, Worst};
use crate::base::{Access, caught};
use limen::backend::{BackendError, BatchMut, BatchRef, Prepared, Session, Signature, TensorSpec};
use std::fmt;
use std::time::{Duration, Instant};

/// The result of a case whose recorded outputs the model reproduces.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub(crate) items: usize,
    /// The largest distance from the recorded values, by output.
    off: Vec<(String, f64)>,
    time_per_item: Duration,
}

impl Tried {
    /// Adds another run of the same case.
    fn add(&mut self, other: Tried) {
        for ((_, off), (_, other)) in self.off.iter_mut().zip(other.off) {
            *off = off.max(other);
        }
        // The first call of a session prepares it.
        self.time_per_item = self.time_per_item.min(other.time_per_item);
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (output, off) in &self.off {
            write!(f, "`{output}` off by at most {off:.2e}, ")?;
        }
        write!(f, "{:.1} µs per item", self.time_per_item.as_secs_f64() * 1e6)
    }
}

impl Case {
    /// Runs the case three times in one session, at most `max_batch` items per call, compares the
    /// outputs, and returns the number of its items. The second time, the calls are made in the
    /// opposite order, except those of a model with a state: a runtime may keep something from one
    /// call to the next that it should not.
    ///
    /// # Errors
    /// Every mismatch between the case and the model's signature; else [`BackendError::Verify`] for
    /// the first output that differs, or the error of the call that failed.
    pub fn check<P: Prepared>(
        &self,
        prepared: &P,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<usize, Vec<CaseError>> {
        self.try_on(prepared, max_batch, tolerance).map(|tried| tried.items)
    }

    /// Like [`check`](Case::check), with the distance of each output and the time per item.
    ///
    /// # Errors
    /// Like [`check`](Case::check).
    #[doc(hidden)]
    pub fn try_on<P: Prepared>(
        &self,
        prepared: &P,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<Tried, Vec<CaseError>> {
        let session = |batch| prepared.session(batch).map(Box::new);
        self.check_with(prepared.signature(), prepared.is_stateful(), session, max_batch, tolerance)
    }

    /// Like [`try_on`](Case::try_on), for a model whose runtime is known only at run time.
    pub(crate) fn check_with<S: Session + ?Sized>(
        &self,
        signature: &Signature,
        is_stateful: bool,
        session: impl FnOnce(usize) -> Result<Box<S>, BackendError>,
        max_batch: usize,
        tolerance: Tolerance,
    ) -> Result<Tried, Vec<CaseError>> {
        let items = self.fit(signature)?;
        // The items of a stateful model are successive steps of one stream.
        let most = if is_stateful { 1 } else { signature.max_batch.unwrap_or(usize::MAX) };
        let batch = max_batch.min(most).clamp(1, items);
        let starts: Vec<usize> = (0..items).step_by(batch).collect();
        let reverse = || if is_stateful { starts.clone() } else { starts.iter().rev().copied().collect() };
        let run = || {
            let mut session = session(batch)?;
            let mut tried = self.run(signature, &mut *session, items, batch, &starts, tolerance)?;
            for starts in [reverse(), starts.clone()] {
                let again =
                    self.run(signature, &mut *session, items, batch, &starts, tolerance).map_err(
                        |error| match error {
                            CaseError::Model(BackendError::Verify { output, difference }) => {
                                let difference = format!("only in a repeated call, {difference}");
                                BackendError::Verify { output, difference }.into()
                            }
                            other => other,
                        },
                    )?;
                tried.add(again);
            }
            Ok(tried)
        };
        match caught(run) {
            Ok(result) => result.map_err(|e: CaseError| vec![e]),
            Err(panic) => Err(vec![BackendError::Call(panic).into()]),
        }
    }

    fn run<S: Session + ?Sized>(
        &self,
        signature: &Signature,
        session: &mut S,
        items: usize,
        batch: usize,
        starts: &[usize],
        tolerance: Tolerance,
    ) -> Result<Tried, CaseError> {
        let mut took = Duration::ZERO;
        let mut lane = S::Lane::default();
        // Of an array, whose items may be shorter than the longest.
        let recorded = |specs: &[TensorSpec]| -> Vec<Vec<usize>> {
            specs.iter().map(|spec| item_of(&self.arrays[&spec.name].shape, spec).to_vec()).collect()
        };
        let (in_shapes, out_shapes) = (recorded(&signature.inputs), recorded(&signature.outputs));
        let mut worst: Vec<Worst> = signature.outputs.iter().map(|_| Worst::default()).collect();
        for start in starts.iter().copied() {
            let n = batch.min(items - start);
            // The values of items `start..start + n`; an array without an items dim has a single
            // item.
            let part = |name: &str, len: usize| {
                let array = &self.arrays[name];
                let size = array.dtype.size();
                Access::for_dtype(array.dtype).values(&array.bytes[start * len * size..(start + n) * len * size])
            };
            let in_bytes: Vec<Vec<u8>> = signature
                .inputs
                .iter()
                .zip(&in_shapes)
                .map(|(spec, shape)| {
                    let len = shape.iter().product();
                    let mut bytes = vec![0; n * len * spec.dtype.size()];
                    Access::for_dtype(spec.dtype).write(part(&spec.name, len), &mut bytes);
                    bytes
                })
                .collect();
            let mut given_shapes: Vec<Vec<usize>> = signature.outputs.iter().map(item_shape).collect();
            let mut out_bytes: Vec<Vec<u8>> = std::iter::zip(&signature.outputs, &given_shapes)
                .map(|(spec, shape)| vec![0; n * shape.iter().product::<usize>() * spec.dtype.size()])
                .collect();
            let inputs: Vec<BatchRef<'_>> = signature
                .inputs
                .iter()
                .zip(&in_shapes)
                .zip(&in_bytes)
                .map(|((spec, shape), bytes)| BatchRef { dtype: spec.dtype, shape, bytes })
                .collect();
            let mut outputs: Vec<BatchMut<'_>> = signature
                .outputs
                .iter()
                .zip(&mut given_shapes)
                .zip(&mut out_bytes)
                .map(|((spec, shape), bytes)| BatchMut { dtype: spec.dtype, shape, bytes })
                .collect();
            let begun = Instant::now();
            session.infer_batch(n, &inputs, &mut outputs, std::slice::from_mut(&mut lane))?;
            took += begun.elapsed();
            if let Some(at) = (0..out_shapes.len()).find(|at| out_shapes[*at] != given_shapes[*at]) {
                let difference = format!("expected the shape {:?}, found {:?}", out_shapes[at], given_shapes[at]);
                return Err(BackendError::Verify { output: signature.outputs[at].name.clone(), difference }.into());
            }
            for (((spec, shape), bytes), worst) in
                signature.outputs.iter().zip(&out_shapes).zip(&out_bytes).zip(&mut worst)
            {
                let len = shape.iter().product();
                let expected = part(&spec.name, len);
                let got = Access::for_dtype(spec.dtype).values(bytes);
                for (i, (expected, got)) in expected.zip(got).enumerate() {
                    worst.see(start * len + i, expected, got, tolerance);
                }
            }
        }
        let mut off = Vec::new();
        for (spec, worst) in signature.outputs.iter().zip(worst) {
            if let Some(difference) = worst.difference(&self.arrays[&spec.name].shape, tolerance) {
                return Err(BackendError::Verify { output: spec.name.clone(), difference }.into());
            }
            off.push((spec.name.clone(), worst.distance));
        }
        Ok(Tried { items, off, time_per_item: took / u32::try_from(items).unwrap_or(u32::MAX) })
    }
}

/// Returns the shape of the longest item.
fn item_shape(spec: &TensorSpec) -> Vec<usize> {
    spec.shape.iter().map(|d| d.max().unwrap_or(0)).collect()
}
