//! The end of a pool: with its owner, or with the last of its tensors if some are alive then.

use super::Inner;
use super::row::release;
use crate::host::sync::{AtomicU32, Mutex, Ordering};
use std::ptr::NonNull;
use std::sync::PoisonError;

/// A pool's ownership; on drop, the pool is freed or left to the last of its tensors.
pub(super) struct Guard(pub(super) NonNull<Inner>);

// SAFETY: `Guard` reads and releases `Inner`, which is `Send` and `Sync`. It is not `Sync` itself:
// what its `Pool` does with `&self` is sound only while no other thread takes slots.
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

/// Pools whose owners are gone while tensors live. Swept whenever an owner goes or a handle to one
/// of them is dropped.
#[cfg(not(loom))]
pub(super) static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());
#[cfg(loom)]
loom::lazy_static! {
    pub(super) static ref ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());
}

pub(super) struct Orphan(NonNull<Inner>);

// SAFETY: `Orphan` only frees `Inner`, which is `Send` and `Sync`.
unsafe impl Send for Orphan {}

/// Frees the orphans without remaining handles.
pub(super) fn sweep(orphans: &mut Vec<Orphan>) {
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
pub(super) fn release_orphan(refs: &AtomicU32) {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    release(refs);
    sweep(&mut orphans);
}
