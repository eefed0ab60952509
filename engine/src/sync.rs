//! The only names of atomics in the engine: the real ones, or loom's under `--cfg loom`, so that every protocol built
//! on them can be model-checked as it stands.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::thread;

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
    thread,
};

use crossbeam_utils::CachePadded;

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

/// A value alone on its cache lines.
pub(crate) type Padded<T> = CachePadded<T>;
