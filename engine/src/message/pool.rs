//! Pools: the buffers of tensors, sized while planning, allocated and touched once, never grown.
//!
//! A slot is free when its reference count is zero; there is no free list. Only the owner (one [`Pool`], used by one
//! stage) takes slots, with a cursor that skips those still held; any thread shares or drops. The count is the entire
//! protocol:
//!
//! - taking: the owner reads 0 with Acquire, which orders it after every earlier reader's Release, and stores 1; no
//!   other thread changes a 0;
//! - sharing: a holder adds 1, Relaxed: its own reference keeps the count above zero;
//! - dropping: a holder that reads 1 is the last one and stores 0 with Release; otherwise it subtracts 1 with Release.
//!
//! A pool whose owner is gone while tensors are alive is freed by the last of them or, if that one was dropped at the
//! same moment as the owner, when the next owner goes. `loom_tests` check both on this code, with every part of a row
//! watched. Loom cannot see pointer provenance and use after free; Miri checks these (`.ci/miri`).

use crate::host::clock::Time;
use crate::host::footprint::Footprint;
use crate::host::sync::{AtomicBool, AtomicU32, DynArc, Mutex, OrderedCell, Ordering, alloc_zeroed, dealloc};
use crate::message::device::{Device, DeviceMemory, DevicePool, DeviceTensor};
use crate::message::origins::{NO_ORIGIN, Origin, Origins};
use crate::message::payload::Header;
use crate::message::port_spec::{DType, Dim, MAX_RANK, Memory, PortSpec};
use crate::message::tensor::{Shape, Tensor, TensorError, TensorMut};
use std::alloc::Layout;
use std::fmt;
use std::io::Write;
use std::ptr::NonNull;
use std::sync::PoisonError;

/// Number of run-time lengths a row can hold.
pub(crate) const MAX_DYNAMIC: usize = 4;
/// Most rows of a pool: 2³¹, so that a row index, and one past the last, fits in 32 bits.
const MOST_ROWS: usize = 1 << 31;
/// Most handles of a slot: half the range of its count, so that it cannot wrap unnoticed, however many threads share at
/// once. So many handles exist only if they are leaked (`mem::forget`).
const MOST_HANDLES: u32 = i32::MAX as u32;
/// Slots are aligned to pairs of cache lines, because the prefetcher fetches pairs.
const ALIGN: usize = 128;

/// The metadata of one message's place in a pool. One cache line, so that a message that changes cores moves its
/// header, its count and its pool pointer in one transfer.
#[repr(C, align(64))]
pub(crate) struct Row {
    header: OrderedCell<Header>,
    /// Number of handles to the slot; kept in its first row only.
    refs: AtomicU32,
    /// The row's index in its slot.
    index: u32,
    pool: NonNull<Inner>,
    /// Represents the row's bytes, which are not cells, for loom; zero-sized.
    bytes: OrderedCell<()>,
}

