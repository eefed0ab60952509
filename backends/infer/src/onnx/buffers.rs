//! Buffers for batches of a model's inputs or outputs.

use super::lane::OnnxLane;
use super::reference::AnySession;
use limen::backend::{BackendError, BatchMut, BatchRef, TensorSpec};
use limen::message::Dim;

/// Buffers for the inputs or outputs of a model.
pub(super) struct ModelBuffers(pub(super) Vec<ModelBuffer>);

pub(super) struct ModelBuffer {
    pub(super) spec: TensorSpec,
    /// The shape of one item; after a call, that of its item if lengths vary.
    pub(super) shape: Vec<usize>,
    /// The greatest length of each dim.
    bounds: Vec<usize>,
    varies: bool,
    /// Bytes of the largest item.
    pub(super) item_bytes: usize,
    pub(super) words: Vec<u64>,
}

impl ModelBuffer {
    pub(super) fn batch(&self, batch: usize) -> BatchRef<'_> {
        let item = if self.varies { self.item_bytes_now() } else { self.item_bytes };
        let bytes = &bytemuck::cast_slice(&self.words)[..item * batch];
        BatchRef { dtype: self.spec.dtype, shape: &self.shape, bytes }
    }

    /// Returns a batch of the same port with the bytes that its shape takes, for a comparison. Only
    /// lengths that vary are in its shape.
    pub(super) fn as_given<'a>(&'a self, given: &'a BatchMut<'_>) -> BatchRef<'a> {
        if !self.varies {
            return BatchRef { dtype: given.dtype, shape: &self.shape, bytes: given.bytes };
        }
        let bytes = given.shape.iter().fold(given.dtype.size(), |n, length| n.saturating_mul(*length));
        BatchRef { dtype: given.dtype, shape: given.shape, bytes: &given.bytes[..bytes.min(given.bytes.len())] }
    }

    /// Returns the bytes of an item of the current shape, which a session has written.
    pub(super) fn item_bytes_now(&self) -> usize {
        let elements = self.shape.iter().fold(1usize, |n, length| n.saturating_mul(*length));
        elements.saturating_mul(self.spec.dtype.size()).min(self.item_bytes)
    }

    /// Sets the lengths that vary to `by` of the greatest.
    pub(super) fn resize(&mut self, by: impl Fn(usize) -> usize) {
        for ((length, most), dim) in self.shape.iter_mut().zip(&self.bounds).zip(&self.spec.shape) {
            *length = if matches!(dim, Dim::AtMost(_)) { by(*most) } else { *most };
        }
    }
}

impl ModelBuffers {
    pub(super) fn new(specs: &[TensorSpec], max_batch: usize) -> Self {
        let buffer = |spec: &TensorSpec| {
            let shape: Vec<usize> = spec.shape.iter().map(|dim| dim.max().unwrap_or(0)).collect();
            let item_bytes = shape.iter().product::<usize>() * spec.dtype.size();
            let words = vec![0; (item_bytes * max_batch).div_ceil(8)];
            let varies = spec.shape.iter().any(|dim| matches!(dim, Dim::AtMost(_)));
            ModelBuffer { spec: spec.clone(), bounds: shape.clone(), shape, varies, item_bytes, words }
        };
        ModelBuffers(specs.iter().map(buffer).collect())
    }

    pub(super) fn run(
        &mut self,
        session: &mut AnySession,
        batch: usize,
        inputs: &[BatchRef<'_>],
        lanes: &mut [OnnxLane],
    ) -> Result<(), BackendError> {
        let outputs = self.0.iter_mut().map(|buffer| {
            // The session may have written another shape in an earlier call.
            buffer.shape.copy_from_slice(&buffer.bounds);
            BatchMut {
                dtype: buffer.spec.dtype,
                shape: &mut buffer.shape,
                bytes: &mut bytemuck::cast_slice_mut(&mut buffer.words)[..buffer.item_bytes * batch],
            }
        });
        let mut outputs: Vec<BatchMut<'_>> = outputs.collect();
        session.infer_batch(batch, inputs, &mut outputs, lanes)
    }

    /// Returns a batch of each buffer.
    pub(super) fn batches(&self, batch: usize) -> impl Iterator<Item = BatchRef<'_>> {
        self.0.iter().map(move |buffer| buffer.batch(batch))
    }
}
