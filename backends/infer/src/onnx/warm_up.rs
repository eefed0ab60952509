//! Calls on zeros: before the run, where first calls choose algorithms, and between calls that are
//! far apart.

use super::fallback::Fallback;
use super::runtime::Runtime;
use super::session::{OnnxSession, buffer};
use limen::backend::{BackendError, BatchRef};
use limen::node::MAX_PORTS;
use std::time::Instant;

/// The most sizes of batches, without `buckets`, for which calls are made before the run.
const MAX_WARM_UPS: usize = 32;

impl<R: Runtime> OnnxSession<R> {
    /// Makes a call of each of the `buckets` or, without these, of each number of items: where
    /// there are too many, of powers of two and the most. The largest and the smallest come first,
    /// as a provider may prepare a range of sizes at once. A call that fails is the last one.
    ///
    /// # Errors
    /// If the device is lost, or missing, and there is no fallback. What the model makes of zeros
    /// does not matter, also if it is an error.
    pub(super) fn warm_up(&mut self) -> Result<(), BackendError> {
        if self.runner.is_none() {
            return Ok(());
        }
        let begun = Instant::now();
        let most = self.call.batches.last().copied().unwrap_or(1);
        let mut sizes: Vec<usize> = match self.buckets.as_slice() {
            [] => (1..=most).filter(|size| most <= MAX_WARM_UPS || size.is_power_of_two() || *size == most).collect(),
            buckets => buckets.to_vec(),
        };
        sizes.reverse();
        if let [_, rest @ ..] = sizes.as_mut_slice() {
            rest.rotate_right(rest.len().min(1));
        }
        for size in sizes {
            match self.call_on_zeros(size) {
                Ok(()) => {}
                Err(BackendError::Call(_) | BackendError::OutOfMemory(_)) => break,
                Err(error) if self.fallback.is_some() && Fallback::takes(&error) => break,
                Err(error) => return Err(error),
            }
        }
        self.zeros = Vec::new();
        self.warm_up = Some(begun.elapsed());
        Ok(())
    }

    /// Makes a call of a size on zeros, whose outputs and states nobody gets.
    pub(super) fn call_on_zeros(&mut self, size: usize) -> Result<(), BackendError> {
        let OnnxSession { runner, inputs, zeros, .. } = self;
        let Some(runner) = runner else { return Ok(()) };
        zeros.resize_with(inputs.len(), Vec::new);
        let mut whole = arrayvec::ArrayVec::<BatchRef<'_>, { 2 * MAX_PORTS }>::new();
        for (input, zeros) in std::iter::zip(inputs, zeros) {
            if let Some(dim) = input.batch_dim {
                input.shape[dim] = size;
            }
            if !input.bounds.is_empty() {
                let item = usize::from(input.batch_dim.is_some());
                input.shape[item..].copy_from_slice(&input.bounds);
            }
            let bytes = input.bytes(size);
            if 8 * zeros.len() < bytes && !input.is_constant {
                *zeros = buffer(bytes);
            }
            let from = if input.is_constant { &input.buffer } else { &*zeros };
            whole.push(BatchRef {
                dtype: input.dtype,
                shape: &input.shape,
                bytes: &bytemuck::cast_slice(from)[..bytes],
            });
        }
        runner.run(size, &whole, &mut |_, _| Ok(()))
    }
}
