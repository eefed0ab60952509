//! Edges between a graph and the program around it: one end belongs to a stage, the other to a
//! handle.
//!
//! The same rings, counters and guarantees as between workers, without runs: the ledger does not
//! cover what the program does with a message before or after the graph. Both ends may move between
//! threads, and neither allocates.

use super::overflow::put_evicting;
use super::{EdgeShared, EdgeState, FAILED, FINISHED, Half, OPEN, Reason, Remains};
use crate::base::policy::WhenFull;
use crate::host::sync::{Arc, AtomicBool, Ordering};
use crate::host::wait::Bell;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;

/// State shared by both ends of an outer edge and the report.
#[derive(Clone)]
pub(crate) struct OuterParams {
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) shared: Arc<EdgeShared>,
    /// The consumer is gone.
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) producer_bell: Arc<Bell>,
    pub(crate) consumer_bell: Arc<Bell>,
}

impl OuterParams {
    /// Closes the producer's end. Only the first call counts.
    pub(crate) fn close(&self, failed: bool) {
        let end = if failed { FAILED } else { FINISHED };
        // Release: a reader that sees the edge closed sees everything sent before.
        let _ = self.shared.state.compare_exchange(OPEN, end, Ordering::Release, Ordering::Relaxed);
        self.consumer_bell.ring();
    }

    /// The consumer is gone.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        self.producer_bell.ring();
    }
}

enum Put<T: Payload> {
    Ring(rtrb::Producer<Message<T>>),
    Evict(Arc<ArrayQueue<Message<T>>>),
}

enum Get<T: Payload> {
    Ring(rtrb::Consumer<Message<T>>),
    Evict(Arc<ArrayQueue<Message<T>>>),
}

/// The producer's end. If dropped without being closed, it counts as failed.
pub(crate) struct OuterTx<T: Payload> {
    params: OuterParams,
    queue: Put<T>,
    dirty: bool,
}

/// The consumer's end.
pub(crate) struct OuterRx<T: Payload> {
    params: OuterParams,
    queue: Get<T>,
    dirty: bool,
}

pub(crate) fn outer<T: Payload>(params: &OuterParams) -> (OuterTx<T>, OuterRx<T>) {
    let (put, get) = if params.when_full.evicts() {
        let queue = Arc::new(ArrayQueue::new(params.capacity));
        (Put::Evict(queue.clone()), Get::Evict(queue))
    } else {
        let (tx, rx) = rtrb::RingBuffer::new(params.capacity);
        (Put::Ring(tx), Get::Ring(rx))
    };
    let tx = OuterTx { params: params.clone(), queue: put, dirty: false };
    (tx, OuterRx { params: params.clone(), queue: get, dirty: false })
}

impl<T: Payload> OuterTx<T> {
    fn half(&self) -> &Half {
        &self.params.shared.producer
    }

    /// How many messages are sure to be accepted; unlimited if messages may be lost.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        match &self.queue {
            Put::Ring(tx) if self.params.when_full == WhenFull::Block => tx.slots(),
            _ => usize::MAX,
        }
    }

    /// Sends a message, and counts a message lost or evicted by it.
    ///
    /// # Errors
    /// The message, uncounted, if there is no room and the policy is `block` or `fail`.
    #[inline]
    pub(crate) fn push(&mut self, message: Message<T>) -> Result<(), Message<T>> {
        match &mut self.queue {
            Put::Ring(tx) => match tx.push(message) {
                Ok(()) => {}
                Err(rtrb::PushError::Full(_)) if self.params.when_full == WhenFull::DropNewest => {
                    self.lose(Reason::FullNewest, 1);
                    return Ok(());
                }
                Err(rtrb::PushError::Full(message)) => return Err(message),
            },
            Put::Evict(queue) => {
                let one = std::iter::once(message);
                put_evicting(one, queue, self.params.when_full, &self.params.shared.producer);
            }
        }
        self.half().moved.add(1);
        self.dirty = true;
        Ok(())
    }

    /// Counts messages as sent and lost.
    pub(crate) fn lose(&self, reason: Reason, n: u64) {
        self.half().moved.add(n);
        self.half().lose(reason, n);
    }

    /// Wakes the consumer if it sleeps and messages were sent since the last call.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.consumer_bell.ring();
        }
    }

    /// Whether the consumer is gone.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.params.gone.load(Ordering::Acquire)
    }

    /// Closes the edge; `failed` if the producer has failed. Only the first call counts.
    pub(crate) fn close(&self, failed: bool) {
        self.params.close(failed);
    }
}

impl<T: Payload> Drop for OuterTx<T> {
    fn drop(&mut self) {
        self.close(true);
    }
}

impl<T: Payload> OuterRx<T> {
    /// Takes the next message. It is counted by [`OuterRx::received`], or by [`OuterRx::lose`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Message<T>> {
        let message = match &mut self.queue {
            Get::Ring(rx) => rx.pop().ok(),
            Get::Evict(queue) => queue.pop(),
        };
        self.dirty |= message.is_some();
        message
    }

    /// Messages waiting.
    pub(crate) fn len(&self) -> usize {
        match &self.queue {
            Get::Ring(rx) => rx.slots(),
            Get::Evict(queue) => queue.len(),
        }
    }

    /// Counts messages that reached their receiver.
    #[inline]
    pub(crate) fn received(&self, n: u64) {
        self.params.shared.consumer.moved.add(n);
    }

    /// Whether more messages can arrive.
    #[inline]
    pub(crate) fn state(&self) -> EdgeState {
        self.params.shared.state(|| self.len() == 0)
    }

    /// Wakes the producer if it sleeps and room was made since the last call.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.producer_bell.ring();
        }
    }

    /// Discards waiting messages and counts them as lost.
    pub(crate) fn discard(&mut self, reason: Reason) {
        let n = self.empty();
        self.params.shared.consumer.lose(reason, n);
        self.ring();
    }

    /// Marks the consumer as gone.
    pub(crate) fn leave(&self) {
        self.params.leave();
    }

    fn empty(&mut self) -> u64 {
        // At most the capacity: the producer may still be sending.
        let n = (0..self.params.capacity).map_while(|_| self.pop()).count();
        n as u64
    }
}

impl<T: Payload> Remains for OuterRx<T> {
    fn count(mut self: Box<Self>) -> u64 {
        self.empty()
    }
}
