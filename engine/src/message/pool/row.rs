//! A row: the metadata of one message's place in a pool, and the count of its slot's handles.

use super::Inner;
use super::orphans::release_orphan;
use crate::host::sync::{AtomicU32, OrderedCell, Ordering};
use crate::message::payload::Header;
use std::io::Write;
use std::ptr::NonNull;

/// Most handles of a slot: half the range of its count, so that it cannot wrap unnoticed, however
/// many threads share at once. So many handles exist only if they are leaked (`mem::forget`).
const MOST_HANDLES: u32 = i32::MAX as u32;
/// The metadata of one message's place in a pool. One cache line, so that a message that changes
/// cores moves its header, its count and its pool pointer in one transfer.
#[repr(C, align(64))]
pub(crate) struct PoolRow {
    pub(super) header: OrderedCell<Header>,
    /// Number of handles to the slot; kept in its first row only.
    pub(super) refs: AtomicU32,
    /// The row's index in its slot.
    pub(super) index: u32,
    pub(super) pool: NonNull<Inner>,
    /// Represents the row's bytes, which are not cells, for loom; zero-sized.
    pub(super) bytes: OrderedCell<()>,
}

impl PoolRow {
    /// The row's pool.
    ///
    /// # Safety
    /// The caller holds a reference to the slot for as long as the result lives.
    #[inline]
    pub(crate) unsafe fn pool<'a>(this: NonNull<PoolRow>) -> &'a Inner {
        // SAFETY: a row points to its pool from before the first handle is made; a pool lives as
        // long as a handle does.
        unsafe { (*this.as_ptr()).pool.as_ref() }
    }

    /// The reference count of the slot.
    ///
    /// # Safety
    /// As [`PoolRow::pool`].
    #[inline]
    pub(super) unsafe fn refs<'a>(this: NonNull<PoolRow>) -> &'a AtomicU32 {
        // SAFETY: the rows of a slot are contiguous, so its first is `index` rows back, and `this`
        // was made from a pointer to all of them (`Inner::table`).
        unsafe { &(*this.as_ptr().sub((*this.as_ptr()).index as usize)).refs }
    }

    /// Number of rows of the slot from this one on.
    ///
    /// # Safety
    /// As [`PoolRow::pool`].
    pub(super) unsafe fn rows_on(this: NonNull<PoolRow>) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (PoolRow::pool(this).rows - (*this.as_ptr()).index) as usize }
    }

    /// # Safety
    /// As [`PoolRow::pool`], and the header is not written during the result's life.
    #[inline]
    pub(crate) unsafe fn header<'a>(this: NonNull<PoolRow>) -> &'a Header {
        // SAFETY: the caller's promise.
        unsafe { &*(*this.as_ptr()).header.reading() }
    }

    /// # Safety
    /// The caller holds the only reference to the slot and borrows it mutably for as long as the
    /// result lives.
    #[inline]
    pub(crate) unsafe fn header_mut<'a>(this: NonNull<PoolRow>) -> &'a mut Header {
        // SAFETY: the caller's promise.
        unsafe { &mut *(*this.as_ptr()).header.writing() }
    }

    /// Sets the header word by word: a wider read of a header in which the caller has just set a
    /// field would wait until that is in the cache.
    ///
    /// # Safety
    /// As [`PoolRow::header_mut`].
    #[inline(always)]
    pub(crate) unsafe fn set_header(this: NonNull<PoolRow>, header: &Header) {
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
    /// As [`PoolRow::pool`]; `data` is the handle's.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(this: NonNull<PoolRow>, data: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the row's bytes were zeroed at allocation and its length is at most the row's;
        // the caller's is a counted reference, and a slot is written only while it has a single
        // one.
        unsafe {
            (*this.as_ptr()).bytes.reading();
            std::slice::from_raw_parts(data.as_ptr(), PoolRow::pool(this).row_len(this))
        }
    }

    /// As [`PoolRow::bytes`], for writing.
    ///
    /// # Safety
    /// As [`PoolRow::header_mut`]; `data` is the handle's.
    #[inline]
    pub(crate) unsafe fn bytes_mut<'a>(this: NonNull<PoolRow>, data: NonNull<u8>) -> &'a mut [u8] {
        // SAFETY: as for `bytes`, and the caller's reference is the only one.
        unsafe {
            (*this.as_ptr()).bytes.writing();
            std::slice::from_raw_parts_mut(data.as_ptr(), PoolRow::pool(this).row_len(this))
        }
    }

    /// Adds a reference.
    ///
    /// # Safety
    /// As [`PoolRow::pool`].
    #[inline]
    pub(crate) unsafe fn share(this: NonNull<PoolRow>) {
        // SAFETY: the caller's promise. Relaxed: the caller's own reference keeps the count above
        // zero.
        if unsafe { PoolRow::refs(this) }.fetch_add(1, Ordering::Relaxed) > MOST_HANDLES {
            too_many_handles();
        }
    }

    /// # Safety
    /// As [`PoolRow::pool`].
    #[inline]
    pub(crate) unsafe fn is_unique(this: NonNull<PoolRow>) -> bool {
        // SAFETY: the caller's promise. Acquire: what other holders did before they dropped theirs
        // happens before what this one does next.
        unsafe { PoolRow::refs(this) }.load(Ordering::Acquire) == 1
    }

    /// Releases a reference.
    ///
    /// # Safety
    /// The caller holds a reference to the slot and uses nothing of it afterwards.
    #[inline]
    pub(crate) unsafe fn release(this: NonNull<PoolRow>) {
        // SAFETY: the pool is alive until this reference is given back.
        let (pool, refs) = unsafe { (PoolRow::pool(this), PoolRow::refs(this)) };
        // Checked before the reference is released: after that, another thread may free the pool. A
        // release that misses a pool being orphaned at the same moment leaves it to the next sweep.
        if pool.is_orphan() {
            release_orphan(refs);
        } else {
            release(refs);
        }
    }
}

/// The count must not wrap: a slot whose count is 0 could be written while it is read. Like `Arc`,
/// this aborts the process, because a panic could be caught and the count raised further each time.
#[cold]
fn too_many_handles() -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "limen: the program must drop handles of tensors, found {MOST_HANDLES} handles of one tensor"
    );
    std::process::abort()
}

/// The dropping half of the protocol. A plain store for the last holder saves the
/// read-modify-write.
#[inline]
pub(super) fn release(count: &AtomicU32) {
    if count.load(Ordering::Acquire) == 1 {
        count.store(0, Ordering::Release);
    } else {
        count.fetch_sub(1, Ordering::Release);
    }
}

/// The taking half of the protocol.
#[inline]
pub(super) fn is_free(count: &AtomicU32) -> bool {
    count.load(Ordering::Acquire) == 0
}