impl Row {
    /// The row's pool.
    ///
    /// # Safety
    /// The caller holds a reference to the slot for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn pool<'a>(this: NonNull<Row>) -> &'a Inner {
        // SAFETY: a row points to its pool from before the first handle is made; a pool lives as long as a handle does.
        unsafe { (*this.as_ptr()).pool.as_ref() }
    }

    /// The reference count of the slot.
    ///
    /// # Safety
    /// As [`Row::pool`].
    #[inline]
    unsafe fn refs<'a>(this: NonNull<Row>) -> &'a AtomicU32 {
        // SAFETY: the rows of a slot are contiguous, so its first is `index` rows back, and `this` was made from a
        // pointer to all of them (`Inner::table`).
        unsafe { &(*this.as_ptr().sub((*this.as_ptr()).index as usize)).refs }
    }

    /// Number of rows of the slot from this one on.
    ///
    /// # Safety
    /// As [`Row::pool`].
    unsafe fn rows_on(this: NonNull<Row>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (Row::pool(this).rows - (*this.as_ptr()).index) as usize }
    }

    /// # Safety
    /// As [`Row::pool`], and the header is not written during the result's life.
    #[inline]
    pub(crate) unsafe fn header<'a>(this: NonNull<Row>) -> &'a Header {
        // SAFETY: the caller's promise.
        unsafe { &*(*this.as_ptr()).header.reading() }
    }

    /// # Safety
    /// The caller holds the only reference to the slot and borrows it mutably for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn header_mut<'a>(this: NonNull<Row>) -> &'a mut Header {
        // SAFETY: the caller's promise.
        unsafe { &mut *(*this.as_ptr()).header.writing() }
    }

    /// Sets the header word by word: a wider read of a header in which the caller has just set a field would wait until that is in the cache.
    ///
    /// # Safety
    /// As [`Row::header_mut`].
    #[inline(always)]
    pub(crate) unsafe fn set_header(this: NonNull<Row>, header: &Header) {
        // SAFETY: the caller's promise; a header consists of words without padding.
        unsafe {
            let from = std::ptr::from_ref(header).cast::<u64>();
            let to = (*this.as_ptr()).header.writing().cast::<u64>();
            for word in 0..size_of::<Header>() / size_of::<u64>() {
                to.add(word).write(from.add(word).read_volatile());
            }
        }
    }

    /// The bytes of its elements, which begin at `data`.
    ///
    /// # Safety
    /// As [`Row::pool`]; `data` is the handle's.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(this: NonNull<Row>, data: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the row's bytes were zeroed at allocation and its length is at most the row's; the caller's is a counted
        // reference, and a slot is written only while it has a single one.
        unsafe {
            (*this.as_ptr()).bytes.reading();
            std::slice::from_raw_parts(data.as_ptr(), Row::pool(this).row_len(this))
        }
    }

    /// As [`Row::bytes`], for writing.
    ///
    /// # Safety
    /// As [`Row::header_mut`]; `data` is the handle's.
    #[inline]
    pub(crate) unsafe fn bytes_mut<'a>(this: NonNull<Row>, data: NonNull<u8>) -> &'a mut [u8] {
        // SAFETY: as for `bytes`, and the caller's reference is the only one.
        unsafe {
            (*this.as_ptr()).bytes.writing();
            std::slice::from_raw_parts_mut(data.as_ptr(), Row::pool(this).row_len(this))
        }
    }

    /// Adds a reference.
    ///
    /// # Safety
    /// As [`Row::pool`].
    #[inline]
    pub(crate) unsafe fn share(this: NonNull<Row>) {
        // SAFETY: the caller's promise. Relaxed: the caller's own reference keeps the count above zero.
        if unsafe { Row::refs(this) }.fetch_add(1, Ordering::Relaxed) > MOST_HANDLES {
            too_many_handles();
        }
    }

    /// # Safety
    /// As [`Row::pool`].
    #[inline]
    pub(crate) unsafe fn is_unique(this: NonNull<Row>) -> bool {
        // SAFETY: the caller's promise. Acquire: what other holders did before they dropped theirs happens before what
        // this one does next.
        unsafe { Row::refs(this) }.load(Ordering::Acquire) == 1
    }

    /// Releases a reference.
    ///
    /// # Safety
    /// The caller holds a reference to the slot and uses nothing of it afterwards.
    #[inline]
    pub(crate) unsafe fn release(this: NonNull<Row>) {
        // SAFETY: the pool is alive until this reference is given back.
        let (pool, refs) = unsafe { (Row::pool(this), Row::refs(this)) };
        // Checked before the reference is released: after that, another thread may free the pool. A release that misses
        // a pool being orphaned at the same moment leaves it to the next sweep.
        if pool.is_orphan() {
            release_orphan(refs);
        } else {
            release(refs);
        }
    }
}

/// Run-time lengths of one row.
type Lens = [u32; MAX_DYNAMIC];

