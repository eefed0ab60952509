//! The consumer's end of an edge, and the counting of messages left when both ends have stopped.

use super::local::{Local, take_runs};
use super::{CrossRx, CrossRxKind, EdgeShared, EdgeState, Lanes, Params, Reason, Stamped};
use crate::base::policy::WhenFull;
use crate::host::sync::Arc;
use crate::ledger::{Run, push_run};
use crate::message::payload::{Header, Message, Payload};
use crossbeam_queue::ArrayQueue;
use std::hint::cold_path;
use std::rc::Rc;

pub(super) enum RxKind<T: Payload> {
    Local(Rc<Local<T>>),
    Ring { items: rtrb::Consumer<Message<T>>, runs: rtrb::Consumer<Run>, front: Run },
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Inspecting(Lanes<T>),
}

/// The consumer's end.
// What every message needs comes first, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Rx<T: Payload> {
    shared: Arc<EdgeShared>,
    dirty: bool,
    pub(super) kind: RxKind<T>,
    params: Params,
}

impl<T: Payload> Rx<T> {
    pub(super) fn new(params: Params, kind: RxKind<T>) -> Self {
        Rx { shared: params.shared.clone(), dirty: false, kind, params }
    }

    pub(super) fn from_cross(cross: CrossRx<T>) -> Self {
        let kind = match cross.kind {
            CrossRxKind::Ring(items, runs) => RxKind::Ring { items, runs, front: Run::default() },
            CrossRxKind::Evict(queue) => RxKind::Evict(queue),
            CrossRxKind::Inspecting(lanes) => RxKind::Inspecting(lanes),
        };
        Rx::new(cross.params, kind)
    }

    /// An empty list for [`Rx::fill`]; without a buffer for a local edge, which hands its own over.
    pub(crate) fn list(&self) -> Vec<Message<T>> {
        match &self.kind {
            RxKind::Local(_) => Vec::new(),
            _ => Vec::with_capacity(self.params.buffer),
        }
    }

    /// Returns the buffer of an emptied list to the worker, if it came from there.
    #[inline]
    pub(crate) fn recycle(&self, emptied: &mut Vec<Message<T>>) {
        if let RxKind::Local(local) = &self.kind
            && emptied.capacity() > 0
        {
            local.spares.borrow_mut().recycle(emptied);
        }
    }

    pub(crate) fn buffer(&self) -> usize {
        self.params.buffer
    }

    pub(crate) fn index(&self) -> usize {
        self.params.index
    }

