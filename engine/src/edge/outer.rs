//! Edges between a graph and the program around it: one end belongs to a stage, the other to a handle.
//!
//! The same rings, counters and promises as between workers, without runs: what the program has to do with a message before
//! or after the graph is not the ledger's business. Both ends may travel between threads, and neither allocates.

use super::{FAILED, FINISHED, Half, OPEN, Reason, Remains, Shared, State, evicted};
use crate::base::policy::WhenFull;
use crate::host::sync::{Arc, AtomicBool, Ordering};
use crate::host::wait::Bell;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;

/// What both ends of an outer edge, and the report, share.
#[derive(Clone)]
pub(crate) struct OuterParams {
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) shared: Arc<Shared>,
    /// Nobody will take any more.
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) producer_bell: Arc<Bell>,
    pub(crate) consumer_bell: Arc<Bell>,
}

impl OuterParams {
    /// No more will come. The first word counts.
    pub(crate) fn close(&self, failed: bool) {
        let end = if failed { FAILED } else { FINISHED };
        // Release: whoever sees the edge closed sees everything that was sent before.
        let _ = self.shared.state.compare_exchange(OPEN, end, Ordering::Release, Ordering::Relaxed);
        self.consumer_bell.ring();
    }

    /// Nobody will take any more.
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

/// The producer's end. Dropped without a word, it counts as having failed.
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
    let (put, get) = match params.when_full {
        WhenFull::DropOldest | WhenFull::Latest => {
            let queue = Arc::new(ArrayQueue::new(params.capacity));
            (Put::Evict(queue.clone()), Get::Evict(queue))
        }
        WhenFull::Block | WhenFull::DropNewest | WhenFull::Fail => {
            let (tx, rx) = rtrb::RingBuffer::new(params.capacity);
            (Put::Ring(tx), Get::Ring(rx))
        }
    };
    let tx = OuterTx { params: params.clone(), queue: put, dirty: false };
    (tx, OuterRx { params: params.clone(), queue: get, dirty: false })
}

impl<T: Payload> OuterTx<T> {
    fn half(&self) -> &Half {
        &self.params.shared.producer
    }

    /// How many messages are sure to be taken: without limit where messages may be lost.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        match &self.queue {
            Put::Ring(tx) if self.params.when_full == WhenFull::Block => tx.slots(),
            _ => usize::MAX,
        }
    }

    /// Sends a message, and counts what is lost for it.
    ///
    /// # Errors
    /// The message, uncounted, where there is no room for it and the policy is `block` or `fail`.
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
                if queue.force_push(message).is_some() {
                    self.half().lose(evicted(self.params.when_full), 1);
                }
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

    /// Wakes the consumer if something was sent since the last time and it sleeps.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.consumer_bell.ring();
        }
    }

    /// Whether nobody will take any more.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.params.gone.load(Ordering::Acquire)
    }

    /// No more will be sent; `failed` where the producer died. The first word counts.
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

    /// Counts messages that reached whom they were for.
    #[inline]
    pub(crate) fn received(&self, n: u64) {
        self.params.shared.consumer.moved.add(n);
    }

    /// Whether more can come.
    #[inline]
    pub(crate) fn state(&self) -> State {
        self.params.shared.state(|| self.len() == 0)
    }

    /// Wakes the producer if room was made since the last time and it sleeps.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.producer_bell.ring();
        }
    }

    /// Lets go what waits, counted as lost.
    pub(crate) fn discard(&mut self, reason: Reason) {
        let n = self.empty();
        self.params.shared.consumer.lose(reason, n);
        self.ring();
    }

    /// Nobody will take any more from here.
    pub(crate) fn leave(&self) {
        self.params.leave();
    }

    fn empty(&mut self) -> u64 {
        // No more than there is room for: the producer may still be sending.
        let n = (0..self.params.capacity).map_while(|_| self.pop()).count();
        n as u64
    }
}

impl<T: Payload> Remains for OuterRx<T> {
    fn count(mut self: Box<Self>) -> u64 {
        self.empty()
    }
}
