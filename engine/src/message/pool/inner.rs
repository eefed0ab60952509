//! The memory of a pool, which its owner and all tensors in it share.

use super::MAX_DYNAMIC;
use super::row::{PoolRow, is_free};
use crate::host::sync::{AtomicBool, AtomicU32, DynArc, OrderedCell, Ordering, dealloc};
use crate::message::device::{DeviceMemory, DeviceTensor};
use crate::message::origins::{NO_ORIGIN, Origin, Origins};
use crate::message::port_spec::DType;
use crate::message::tensor::{Shape, Tensor, TensorMut};
use std::alloc::Layout;
use std::ptr::NonNull;

/// Run-time lengths of one row.
pub(super) type Lens = [u32; MAX_DYNAMIC];

pub(crate) struct Inner {
    pub(super) name: String,
    pub(crate) dtype: DType,
    /// The type of the elements, if they lie in host memory: one comparison tells both.
    pub(crate) host_dtype: Option<DType>,
    /// Where the elements lie otherwise. Then slots have no bytes here.
    pub(super) device: Option<DynArc<dyn DeviceMemory>>,
    /// Maximum length of every dim.
    pub(crate) dims: Vec<usize>,
    /// The dims that have a run-time length.
    pub(crate) dynamic: Vec<usize>,
    pub(super) slots: usize,
    /// Rows per slot.
    pub(super) rows: u32,
    pub(super) row_bytes: usize,
    pub(super) slot_bytes: usize,
    /// All rows, owned. Every pointer to a row derives from this one, so that it may be moved to
    /// the other rows of its slot.
    pub(super) table: NonNull<[PoolRow]>,
    /// By row; empty if every dim is fixed.
    pub(super) lens: Box<[OrderedCell<Lens>]>,
    /// The sources whose origins are kept for each row, and the origins, row by row.
    pub(super) sources: Box<[u16]>,
    pub(super) origins: Box<[OrderedCell<u64>]>,
    pub(super) data: NonNull<u8>,
    pub(super) layout: Layout,
    /// Set when the owner is gone: the last tensor then frees the pool.
    pub(super) is_orphan: AtomicBool,
    /// Represents the pool's lifetime, for loom.
    pub(super) alive: OrderedCell<()>,
}

// SAFETY: `data`, `lens`, `origins` and headers are written only by the single holder of a slot and
// read only by holders; the counts that establish this are atomics (see the module's protocol).
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

impl Inner {
    /// # Safety
    /// The row is of this pool and the caller holds a reference to its slot.
    unsafe fn lens(&self, row: NonNull<PoolRow>) -> &OrderedCell<Lens> {
        // SAFETY: both pointers are into the table (caller).
        let at = unsafe { row.offset_from(self.table.cast()) };
        &self.lens[at as usize]
    }

    #[inline]
    pub(super) fn is_orphan(&self) -> bool {
        self.alive.reading();
        self.is_orphan.load(Ordering::Relaxed)
    }

    /// Whether origins are kept for each row.
    pub(crate) fn has_origins(&self) -> bool {
        !self.sources.is_empty()
    }

    /// The origin entries of a row.
    ///
    /// # Safety
    /// As [`Inner::lens`].
    unsafe fn row_origins(&self, row: NonNull<PoolRow>) -> &[OrderedCell<u64>] {
        // SAFETY: both pointers are into the table (caller).
        let at = unsafe { row.offset_from(self.table.cast()) } as usize;
        &self.origins[at * self.sources.len()..(at + 1) * self.sources.len()]
    }

