//! The only names of atomics in the engine: std's, or loom's under `--cfg loom`, so that every
//! protocol built on them can be model-checked unchanged; likewise for the memory behind the pools'
//! counts.

#[cfg(not(loom))]
pub(crate) use std::{
    alloc::{alloc_zeroed, dealloc},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread,
};

#[cfg(loom)]
pub(crate) use loom::{
    alloc::{alloc_zeroed, dealloc},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread,
};

use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// For trait objects, which loom's `Arc` does not support; no protocol depends on it.
pub(crate) use std::sync::Arc as DynArc;

/// A counter with one writer and any number of readers: no read-modify-write, exact for the writer,
/// slightly stale for readers.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the single writer may call it.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`. Only the single writer may call it.
    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Adds 1 and returns the new value. Only the single writer may call it.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        let n = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(n, Ordering::Relaxed);
        n
    }

    /// Sets the value. Only the single writer may call it.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory to which a protocol grants access. Under loom, overlapping access is reported; otherwise
/// this is the bare cell.
#[derive(Debug)]
pub(crate) struct OrderedCell<T>(UnsafeCell<T>);

impl<T> OrderedCell<T> {
    pub(crate) fn new(value: T) -> Self {
        OrderedCell(UnsafeCell::new(value))
    }

    /// Returns a pointer for reading. The caller may use it until it gives up its right to read.
    #[inline]
    pub(crate) fn reading(&self) -> *const T {
        #[cfg(loom)]
        return self.0.with(|at| at);
        #[cfg(not(loom))]
        self.0.get()
    }

    /// Returns a pointer for writing. The caller may use it until it gives up its right to write.
    #[inline]
    pub(crate) fn writing(&self) -> *mut T {
        #[cfg(loom)]
        return self.0.with_mut(|at| at);
        #[cfg(not(loom))]
        self.0.get()
    }
}

/// A value alone on its cache lines.
pub(crate) type Padded<T> = CachePadded<T>;