pub(crate) struct Inner {
    name: String,
    pub(crate) dtype: DType,
    /// The type of the elements, if they lie in host memory: one comparison tells both.
    pub(crate) host_dtype: Option<DType>,
    /// Where the elements lie otherwise. Then slots have no bytes here.
    device: Option<DynArc<dyn DeviceMemory>>,
    /// Maximum length of every dim.
    pub(crate) dims: Vec<usize>,
    /// The dims that have a run-time length.
    pub(crate) dynamic: Vec<usize>,
    slots: usize,
    /// Rows per slot.
    rows: u32,
    row_bytes: usize,
    slot_bytes: usize,
    /// All rows, owned. Every pointer to a row derives from this one, so that it may be moved to the other rows of its
    /// slot.
    table: NonNull<[Row]>,
    /// By row; empty if every dim is fixed.
    lens: Box<[OrderedCell<Lens>]>,
    /// The sources whose origins are kept for each row, and the origins, row by row.
    sources: Box<[u16]>,
    origins: Box<[OrderedCell<u64>]>,
    data: NonNull<u8>,
    layout: Layout,
    /// Set when the owner is gone: the last tensor then frees the pool.
    is_orphan: AtomicBool,
    /// Represents the pool's lifetime, for loom.
    alive: OrderedCell<()>,
}

// SAFETY: `data`, `lens`, `origins` and headers are written only by the single holder of a slot and read only by
// holders; the counts that establish this are atomics (see the module's protocol).
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

impl Inner {
    /// # Safety
    /// The row is of this pool and the caller holds a reference to its slot.
    unsafe fn lens(&self, row: NonNull<Row>) -> &OrderedCell<Lens> {
        // SAFETY: both pointers are into the table (caller).
        let at = unsafe { row.offset_from(self.table.cast()) };
        &self.lens[at as usize]
    }

    #[inline]
    fn is_orphan(&self) -> bool {
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
    unsafe fn row_origins(&self, row: NonNull<Row>) -> &[OrderedCell<u64>] {
        // SAFETY: both pointers are into the table (caller).
        let at = unsafe { row.offset_from(self.table.cast()) } as usize;
        &self.origins[at * self.sources.len()..(at + 1) * self.sources.len()]
    }

    /// Visits the origins of a row's message.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    pub(crate) unsafe fn each_origin(&self, row: NonNull<Row>, see: &mut dyn FnMut(Origin)) {
        // SAFETY: the caller's promise.
        for (place, source) in unsafe { self.row_origins(row) }.iter().zip(&self.sources) {
            // SAFETY: the caller holds a reference, and entries are written only while the slot is uniquely held.
            Origin::unpacked(*source, unsafe { *place.reading() }).into_iter().for_each(&mut *see);
        }
    }

