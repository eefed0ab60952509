//! Buffers for batches of a model's inputs or outputs.

use super::lane::OnnxLane;
use super::reference::AnySession;
use limen::backend::{BackendError, BatchMut, BatchRef, TensorSpec};

/// Buffers for the inputs or outputs of a model.
pub(super) struct Buffers(pub(super) Vec<Buffer>);

pub(super) struct Buffer {
    pub(super) spec: TensorSpec,
    shape: Vec<usize>,
    pub(super) item_bytes: usize,
    pub(super) words: Vec<u64>,
}

impl Buffer {
    pub(super) fn batch(&self, batch: usize) -> BatchRef<'_> {
        let bytes = &bytemuck::cast_slice(&self.words)[..self.item_bytes * batch];
        BatchRef { dtype: self.spec.dtype, shape: &self.shape, bytes }
    }
}

impl Buffers {
    pub(super) fn new(specs: &[TensorSpec], max_batch: usize) -> Self {
        let buffer = |spec: &TensorSpec| {
            let shape: Vec<usize> = spec.shape.iter().map(|dim| dim.max().unwrap_or(0)).collect();
            let item_bytes = shape.iter().product::<usize>() * spec.dtype.size();
            Buffer { spec: spec.clone(), shape, item_bytes, words: vec![0; (item_bytes * max_batch).div_ceil(8)] }
        };
        Buffers(specs.iter().map(buffer).collect())
    }

    pub(super) fn run(
        &mut self,
        session: &mut AnySession,
        batch: usize,
        inputs: &[BatchRef<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let outputs = self.0.iter_mut().map(|buffer| BatchMut {
            dtype: buffer.spec.dtype,
            shape: &mut buffer.shape,
            bytes: &mut bytemuck::cast_slice_mut(&mut buffer.words)[..buffer.item_bytes * batch],
        });
        let mut outputs: Vec<BatchMut<'_>> = outputs.collect();
        session.infer_batch(batch, inputs, &mut outputs, lanes)
    }

    /// Returns the bytes of a batch, buffer by buffer.
    pub(super) fn parts(&self, batch: usize) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(move |buffer| buffer.batch(batch).bytes)
    }
}