    /// Messages waiting.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if let RxKind::Local(local) = &self.kind { local.len.get() } else { self.len_across() }
    }

    fn len_across(&self) -> usize {
        match &self.kind {
            RxKind::Local(local) => local.len.get(),
            RxKind::Ring { items, .. } => items.slots(),
            RxKind::Evict(queue) => queue.len(),
            RxKind::Inspecting(lanes) => lanes.len(),
        }
    }

    /// Whether the producer is blocked until messages are taken.
    pub(crate) fn is_full(&self) -> bool {
        if self.params.policy.when_full != WhenFull::Block {
            return false;
        }
        match &self.kind {
            RxKind::Inspecting(lanes) => lanes.free(&self.params) < self.params.emits,
            _ => self.len() + self.params.emits > self.params.capacity,
        }
    }

    /// Shows the header of the next message, if it can be read without taking it.
    pub(crate) fn peek(&self, see: impl FnOnce(&Header)) {
        match &self.kind {
            RxKind::Local(local) => local.peek(|message| see(message.header())),
            RxKind::Ring { items, .. } => {
                if let Ok(message) = items.peek() {
                    see(message.header());
                }
            }
            // The producer may evict it at any moment.
            RxKind::Evict(_) | RxKind::Inspecting(_) => {}
        }
    }

    /// True if each message should be taken only when it is needed, because a fresher one may
    /// replace it or a more urgent one overtake it.
    pub(crate) fn is_perishable(&self) -> bool {
        self.params.policy.when_full.evicts() || self.params.policy.lane_capacity() > 0
    }

    /// Appends up to `n` messages and their runs to the lists. [`Rx::received`] counts them, when
    /// the node takes them.
    #[inline]
    pub(crate) fn fill(&mut self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) {
        match &mut self.kind {
            RxKind::Local(local) => {
                self.dirty |= local.len.get() > 0;
                local.fill(n, into, into_runs);
            }
            RxKind::Ring { items, runs, front } => {
                let n = n.min(items.slots());
                if n == 0 {
                    return;
                }
                // The runs first: a producer that finds free message slots also finds free run
                // slots.
                take_runs(n as u32, front, || runs.pop().ok(), |run| push_run(into_runs, run));
                if let Ok(chunk) = items.read_chunk(n) {
                    into.extend(chunk);
                }
                self.dirty = true;
            }
            RxKind::Evict(queue) => {
                for _ in 0..n {
                    let Some(stamped) = queue.pop() else { break };
                    into.push(stamped.message);
                    push_run(into_runs, stamped.run);
                }
            }
            RxKind::Inspecting(lanes) => self.dirty |= lanes.fill(n, into, into_runs),
        }
    }

    /// Whether the only message waiting was sent alone.
    #[inline]
    pub(crate) fn has_only(&self) -> bool {
        if let RxKind::Local(local) = &self.kind { local.has_single() } else { false }
    }

    /// Takes the only message, if [`Rx::has_only`], and returns when it was sent; 0 if it is not
    /// recorded.
    #[inline]
    pub(crate) fn take_only(&mut self) -> Option<(Message<T>, u64)> {
        if let RxKind::Local(local) = &self.kind {
            return local.take_single();
        }
        cold_path();
        None
    }

    /// Moves all messages to an empty list, if they were published together within the worker and
    /// are at most `most`.
    #[inline]
    pub(crate) fn take_burst(&mut self, most: usize, into: &mut Vec<Message<T>>) -> bool {
        if let RxKind::Local(local) = &self.kind { local.take_burst(most, into) } else { false }
    }

    /// The run of the `n` messages that [`Rx::take_only`] or [`Rx::take_burst`] took last.
    #[inline]
    pub(crate) fn last_run(&self, n: usize) -> Run {
        if let RxKind::Local(local) = &self.kind {
            return local.run(n);
        }
        cold_path();
        Run::default()
    }

    /// Counts messages passed to the node.
    #[inline]
    pub(crate) fn received(&self, n: u64) {
        self.shared.consumer.moved.add(n);
    }

    /// Counts messages the node will never take.
    pub(crate) fn lose(&self, reason: Reason, n: u64) {
        self.params.shared.consumer.lose(reason, n);
    }

    /// Wakes the producer's worker if it sleeps waiting for room and slots were freed since the
    /// last call. Returns whether any were.
    #[inline]
    pub(crate) fn ring(&mut self) -> bool {
        let freed = std::mem::take(&mut self.dirty);
        // Inside a worker there is no sleeping producer.
        if freed && !matches!(self.kind, RxKind::Local(_)) {
            self.params.shared.made_room(&self.params.producer_bell);
        }
        freed
    }

    /// Whether slots were freed since the last [`Rx::ring`].
    pub(crate) fn has_freed(&self) -> bool {
        self.dirty
    }

    /// Whether more messages can arrive.
    #[inline]
    pub(crate) fn state(&self) -> EdgeState {
        self.params.shared.state(|| self.len() == 0)
    }

    /// Empties the edge of a node that is gone, and counts its messages as lost.
    pub(crate) fn discard(&mut self, reason: Reason) -> u64 {
        let n = self.empty();
        self.lose(reason, n);
        self.ring();
        n
    }

    /// Empties the edge and returns the number of messages.
    pub(crate) fn empty(&mut self) -> u64 {
        let (mut items, mut runs) = (Vec::new(), Vec::new());
        self.fill(self.len(), &mut items, &mut runs);
        let n = items.len() as u64;
        items.clear();
        self.recycle(&mut items);
        n
    }
}

/// A consumer's end whose messages are counted once every thread has ended.
pub(crate) trait Remains: Send {
    /// Empties the edge and returns how many messages were left.
    fn count(self: Box<Self>) -> u64;
}

impl<T: Payload> Remains for CrossRx<T> {
    fn count(self: Box<Self>) -> u64 {
        Rx::from_cross(*self).empty()
    }
}

impl<T: Payload> Rx<T> {
    /// Converts the end of a crossing edge, to be counted later; a local edge is counted now,
    /// because both its ends are here.
    pub(crate) fn into_remains(mut self) -> Result<Box<dyn Remains>, u64> {
        let kind = match self.kind {
            RxKind::Local(_) => return Err(self.empty()),
            RxKind::Ring { items, runs, .. } => CrossRxKind::Ring(items, runs),
            RxKind::Evict(queue) => CrossRxKind::Evict(queue),
            RxKind::Inspecting(lanes) => CrossRxKind::Inspecting(lanes),
        };
        Ok(Box::new(CrossRx { params: self.params, kind }))
    }
}
