//! Pools: the buffers of tensors, sized while planning, allocated and touched once, never grown.
//!
//! A slot is free when its reference count is zero; there is no free list. Only the owner (one
//! [`Pool`], used by one stage) takes slots, with a cursor that skips those still held; any thread
//! shares or drops. The count is the entire protocol:
//!
//! - taking: the owner reads 0 with Acquire, which orders it after every earlier reader's Release,
//!   and stores 1; no other thread changes a 0;
//! - sharing: a holder adds 1, Relaxed: its own reference keeps the count above zero;
//! - dropping: a holder that reads 1 is the last one and stores 0 with Release; otherwise it
//!   subtracts 1 with Release.
//!
//! A pool whose owner is gone while tensors are alive is freed by the last of them or, if that one
//! was dropped at the same moment as the owner, when the next owner goes. `loom_tests` check both
//! on this code, with every part of a row watched. Loom cannot see pointer provenance and use after
//! free; Miri checks these (`.ci/miri`).

mod inner;
mod orphans;
mod row;
mod runs;

pub(crate) use inner::Inner;
pub(crate) use row::PoolRow;
pub(crate) use runs::{FreeRun, SlotRows};

use crate::host::clock::Time;
use crate::host::footprint::Footprint;
use crate::host::sync::{AtomicBool, AtomicU32, DynArc, OrderedCell, Ordering, alloc_zeroed};
use crate::message::device::{Device, DeviceMemory, DevicePool};
use crate::message::origins::{NO_ORIGIN, Origins};
use crate::message::payload::Header;
use crate::message::port_spec::{Dim, MAX_RANK, Memory, PortSpec};
use crate::message::tensor::{TensorError, TensorMut};
use inner::Lens;
use orphans::Guard;
use row::is_free;
use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

/// Number of run-time lengths a row can hold.
pub(crate) const MAX_DYNAMIC: usize = 4;
/// Most rows of a pool: 2³¹, so that a row index, and one past the last, fits in 32 bits.
const MOST_ROWS: usize = 1 << 31;
/// Slots are aligned to pairs of cache lines, because the prefetcher fetches pairs.
const ALIGN: usize = 128;

/// A fixed set of equal slots and the right to take them.
pub struct Pool {
    inner: Guard,
    /// The slot to try next. In a pool with origins it stays on a row past the last, which is never
    /// free: the fast paths below find nothing there, and so need no test in pools without origins.
    cursor: u32,
    /// In a pool with origins: the slot to try next.
    next: u32,
    /// Return to the first slot as soon as it is free.
    rewinds: bool,
}

impl Pool {
    /// Allocates and touches `slots` slots of `rows` messages each.
    ///
    /// # Errors
    /// If a dim is not bound, there are more than [`MAX_RANK`] dims or four run-time lengths, one
    /// of them may be 2³² or more, the size overflows, or the memory cannot be allocated.
    pub fn new(name: &str, spec: &PortSpec, slots: usize, rows: usize) -> Result<Pool, String> {
        Pool::with_origins(name, spec, slots, rows, &[])
    }

    /// As [`Pool::new`], with entries for the origins of `sources` for each row.
    pub(crate) fn with_origins(
        name: &str,
        spec: &PortSpec,
        slots: usize,
        rows: usize,
        sources: &[u16],
    ) -> Result<Pool, String> {
        Pool::with_memory(name, spec, slots, rows, sources, None)
    }

    /// As [`Pool::with_origins`], with the elements on a device.
    pub(crate) fn on_device(
        name: &str,
        spec: &PortSpec,
        slots: usize,
        rows: usize,
        sources: &[u16],
        device: &dyn Device,
    ) -> Result<Pool, String> {
        let memory = device.allocate(&DevicePool { name, spec, slots, rows })?;
        Pool::with_memory(name, spec, slots, rows, sources, Some(memory))
    }

