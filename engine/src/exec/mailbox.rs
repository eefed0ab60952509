//! Hands copies of a worker's histograms to a reader, through one preallocated buffer in a queue of
//! capacity one.

use crate::host::sync::{AtomicBool, Ordering, Padded};
use crate::ledger::{Term, copied_words};
use crossbeam_queue::ArrayQueue;
use std::sync::OnceLock;

/// What a histogram describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Node(usize),
    /// From a source to a sink, both as node indices.
    Path(usize, usize),
}

/// One histogram of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistogramPart {
    pub(crate) subject: Subject,
    pub(crate) term: Term,
    pub(crate) digits: u8,
}

/// A copy of a worker's histograms, as [`Copies`](crate::ledger::Copies) reads it.
pub(crate) struct Copied {
    pub(crate) at: u64,
    /// How often the worker had cleared its histograms by then.
    pub(crate) epoch: u64,
    pub(crate) words: Box<[u64]>,
}

/// Hands copies of a worker's histograms to a reader.
pub(crate) struct Mailbox {
    pub(crate) asked: Padded<AtomicBool>,
    /// The worker has ended and will not answer.
    pub(crate) is_closed: AtomicBool,
    pub(crate) empty: ArrayQueue<Box<[u64]>>,
    pub(crate) full: ArrayQueue<Copied>,
    /// The histograms in the order of a copy; known once the worker's nodes are built.
    pub(crate) parts: OnceLock<Vec<HistogramPart>>,
}

impl Default for Mailbox {
    fn default() -> Self {
        Mailbox {
            asked: Padded::new(AtomicBool::new(false)),
            is_closed: AtomicBool::new(false),
            empty: ArrayQueue::new(1),
            full: ArrayQueue::new(1),
            parts: OnceLock::new(),
        }
    }
}

impl Mailbox {
    /// Allocates the buffer for copies, once all of the worker's histograms exist.
    pub(crate) fn open(&self, parts: Vec<HistogramPart>) {
        let words = parts.iter().map(|part| copied_words(part.digits)).sum();
        if self.parts.set(parts).is_ok() {
            let is_put = self.empty.push(vec![0; words].into_boxed_slice()).is_ok();
            debug_assert!(is_put, "the queue has room for the one buffer");
        }
    }

    /// Whether a copy has been requested.
    #[inline]
    pub(crate) fn is_asked(&self) -> bool {
        // Acquire: pairs with the request, which follows the return of the buffer.
        self.asked.load(Ordering::Acquire)
    }

    /// Takes the buffer to copy into.
    pub(crate) fn begin(&self) -> Option<Box<[u64]>> {
        let words = self.empty.pop();
        if words.is_none() {
            self.asked.store(false, Ordering::Relaxed);
        }
        words
    }

    /// Hands over a complete copy.
    pub(crate) fn answer(&self, at: u64, epoch: u64, words: Box<[u64]>) {
        self.asked.store(false, Ordering::Relaxed);
        let is_put = self.full.push(Copied { at, epoch, words }).is_ok();
        debug_assert!(is_put, "there is only one buffer");
    }

    /// Marks the worker as ended.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether an answer is still to come.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_asked() && !self.is_closed.load(Ordering::Relaxed)
    }
}