    /// Sets the origins of a row's message; sources without an entry are skipped.
    ///
    /// # Safety
    /// As [`Inner::set_len`].
    pub(crate) unsafe fn set_origins(&self, row: NonNull<Row>, origins: &Origins) {
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
    pub(crate) unsafe fn on_device(&self, row: NonNull<Row>) -> Option<DeviceTensor<'_>> {
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
    pub(crate) unsafe fn shape(&self, row: NonNull<Row>) -> Shape {
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
    pub(crate) unsafe fn set_len(&self, row: NonNull<Row>, index: usize, length: u32) {
        // SAFETY: the caller's promise.
        unsafe { (*self.lens(row).writing())[index] = length };
    }

    /// Bytes of a row's elements in host memory.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    #[inline]
    pub(crate) unsafe fn row_len(&self, row: NonNull<Row>) -> usize {
        if self.dynamic.is_empty() {
            return self.row_bytes;
        }
        // SAFETY: the caller's promise.
        unsafe { self.row_len_now(row) }
    }

    /// Out of line, so that reading a tensor of fixed shape stays small enough to be inlined into its node.
    ///
    /// # Safety
    /// As [`Inner::shape`].
    #[inline(never)]
    unsafe fn row_len_now(&self, row: NonNull<Row>) -> usize {
        if self.is_on_device() {
            return 0;
        }
        // SAFETY: the caller's promise.
        unsafe { self.shape(row) }.elements() * self.dtype.size()
    }

    #[inline]
    fn table(&self) -> &[Row] {
        // SAFETY: the table lives as long as this. Parts written while others read are cells and atomics.
        unsafe { self.table.as_ref() }
    }

    /// A slot's first row.
    ///
    /// # Panics
    /// If the row is past the end of the table.
    #[inline]
    fn row(&self, slot: usize) -> NonNull<Row> {
        let at = slot * self.rows as usize;
        assert!(at < self.table.len());
        // SAFETY: it lies in the table.
        unsafe { self.table.cast::<Row>().add(at) }
    }

    #[inline]
    fn refs(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: the table lives as long as this; counts are atomics.
        unsafe { &(*self.row(slot).as_ptr()).refs }
    }

    /// Where a slot's elements lie.
    ///
    /// # Safety
    /// The slot is one of `slots`, or the one behind the last.
    #[inline]
    unsafe fn slot_data(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise: all slots lie within the allocation.
        unsafe { self.data.add(slot * self.slot_bytes) }
    }

    /// Creates the only handle to a free slot.
    ///
    /// # Safety
    /// The caller is the owner and has checked that the slot is free; `row` is its first, and `data` where its elements lie.
    #[inline]
    unsafe fn lend(row: NonNull<Row>, data: NonNull<u8>) -> TensorMut {
        // SAFETY: the caller's promise. Relaxed: only the owner turns 0 into 1, and the handle travels to others through an edge,
        // which orders it.
        unsafe { (*row.as_ptr()).refs.store(1, Ordering::Relaxed) };
        TensorMut(Tensor { row, data })
    }

    fn is_unused(&self) -> bool {
        (0..self.slots).all(|slot| is_free(self.refs(slot)))
    }
}

/// Pools whose owners are gone while tensors live. Swept whenever an owner goes or a handle to one of them is dropped.
#[cfg(not(loom))]
static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());
#[cfg(loom)]
loom::lazy_static! {
    static ref ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());
}

struct Orphan(NonNull<Inner>);

// SAFETY: `Orphan` only frees `Inner`, which is `Send` and `Sync`.
unsafe impl Send for Orphan {}

/// Frees the orphans without remaining handles.
fn sweep(orphans: &mut Vec<Orphan>) {
    orphans.retain(|orphan| {
        // SAFETY: a listed pool is alive: it is freed here only, and leaves the list with that.
        let is_unused = unsafe { orphan.0.as_ref() }.is_unused();
        if is_unused {
            // SAFETY: no handle is left, and without an owner none can be made.
            drop(unsafe { Box::from_raw(orphan.0.as_ptr()) });
        }
        !is_unused
    });
}

#[cold]
fn release_orphan(refs: &AtomicU32) {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    release(refs);
    sweep(&mut orphans);
}

/// The count must not wrap: a slot whose count is 0 could be written while it is read. Like `Arc`, this aborts the
/// process, because a panic could be caught and the count raised further each time.
#[cold]
fn too_many_handles() -> ! {
    let _ =
        writeln!(std::io::stderr(), "limen: a tensor has {MOST_HANDLES} handles: they are leaked and never dropped");
    std::process::abort()
}

/// The dropping half of the protocol. A plain store for the last holder saves the read-modify-write.
#[inline]
fn release(count: &AtomicU32) {
    if count.load(Ordering::Acquire) == 1 {
        count.store(0, Ordering::Release);
    } else {
        count.fetch_sub(1, Ordering::Release);
    }
}

/// The taking half of the protocol.
#[inline]
fn is_free(count: &AtomicU32) -> bool {
    count.load(Ordering::Acquire) == 0
}