    fn with_memory(
        name: &str,
        spec: &PortSpec,
        slots: usize,
        rows: usize,
        sources: &[u16],
        device: Option<DynArc<dyn DeviceMemory>>,
    ) -> Result<Pool, String> {
        if !is_representable(spec) {
            return Err(format!(
                "a message must have at most {MAX_RANK} dims, of which at most {MAX_DYNAMIC} vary (below 2³²), got {spec}"
            ));
        }
        let slot_bytes =
            slot_bytes(spec, rows).ok_or_else(|| format!("the size of {rows} rows of {spec} has no bound"))?;
        let slot_bytes = if device.is_some() { 0 } else { slot_bytes };
        let dynamic: Vec<usize> = (0..spec.shape.len()).filter(|d| matches!(spec.shape[*d], Dim::AtMost(_))).collect();
        let total = slot_bytes.checked_mul(slots).filter(|b| *b <= isize::MAX as usize - ALIGN);
        let total = total.ok_or_else(|| format!("cannot allocate {slots} slots of {slot_bytes} bytes"))?;
        let in_all = slots.checked_mul(rows).filter(|n| (1..=MOST_ROWS).contains(n));
        if in_all.is_none() {
            return Err(format!("a pool must have 1 to {MOST_ROWS} rows, got {slots} slots of {rows} rows ({spec})"));
        }
        let layout = Layout::from_size_align(total.max(ALIGN), ALIGN).map_err(|e| e.to_string())?;
        // The small tables are reserved first, so that a refusal by the system leaves nothing to
        // free.
        let never = if sources.is_empty() { 0 } else { rows };
        let lens_in_all = if dynamic.is_empty() { 0 } else { slots * rows };
        let (Some(mut lens), Some(mut origins), Some(mut table)) = (
            reserved::<OrderedCell<Lens>>(lens_in_all),
            (slots * rows).checked_mul(sources.len()).and_then(reserved::<OrderedCell<u64>>),
            (slots * rows).checked_add(never).and_then(reserved::<PoolRow>),
        ) else {
            return Err(format!("out of memory for {slots} slots of {rows} rows of {spec}"));
        };
        // SAFETY: the layout has a size above zero.
        let Some(data) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            return Err(format!("out of memory for {slots} slots of {slot_bytes} bytes"));
        };
        // Touch every page now, so that none is faulted in while messages move.
        for at in (0..total).step_by(4096) {
            // SAFETY: `at` lies in the allocation, which is not shared yet.
            unsafe { data.as_ptr().add(at).write_volatile(0) };
        }
        lens.resize_with(lens_in_all, || OrderedCell::new(Lens::default()));
        origins.resize_with(slots * rows * sources.len(), || OrderedCell::new(NO_ORIGIN));
        let pool = NonNull::from(Box::leak(Box::new(Inner {
            name: name.to_string(),
            dtype: spec.dtype,
            host_dtype: device.is_none().then_some(spec.dtype),
            dims: spec.shape.iter().map(|d| d.max().unwrap_or(0)).collect(),
            lens: lens.into(),
            dynamic,
            slots,
            rows: rows as u32,
            row_bytes: if device.is_some() { 0 } else { spec.max_bytes().unwrap_or(0) },
            slot_bytes,
            device,
            sources: sources.into(),
            origins: origins.into(),
            table: NonNull::from(&mut []),
            data,
            layout,
            is_orphan: AtomicBool::new(false),
            alive: OrderedCell::new(()),
        })));
        let row = |at: usize, refs: u32| PoolRow {
            header: OrderedCell::new(Header::new(0, Time::ZERO)),
            refs: AtomicU32::new(refs),
            index: (at % rows) as u32,
            pool,
            bytes: OrderedCell::new(()),
        };
        // In a pool with origins, rows past the last that are never used and never free.
        table.extend((0..slots * rows).map(|at| row(at, 0)).chain((0..never).map(|at| row(at, 1))));
        // SAFETY: the pool is not shared yet.
        unsafe { (*pool.as_ptr()).table = NonNull::from(Box::leak(table.into_boxed_slice())) };
        let cursor = if sources.is_empty() { 0 } else { slots as u32 };
        Ok(Pool { inner: Guard(pool), cursor, next: 0, rewinds: false })
    }

    /// Reuses the first slots as soon as they are free. Right if all buffers stay on one thread:
    /// those slots are in its L1 cache. Wrong if they move between cores: the slots freed last are
    /// in another core's cache.
    pub(crate) fn rewind(&mut self) {
        self.rewinds = !self.inner().has_origins();
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: the guard keeps `Inner` alive.
        unsafe { self.inner.0.as_ref() }
    }

    /// Whether `want` slots are free: enough for a call.
    #[inline]
    pub(crate) fn has_free(&mut self, want: usize) -> bool {
        if self.rewinds && is_free(self.inner().refs(0)) {
            self.cursor = 0;
        }
        let inner = self.inner();
        let at = self.cursor as usize;
        // Usually the next slots are all free and contiguous.
        if inner.rows == 1
            && let Some(next) = inner.table().get(at..at.saturating_add(want))
            && next.iter().all(|row| is_free(&row.refs))
        {
            return true;
        }
        self.has_free_anywhere(want)
    }

    #[cold]
    fn has_free_anywhere(&self, want: usize) -> bool {
        (0..self.slots()).filter(|i| is_free(self.inner().refs(self.wrapped(*i)))).take(want).count() == want
    }

    /// Adds the pool and its first slots, one of which the next message takes: the first, if the
    /// pool returns to it.
    pub(crate) fn footprint(&self, to: &mut Footprint) {
        let inner = self.inner();
        to.add(inner, 256);
        let rows = inner.table();
        to.add(rows.as_ptr(), size_of_val(rows).min(512));
        if self.rewinds {
            to.add(inner.data.as_ptr(), inner.slot_bytes.min(512));
        }
    }

    /// Returns the number of free slots, for reports.
    pub fn free(&self) -> usize {
        (0..self.slots()).filter(|slot| is_free(self.inner().refs(*slot))).count()
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.inner().slots
    }

    #[inline]
    fn wrapped(&self, offset: usize) -> usize {
        let at = self.cursor as usize + offset;
        if at >= self.slots() { at - self.slots() } else { at }
    }

    /// Takes a free slot; its bytes and header are those an earlier message left.
    ///
    /// # Errors
    /// [`TensorError::PoolEmpty`] if every slot is held.
    #[inline]
    pub fn take(&mut self) -> Result<TensorMut, TensorError> {
        self.take_any().ok_or_else(|| self.is_empty_error())
    }

    /// As [`Pool::take`], without the error.
    pub(crate) fn take_any(&mut self) -> Option<TensorMut> {
        self.take_slot().or_else(|| self.take_closely(&Origins::default()))
    }

    /// Takes a free slot of a pool that keeps origins, for a message with these.
    #[cold]
    pub(crate) fn take_closely(&mut self, origins: &Origins) -> Option<TensorMut> {
        let inner = self.inner();
        if !inner.has_origins() {
            return None;
        }
        let at = |offset: usize| (self.next as usize + offset) % inner.slots;
        let slot = (0..inner.slots).map(at).find(|slot| is_free(inner.refs(*slot)))?;
        // SAFETY: this is the owner, and the slot, one of `slots`, was free just now.
        let tensor = unsafe { Inner::lend(inner.row(slot), inner.slot_data(slot)) };
        // SAFETY: this is the only reference to the slot.
        unsafe { inner.set_origins(tensor.0.row, origins) };
        self.next = slot as u32 + 1;
        Some(tensor)
    }

    /// As [`Pool::take`], for a pool without origins, and without the error.
    #[inline]
    pub(crate) fn take_slot(&mut self) -> Option<TensorMut> {
        let inner = self.inner();
        // Usually the next slot is free: slots are released in the order in which they were taken.
        let mut slot = self.cursor as usize;
        let mut row = inner.row(slot);
        // SAFETY: a row of the table, whose counts are atomics. Read through the row, which avoids
        // another read of the table pointer.
        if !is_free(unsafe { &(*row.as_ptr()).refs }) {
            slot = self.search()?;
            row = inner.row(slot);
        }
        // SAFETY: this is the owner, and the slot was free just now: it is one of `slots`.
        let tensor = unsafe { Inner::lend(row, inner.slot_data(slot)) };
        let next = slot + 1;
        self.cursor = if next == inner.slots { 0 } else { next as u32 };
        Some(tensor)
    }

    /// Takes up to `most` free slots, as long as they follow each other in memory; none from a pool
    /// that keeps origins.
    pub(crate) fn take_run(&mut self, most: usize) -> FreeRun<'_> {
        // SAFETY: the guard, which stays borrowed, keeps `Inner` alive.
        let inner = unsafe { self.inner.0.as_ref() };
        let slot = self.cursor as usize;
        let left = most.min(inner.slots - slot);
        // SAFETY: the cursor is one of `slots`, or the one behind the last.
        let data = unsafe { inner.slot_data(slot) };
        // A pool without a slot at the cursor has none to give, and so no row that is read.
        let row = if left > 0 { inner.row(slot) } else { inner.table.cast() };
        FreeRun { cursor: &mut self.cursor, inner, row, data, taken: 0, left }
    }

    #[cold]
    fn search(&self) -> Option<usize> {
        if self.inner().has_origins() {
            return None;
        }
        (0..self.slots()).map(|i| self.wrapped(i)).find(|slot| is_free(self.inner().refs(*slot)))
    }

    #[cold]
    pub(crate) fn is_empty_error(&self) -> TensorError {
        TensorError::PoolEmpty { pool: self.inner().name.clone(), slots: self.slots() }
    }

    /// Whether a tensor is of this pool.
    pub(crate) fn is_home_of(&self, inner: &Inner) -> bool {
        std::ptr::eq(self.inner(), inner)
    }

    /// Returns the bytes of all slots and headers.
    pub fn bytes(&self) -> usize {
        let inner = self.inner();
        let beside = inner.lens.len() * size_of::<Lens>() + inner.origins.len() * size_of::<u64>();
        inner.layout.size() + size_of_val(inner.table()) + beside
    }

    /// The dense bytes of up to `rows` rows of a slot from this one on, for a backend to write.
    pub(crate) fn batch_bytes(slot: &mut TensorMut, rows: usize) -> &mut [u8] {
        // SAFETY: `slot` is the only handle to its slot and is borrowed mutably; its rows are
        // contiguous.
        unsafe {
            let inner = PoolRow::pool(slot.0.row);
            let rows = rows.min(PoolRow::rows_on(slot.0.row));
            (0..rows).for_each(|at| _ = slot.0.row.add(at).as_ref().bytes.writing());
            std::slice::from_raw_parts_mut(slot.0.data.as_ptr(), rows * inner.row_bytes)
        }
    }

    /// Turns a written slot into one tensor per row from this one on, each with its header and, if
    /// tracked, its origins; the slot is free when all are dropped.
    pub(crate) fn rows(slot: TensorMut, headers: impl Iterator<Item = Header>, origins: &[Origins]) -> SlotRows {
        let (first, data) = (slot.0.row, slot.0.data);
        // SAFETY: `slot` is a reference to its slot.
        let (inner, most) = unsafe { (PoolRow::pool(first), PoolRow::rows_on(first)) };
        let mut count = 0;
        for header in headers.take(most) {
            // SAFETY: `count` is below the number of rows from this one on, which are contiguous;
            // `slot` is the only handle to them.
            unsafe {
                let row = first.add(count);
                *PoolRow::header_mut(row) = header;
                if let Some(origins) = origins.get(count) {
                    inner.set_origins(row, origins);
                }
            }
            count += 1;
        }
        if count > 0 {
            // SAFETY: `slot` is a reference to its slot. Relaxed: there is no other holder yet.
            unsafe { PoolRow::refs(first) }.store(count as u32, Ordering::Relaxed);
            // Its reference is now that of the first row.
            std::mem::forget(slot);
        }
        SlotRows { row: first, data, row_bytes: inner.row_bytes, left: count }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.inner().name).field("slots", &self.slots()).finish()
    }
}

