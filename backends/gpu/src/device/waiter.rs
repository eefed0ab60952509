//! The thread that waits for a device, and wakes workers.

use limen::backend::Helpers;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A thread that waits for work of a device: workers that have other stages do not. It is started
/// when a worker first asks for it.
pub(crate) struct Waiter<E: Send + 'static> {
    name: &'static str,
    /// Blocks until the work before an event has ended.
    wait: Box<dyn Fn(E) + Send + Sync>,
    waits: Mutex<EventWaits<E>>,
    more: Condvar,
}

struct EventWaits<E> {
    /// In the order in which workers went to sleep; no longer than the calls that they wait for.
    events: VecDeque<(E, Helpers)>,
    has_thread: bool,
    is_closed: bool,
}

impl<E: Send + 'static> fmt::Debug for Waiter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<E: Send + 'static> Waiter<E> {
    pub(crate) fn new(name: &'static str, wait: impl Fn(E) + Send + Sync + 'static) -> Arc<Self> {
        let waits = Mutex::new(EventWaits { events: VecDeque::new(), has_thread: false, is_closed: false });
        Arc::new(Waiter { name, wait: Box::new(wait), waits, more: Condvar::new() })
    }

    fn waits(&self) -> MutexGuard<'_, EventWaits<E>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a worker behind an event; without a thread for that, the worker looks again soon.
    pub(crate) fn add(self: &Arc<Self>, event: E, helpers: &Helpers) {
        let mut waits = self.waits();
        if !waits.has_thread {
            let waiter = self.clone();
            if helpers.spawn(self.name, move || waiter.run()).is_err() {
                return;
            }
            waits.has_thread = true;
        }
        waits.events.push_back((event, helpers.clone()));
        self.more.notify_one();
    }

    fn run(&self) {
        loop {
            let mut waits = self.waits();
            while waits.events.is_empty() && !waits.is_closed {
                waits = self.more.wait(waits).unwrap_or_else(PoisonError::into_inner);
            }
            let Some((event, helpers)) = waits.events.pop_front() else { return };
            drop(waits);
            (self.wait)(event);
            helpers.wake();
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.waits().is_closed = true;
        self.more.notify_all();
    }
}