impl Drop for Inner {
    fn drop(&mut self) {
        #[cfg(all(test, loom))]
        self.check_unused();
        // SAFETY: `table` came from a leaked box, once, and is not used afterwards.
        drop(unsafe { Box::from_raw(self.table.as_ptr()) });
        // SAFETY: `data` was allocated with this layout, and `Inner` is freed only when no handle is left.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}

/// A pool's ownership; on drop, the pool is freed or left to the last of its tensors.
struct Guard(NonNull<Inner>);

// SAFETY: `Guard` reads and releases `Inner`, which is `Send` and `Sync`. It is not `Sync` itself: what its `Pool` does
// with `&self` is sound only while no other thread takes slots.
unsafe impl Send for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the pointer came from a leaked box; while this owner lives it is not freed.
        unsafe { self.0.as_ref() }.is_orphan.store(true, Ordering::SeqCst);
        orphans.push(Orphan(self.0));
        sweep(&mut orphans);
    }
}

/// A fixed set of equal slots and the right to take them.
pub struct Pool {
    inner: Guard,
    /// The slot to try next. In a pool with origins it stays on a row past the last, which is never free: the fast
    /// paths below find nothing there, and so need no test in pools without origins.
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
    /// If a dim is not bound, there are more than [`MAX_RANK`] dims or four run-time lengths, one of them may be 2³² or
    /// more, the size overflows, or the memory cannot be allocated.
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
                "{spec} cannot be pooled: from 0 to {MAX_RANK} dims fit, {MAX_DYNAMIC} of them with a run-time length, below 2³²"
            ));
        }
        let slot_bytes = slot_bytes(spec, rows).ok_or_else(|| format!("{spec} × {rows} has no bounded size"))?;
        let slot_bytes = if device.is_some() { 0 } else { slot_bytes };
        let dynamic: Vec<usize> = (0..spec.shape.len()).filter(|d| matches!(spec.shape[*d], Dim::AtMost(_))).collect();
        let total = slot_bytes.checked_mul(slots).filter(|b| *b <= isize::MAX as usize - ALIGN);
        let total = total.ok_or_else(|| format!("{slots} slots of {slot_bytes} bytes do not fit"))?;
        let in_all = slots.checked_mul(rows).filter(|n| (1..=MOST_ROWS).contains(n));
        if in_all.is_none() {
            return Err(format!("{slots} slots of {rows} rows of {spec} cannot be pooled"));
        }
        let layout = Layout::from_size_align(total.max(ALIGN), ALIGN).map_err(|e| e.to_string())?;
        // The small tables are reserved first, so that a refusal by the system leaves nothing to free.
        let never = if sources.is_empty() { 0 } else { rows };
        let lens_in_all = if dynamic.is_empty() { 0 } else { slots * rows };
        let (Some(mut lens), Some(mut origins), Some(mut table)) = (
            reserved::<OrderedCell<Lens>>(lens_in_all),
            (slots * rows).checked_mul(sources.len()).and_then(reserved::<OrderedCell<u64>>),
            (slots * rows).checked_add(never).and_then(reserved::<Row>),
        ) else {
            return Err(format!("the system has no memory for {slots} slots of {rows} rows of {spec}"));
        };
        // SAFETY: the layout has a size above zero.
        let Some(data) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            return Err(format!("the system has no memory for {slots} slots of {slot_bytes} bytes"));
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
        let row = |at: usize, refs: u32| Row {
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

    /// Reuses the first slots as soon as they are free. Right if all buffers stay on one thread: those slots are in its
    /// L1 cache. Wrong if they move between cores: the slots freed last are in another core's cache.
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

    /// Adds the pool and its first slots, one of which the next message takes: the first, if the pool returns to it.
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
        // SAFETY: a row of the table, whose counts are atomics. Read through the row, which avoids another read of the
        // table pointer.
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

    /// Takes up to `most` free slots, as long as they follow each other in memory; none from a pool that keeps origins.
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
        // SAFETY: `slot` is the only handle to its slot and is borrowed mutably; its rows are contiguous.
        unsafe {
            let inner = Row::pool(slot.0.row);
            let rows = rows.min(Row::rows_on(slot.0.row));
            (0..rows).for_each(|at| _ = slot.0.row.add(at).as_ref().bytes.writing());
            std::slice::from_raw_parts_mut(slot.0.data.as_ptr(), rows * inner.row_bytes)
        }
    }

    /// Turns a written slot into one tensor per row from this one on, each with its header and, if tracked, its
    /// origins; the slot is free when all are dropped.
    pub(crate) fn rows(slot: TensorMut, headers: impl Iterator<Item = Header>, origins: &[Origins]) -> Rows {
        let (first, data) = (slot.0.row, slot.0.data);
        // SAFETY: `slot` is a reference to its slot.
        let (inner, most) = unsafe { (Row::pool(first), Row::rows_on(first)) };
        let mut count = 0;
        for header in headers.take(most) {
            // SAFETY: `count` is below the number of rows from this one on, which are contiguous; `slot` is the only
            // handle to them.
            unsafe {
                let row = first.add(count);
                *Row::header_mut(row) = header;
                if let Some(origins) = origins.get(count) {
                    inner.set_origins(row, origins);
                }
            }
            count += 1;
        }
        if count > 0 {
            // SAFETY: `slot` is a reference to its slot. Relaxed: there is no other holder yet.
            unsafe { Row::refs(first) }.store(count as u32, Ordering::Relaxed);
            // Its reference is now that of the first row.
            std::mem::forget(slot);
        }
        Rows { row: first, data, row_bytes: inner.row_bytes, left: count }
    }
}