/// Bytes of a slot with `rows` messages: rows are dense, slots are aligned.
pub(crate) fn slot_bytes(spec: &PortSpec, rows: usize) -> Option<usize> {
    spec.max_bytes()?.checked_mul(rows)?.checked_next_multiple_of(ALIGN)
}

/// An empty list with capacity for `n`, if the system has the memory.
fn reserved<T>(n: usize) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(n).is_ok().then_some(list)
}

/// Whether a [`Shape`] and a row's lengths can represent every message of this spec. A slot is
/// sized by the spec and accessed by the shape, so the two must not differ.
fn is_representable(spec: &PortSpec) -> bool {
    let bounds = spec.shape.iter().filter_map(|dim| if let Dim::AtMost(bound) = dim { Some(*bound) } else { None });
    spec.shape.len() <= MAX_RANK && bounds.clone().count() <= MAX_DYNAMIC && bounds.max() <= Some(u32::MAX as usize)
}

/// Bytes of a whole pool in host memory, as printed in the plan; `None` if it cannot be made.
pub(crate) fn pool_bytes(spec: &PortSpec, slots: usize, rows: usize, origins: usize) -> Option<usize> {
    if !is_representable(spec) {
        return None;
    }
    let meta = slots.checked_mul(rows)?.checked_mul(size_of::<PoolRow>() + origins * size_of::<u64>())?;
    let data = slot_bytes(spec, rows)?.checked_mul(slots)?.max(ALIGN);
    // On a device, a pool has only its rows here.
    let data = if matches!(spec.memory, Memory::Device(_)) { ALIGN } else { data };
    data.checked_add(meta)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