    /// Visits the origins of a row's message.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    pub(crate) unsafe fn each_origin(&self, row: NonNull<PoolRow>, see: &mut dyn FnMut(Origin)) {
        // SAFETY: the caller's promise.
        for (place, source) in unsafe { self.row_origins(row) }.iter().zip(&self.sources) {
            // SAFETY: the caller holds a reference, and entries are written only while the slot is
            // uniquely held.
            Origin::unpacked(*source, unsafe { *place.reading() }).into_iter().for_each(&mut *see);
        }
    }

    /// Sets the origins of a row's message; sources without an entry are skipped.
    ///
    /// # Safety
    /// As [`Inner::set_len`].
    pub(crate) unsafe fn set_origins(&self, row: NonNull<PoolRow>, origins: &Origins) {
        // SAFETY: the caller's promise.
        for (place, source) in unsafe { self.row_origins(row) }.iter().zip(&self.sources) {
            // SAFETY: the caller has the only reference to the slot.
            unsafe { *place.writing() = origins.of(*source).map_or(NO_ORIGIN, Origin::packed) };
        }
    }

    /// Where a row's elements lie on a device; `None` if they lie in host memory.
    ///
    /// # Safety
    /// As [`Inner::lens`].
    pub(crate) unsafe fn on_device(&self, row: NonNull<PoolRow>) -> Option<DeviceTensor<'_>> {
        let memory = self.device.as_ref()?;
        // SAFETY: both pointers are into the table (caller).
        let at = unsafe { row.offset_from(self.table.cast()) } as usize;
        let rows = self.rows as usize;
        Some(DeviceTensor { memory, slot: at / rows, row: at % rows })
    }

    /// Whether the elements lie on a device.
    pub(crate) fn is_on_device(&self) -> bool {
        self.device.is_some()
    }

    /// # Safety
    /// As [`Inner::lens`], and the lengths are not written during the call.
    pub(crate) unsafe fn shape(&self, row: NonNull<PoolRow>) -> Shape {
        if self.dynamic.is_empty() {
            return Shape::from_iter(self.dims.iter().copied());
        }
        // SAFETY: the caller's promise.
        let lens = unsafe { &*self.lens(row).reading() };
        let length = |(dim, bound): (usize, &usize)| {
            self.dynamic.iter().position(|d| *d == dim).map_or(*bound, |at| lens[at] as usize)
        };
        Shape::from_iter(self.dims.iter().enumerate().map(length))
    }

    /// # Safety
    /// As [`Inner::lens`], with the only reference to the slot.
    pub(crate) unsafe fn set_len(&self, row: NonNull<PoolRow>, index: usize, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { (*self.lens(row).writing())[index] = length };
    }

    /// Bytes of a row's elements in host memory.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    #[inline]
    pub(crate) unsafe fn row_len(&self, row: NonNull<PoolRow>) -> usize {
        if self.dynamic.is_empty() {
            return self.row_bytes;
        }
        // SAFETY: the caller's promise.
        unsafe { self.row_len_now(row) }
    }

    /// Out of line, so that reading a tensor of fixed shape stays small enough to be inlined into
    /// its node.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    #[inline(never)]
    unsafe fn row_len_now(&self, row: NonNull<PoolRow>) -> usize {
        if self.is_on_device() {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe { self.shape(row) }.elements() * self.dtype.size()
    }

    #[inline]
    pub(super) fn table(&self) -> &[PoolRow] {
        // SAFETY: the table lives as long as this. Parts written while others read are cells and
        // atomics.
        unsafe { self.table.as_ref() }
    }

    /// A slot's first row.
    ///
    /// # Panics
    /// If the row is past the end of the table.
    #[inline]
    pub(super) fn row(&self, slot: usize) -> NonNull<PoolRow> {
        let at = slot * self.rows as usize;
        assert!(at < self.table.len());
        // SAFETY: it lies in the table.
        unsafe { self.table.cast::<PoolRow>().add(at) }
    }

    #[inline]
    pub(super) fn refs(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: the table lives as long as this; counts are atomics.
        unsafe { &(*self.row(slot).as_ptr()).refs }
    }

    /// Where a slot's elements lie.
    ///
    /// # Safety
    /// The slot is one of `slots`, or the one behind the last.
    #[inline]
    pub(super) unsafe fn slot_data(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise: all slots lie within the allocation.
        unsafe { self.data.add(slot * self.slot_bytes) }
    }

    /// Creates the only handle to a free slot.
    ///
    /// # Safety
    /// The caller is the owner and has checked that the slot is free; `row` is its first, and
    /// `data` where its elements lie.
    #[inline]
    pub(super) unsafe fn lend(row: NonNull<PoolRow>, data: NonNull<u8>) -> TensorMut {
        // SAFETY: the caller's promise. Relaxed: only the owner turns 0 into 1, and the handle
        // travels to others through an edge, which orders it.
        unsafe { (*row.as_ptr()).refs.store(1, Ordering::Relaxed) };
        TensorMut(Tensor { row, data })
    }

    pub(super) fn is_unused(&self) -> bool {
        (0..self.slots).all(|slot| is_free(self.refs(slot)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        #[cfg(all(test, loom))]
        self.check_unused();
        // SAFETY: `table` came from a leaked box, once, and is not used afterwards.
        drop(unsafe { Box::from_raw(self.table.as_ptr()) });
        // SAFETY: `data` was allocated with this layout, and `Inner` is freed only when no handle
        // is left.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}