/// The rows of a slot as tensors. Each is already counted; those not taken are released on drop.
#[derive(Debug)]
pub(crate) struct Rows {
    row: NonNull<Row>,
    data: NonNull<u8>,
    row_bytes: usize,
    left: usize,
}

impl Iterator for Rows {
    type Item = Tensor;
    fn next(&mut self) -> Option<Tensor> {
        self.left = self.left.checked_sub(1)?;
        let tensor = Tensor { row: self.row, data: self.data };
        // SAFETY: the next row, or one past the last: `tensor` keeps the slot, and the headers and the bytes of rows
        // are contiguous.
        let next = unsafe { (self.row.add(1), self.data.add(self.row_bytes)) };
        (self.row, self.data) = next;
        Some(tensor)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// Free slots that follow each other, as they are taken one by one.
pub(crate) struct FreeRun<'a> {
    cursor: &'a mut u32,
    inner: &'a Inner,
    /// The first row of the next slot, and where its elements lie.
    row: NonNull<Row>,
    data: NonNull<u8>,
    taken: usize,
    /// Slots from there to the end of the pool, or as many as are wanted.
    left: usize,
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
        // SAFETY: the owner is borrowed, the slot was free just now, and both pointers are those of one slot.
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

/// Whether a [`Shape`] and a row's lengths can represent every message of this spec. A slot is sized by the spec and
/// accessed by the shape, so the two must not differ.
fn is_representable(spec: &PortSpec) -> bool {
    let bounds = spec.shape.iter().filter_map(|dim| if let Dim::AtMost(bound) = dim { Some(*bound) } else { None });
    spec.shape.len() <= MAX_RANK && bounds.clone().count() <= MAX_DYNAMIC && bounds.max() <= Some(u32::MAX as usize)
}

/// Bytes of a whole pool in host memory, as printed in the plan; `None` if it cannot be made.
pub(crate) fn pool_bytes(spec: &PortSpec, slots: usize, rows: usize, origins: usize) -> Option<usize> {
    if !is_representable(spec) {
        return None;
    }
    let meta = slots.checked_mul(rows)?.checked_mul(size_of::<Row>() + origins * size_of::<u64>())?;
    let data = slot_bytes(spec, rows)?.checked_mul(slots)?.max(ALIGN);
    // On a device, a pool has only its rows here.
    let data = if matches!(spec.memory, Memory::Device(_)) { ALIGN } else { data };
    data.checked_add(meta)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
