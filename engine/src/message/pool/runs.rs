//! Tensors of a pool that follow each other in memory: the rows of a slot, and free slots.

use super::inner::Inner;
use super::row::{PoolRow, is_free};
use crate::message::tensor::{Tensor, TensorMut};
use std::ptr::NonNull;

/// The rows of a slot as tensors. Each is already counted; those not taken are released on drop.
#[derive(Debug)]
pub(crate) struct SlotRows {
    pub(super) row: NonNull<PoolRow>,
    pub(super) data: NonNull<u8>,
    pub(super) row_bytes: usize,
    pub(super) left: usize,
}

impl Iterator for SlotRows {
    type Item = Tensor;
    fn next(&mut self) -> Option<Tensor> {
        self.left = self.left.checked_sub(1)?;
        let tensor = Tensor { row: self.row, data: self.data };
        // SAFETY: the next row, or one past the last: `tensor` keeps the slot, and the headers and
        // the bytes of rows are contiguous.
        let next = unsafe { (self.row.add(1), self.data.add(self.row_bytes)) };
        (self.row, self.data) = next;
        Some(tensor)
    }
}

impl Drop for SlotRows {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Free slots that follow each other, as they are taken one by one.
pub(crate) struct FreeRun<'a> {
    pub(super) cursor: &'a mut u32,
    pub(super) inner: &'a Inner,
    /// The first row of the next slot, and where its elements lie.
    pub(super) row: NonNull<PoolRow>,
    pub(super) data: NonNull<u8>,
    pub(super) taken: usize,
    /// Slots from there to the end of the pool, or as many as are wanted.
    pub(super) left: usize,
}

impl Drop for FreeRun<'_> {
    fn drop(&mut self) {
        let next = *self.cursor as usize + self.taken;
        if self.taken > 0 {
            *self.cursor = if next == self.inner.slots { 0 } else { next as u32 };
        }
    }
}

impl FreeRun<'_> {
    /// Whether the run has ended.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: `left` slots lie from this row on, whose counts are atomics.
        self.left == 0 || !is_free(unsafe { &(*self.row.as_ptr()).refs })
    }
}

impl Iterator for FreeRun<'_> {
    type Item = TensorMut;

    #[inline]
    fn next(&mut self) -> Option<TensorMut> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the owner is borrowed, the slot was free just now, and both pointers are those of
        // one slot.
        let tensor = unsafe { Inner::lend(self.row, self.data) };
        (self.taken, self.left) = (self.taken + 1, self.left - 1);
        // SAFETY: the slot that follows is one of the pool's, or lies behind its last.
        unsafe {
            self.row = self.row.add(self.inner.rows as usize);
            self.data = self.data.add(self.inner.slot_bytes);
        }
        Some(tensor)
    }
}
