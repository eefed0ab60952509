//! The only names of atomics in the engine: the real ones, or loom's under `--cfg loom`, so that every protocol built
//! on them can be model-checked as it stands; and, for the same reason, of what lies behind the pools' counts.

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

/// For what is used through a trait, which loom's own cannot be; no protocol rests on it.
pub(crate) use std::sync::Arc as DynArc;

/// A counter with one writer and any number of readers: no read-modify-write, exact for the writer, recent for others.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the one writer may call it.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes away of what was added; only the one writer may call it.
    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Adds one and says what that makes; only the one writer may call it.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        let n = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(n, Ordering::Relaxed);
        n
    }

    /// Sets; only the one writer may call it.
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory whose readers and writers are kept apart by a protocol. Loom reports where one of them begins before another has
/// come to its end by that protocol; otherwise this is the cell alone.
#[derive(Debug)]
pub(crate) struct Watched<T>(UnsafeCell<T>);

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Watched(UnsafeCell::new(value))
    }

    /// To be read by the caller until it next lets go of what entitles it to.
    #[inline]
    pub(crate) fn reading(&self) -> *const T {
        #[cfg(loom)]
        return self.0.with(|at| at);
        #[cfg(not(loom))]
        self.0.get()
    }

    /// To be written by the caller until it next lets go of what entitles it to.
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
