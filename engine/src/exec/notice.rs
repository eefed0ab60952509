//! What workers notice and tell: small values in a queue of fixed size. Names, words and the wall clock's time are added by who reads
//! (`run::events`).

use crate::base::policy::OnError;
use crate::edge::Reason;
use crate::host::clock::Time;
use crate::host::sync::{AtomicBool, AtomicU64, Ordering};
use crate::host::wait::Bell;
use crossbeam_queue::ArrayQueue;

/// Events that wait to be read; more are counted only.
const QUEUE: usize = 1024;
/// Bytes kept of what a failed call said.
const TEXT: usize = 256;

/// What happened, as whoever noticed it knows it: nodes and edges by their indices.
#[derive(Clone, Debug)]
pub(crate) enum Noticed {
    Failed { node: usize, call: &'static str, number: u64, text: Box<str>, panicked: bool, then: OnError },
    Restarting { node: usize, after: u64 },
    Restarted { node: usize },
    Detached { node: usize },
    Gap { node: usize, edge: usize, every: u64 },
    Hangs { node: usize },
    Overdue { node: usize },
    Returned { node: usize, took: u64 },
    Lost { edge: usize, reason: Reason, count: u64, of: u64, within: u64 },
    ClockSet { by: i64 },
    Refused { text: Box<str> },
}

/// As much of a text as an event carries.
pub(crate) fn shortened(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT)].into()
}

/// The queue between those who notice and those who read.
pub(crate) struct EventQueue {
    queue: ArrayQueue<(Time, Noticed)>,
    lost: AtomicU64,
    /// Rung for whoever waits for an event.
    pub(crate) bell: Bell,
    /// The run has ended and nothing more will come.
    over: AtomicBool,
}

/// Bytes of the queue, for the plan's sum.
pub(crate) fn queue_bytes() -> usize {
    QUEUE * (size_of::<(Time, Noticed)>() + size_of::<usize>())
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

    /// Puts in what is only made where there is a place for it.
    #[cold]
    pub(crate) fn push(&self, time: Time, noticed: impl FnOnce() -> Noticed) {
        if self.queue.is_full() || self.queue.push((time, noticed())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.bell.ring();
    }

    /// The oldest that waits.
    pub(crate) fn pop(&self) -> Option<(Time, Noticed)> {
        self.queue.pop()
    }

    /// How many found no place since this was last asked.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Whether the run has ended, so that nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The run has ended.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.bell.ring();
    }
}
