//! Events from the workers: small values in a bounded queue. The reader (`run::events`) adds names,
//! text and wall-clock time.

use crate::base::policy::OnError;
use crate::edge::Reason;
use crate::host::clock::Time;
use crate::host::cpu_throttle::CpuThrottle;
use crate::host::sync::{AtomicBool, AtomicU64, Ordering};
use crate::host::wait::Bell;
use crossbeam_queue::ArrayQueue;

/// Capacity of the event queue; events beyond it are only counted.
const QUEUE: usize = 1024;
/// Bytes kept of a failed call's error text.
const TEXT: usize = 256;

/// An event as recorded where it happened: nodes and edges by index.
#[derive(Clone, Debug)]
pub(crate) enum WorkerEvent {
    Failed { node: usize, call: &'static str, number: u64, text: Box<str>, panicked: bool, then: OnError },
    Restarting { node: usize, after: u64 },
    Restarted { node: usize },
    Detached { node: usize },
    Gap { node: usize, edge: usize, every: u64 },
    GapEnded { node: usize, edge: usize, after: u64 },
    Stale { node: usize, limit: u64 },
    StaleEnded { node: usize, after: u64 },
    Hangs { node: usize },
    Overdue { node: usize },
    Returned { node: usize, took: u64 },
    Lost { edge: usize, reason: Reason, count: u64, of: u64, within: u64, slowest: Box<str> },
    LostInside { node: usize, reason: &'static str, count: u64, of: u64, within: u64, first: Box<str> },
    Incidents { node: usize, what: &'static str, count: u64, of: u64, within: u64, first: Box<str> },
    Recovered { node: usize, reason: &'static str, lost: u64 },
    NotConnected { node: usize, why: Box<str> },
    Disconnected { node: usize, count: u64, why: Box<str> },
    Reconnected { node: usize },
    SteppedBack { node: usize, count: u64, by: u64 },
    Silent { path: usize, time: u64 },
    SilenceEnded { path: usize, after: u64 },
    Starves { node: usize, edge: usize, time: u64 },
    StarvingEnded { node: usize, after: u64 },
    Missed { path: usize, count: u64, of: u64, within: u64, slowest: Box<str> },
    ClockSet { by: i64 },
    CpuThrottled { by: CpuThrottle },
    Refused { text: Box<str> },
}

/// Truncates a text to the length an event carries.
pub(crate) fn shortened(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT)].into()
}

/// The queue between the threads that record events and the one that reads them.
pub(crate) struct EventQueue {
    queue: ArrayQueue<(Time, WorkerEvent)>,
    lost: AtomicU64,
    /// Rung when an event arrives or the run ends.
    pub(crate) bell: Bell,
    /// The run has ended; no more events will come.
    over: AtomicBool,
}

/// Size of the queue in bytes, for the plan's memory total.
pub(crate) fn queue_bytes() -> usize {
    QUEUE * (size_of::<(Time, WorkerEvent)>() + size_of::<usize>())
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        EventQueue {
            queue: ArrayQueue::new(QUEUE),
            lost: AtomicU64::new(0),
            bell: Bell::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Pushes an event. `event` is called only if the queue has room.
    #[cold]
    pub(crate) fn push(&self, time: Time, event: impl FnOnce() -> WorkerEvent) {
        if self.queue.is_full() || self.queue.push((time, event())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.bell.ring();
    }

    /// The oldest queued event.
    pub(crate) fn pop(&self) -> Option<(Time, WorkerEvent)> {
        self.queue.pop()
    }

    /// Events dropped because the queue was full, since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Whether the run has ended; no more events will come.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Marks the end of the run.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.bell.ring();
    }
}
