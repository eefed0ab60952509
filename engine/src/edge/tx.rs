//! The producer's end of an edge.

use super::local::Local;
use super::overflow::{append_beyond, put_evicting};
use super::{CrossTx, CrossTxKind, Lanes, Params, Reason, Stamped, TapTx, stamped};
use crate::base::policy::{Qos, WhenFull};
use crate::host::sync::Arc;
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;
use std::rc::Rc;

/// Below this capacity, a waiting producer continues as soon as a slot is free.
const HYSTERESIS_FROM: usize = 16;
/// Room that has been available for this long is used however little it is.
pub(super) const HYSTERESIS_NS: u64 = 20_000;

pub(super) enum TxKind<T: Payload> {
    Local(Rc<Local<T>>),
    Ring(rtrb::Producer<Message<T>>, rtrb::Producer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    /// Within a worker (`true`) or between two.
    Inspecting(Lanes<T>, bool),
    Tap(Box<TapTx<T>>),
}

/// The producer's end.
pub(crate) struct Tx<T: Payload> {
    params: Params,
    kind: TxKind<T>,
    /// Set while waiting for room: when the first slot became free, or 0 before.
    stalled: Option<u64>,
    dirty: bool,
    /// Copies for an edge that is not the last of its port.
    shares: Vec<Message<T>>,
}

/// A message was sent into a full edge with `when_full: fail`.
#[derive(Debug)]
pub(crate) struct EdgeFull;

impl<T: Payload> Tx<T> {
    pub(super) fn new(params: Params, kind: TxKind<T>) -> Self {
        Tx { params, kind, stalled: None, dirty: false, shares: Vec::new() }
    }

    pub(super) fn from_cross(cross: CrossTx<T>) -> Self {
        let kind = match cross.kind {
            CrossTxKind::Ring(items, runs) => TxKind::Ring(items, runs),
            CrossTxKind::Evict(queue) => TxKind::Evict(queue),
            CrossTxKind::Inspecting(lanes) => TxKind::Inspecting(lanes, false),
            CrossTxKind::Tap(tap) => TxKind::Tap(tap),
        };
        Tx::new(cross.params, kind)
    }

    pub(crate) fn name(&self) -> &str {
        &self.params.name
    }

    /// Gives an empty list a buffer for the next publication: for a local edge the most recently
    /// used one; for a crossing edge a new one, which the producer keeps.
    pub(crate) fn lend(&self, to: &mut Vec<Message<T>>) {
        match &self.kind {
            TxKind::Local(local) => local.spares.borrow_mut().lend(to),
            _ => to.reserve_exact(self.params.buffer),
        }
    }

    /// True if [`Tx::publish`] hands the buffer over with the messages.
    pub(crate) fn takes_buffer(&self) -> bool {
        matches!(self.kind, TxKind::Local(_))
    }

    fn free(&self) -> usize {
        match &self.kind {
            TxKind::Local(local) => self.params.capacity.saturating_sub(local.len.get()),
            TxKind::Ring(items, _) => items.slots(),
            TxKind::Evict(queue) => self.params.capacity - queue.len(),
            TxKind::Inspecting(lanes, _) => lanes.free(&self.params),
            TxKind::Tap(_) => usize::MAX,
        }
    }

    /// How many messages may be sent now. Unlimited if messages may be lost; an edge inside a
    /// worker then still returns what is free, but never zero: its consumer gets a turn before
    /// anything must be lost.
    ///
    /// A producer that found the edge full continues when a quarter is free, or when a slot has
    /// been free for 20 µs: taking each slot as it comes free would make both ends contend for the
    /// same cache line.
    #[inline]
    pub(crate) fn room(&mut self, want: usize, now: impl FnOnce() -> u64) -> usize {
        // The usual case: the edge is within a worker, and its producer is not waiting.
        if let (TxKind::Local(local), WhenFull::Block, None) = (&self.kind, self.params.policy.when_full, self.stalled)
        {
            let free = self.params.capacity.saturating_sub(local.len.get());
            if free >= want {
                return free;
            }
        }
        let free = match (self.params.policy.when_full, &self.kind) {
            (WhenFull::Block, _) => self.free(),
            (_, TxKind::Local(_) | TxKind::Inspecting(_, true)) => return self.free().max(want),
            _ => return usize::MAX,
        };
        if self.stalled.is_none() && free >= want {
            return free;
        }
        self.room_when_stalled(free, want, now)
    }

    #[cold]
    fn room_when_stalled(&mut self, free: usize, want: usize, now: impl FnOnce() -> u64) -> usize {
        if free < want {
            self.stalled = Some(0);
            return 0;
        }
        // An edge that inspects messages may never have a quarter of its slots free, because of its
        // cap on bytes.
        let enough = matches!(self.kind, TxKind::Local(_) | TxKind::Inspecting(..))
            || self.params.capacity < HYSTERESIS_FROM
            || free >= self.params.capacity / 4;
        if !enough {
            let now = now();
            let since = match self.stalled {
                Some(0) | None => now,
                Some(since) => since,
            };
            self.stalled = Some(since);
            if now.saturating_sub(since) < HYSTERESIS_NS {
                return 0;
            }
        }
        self.stalled = None;
        self.params.shared.stop_waiting();
        free
    }

    /// Registers the producer as waiting for room, here or in a pool whose slots travel this way.
    /// True if it must check once more before sleeping.
    pub(crate) fn request_room(&mut self) -> bool {
        if matches!(self.kind, TxKind::Local(_)) {
            return false;
        }
        self.stalled.get_or_insert(0);
        self.params.shared.request_room()
    }

    /// The edge itself, if it is within a worker. A message for an empty edge may be put there
    /// directly: this end keeps state only about an edge that was full.
    pub(crate) fn local(&self) -> Option<Rc<Local<T>>> {
        if let TxKind::Local(local) = &self.kind { Some(local.clone()) } else { None }
    }

    /// Whether nothing waits on the edge, which is within a worker.
    pub(crate) fn is_empty(&self) -> bool {
        if let TxKind::Local(local) = &self.kind { local.is_empty() } else { false }
    }

    /// Whether the edge would fail its producer because it has no room for all messages of these
    /// classes and sizes. Until they are sent only the consumer changes the edge, and it only makes
    /// room.
    pub(crate) fn refuses(&self, coming: impl ExactSizeIterator<Item = (Qos, u64)> + Clone) -> bool {
        self.params.policy.when_full == WhenFull::Fail
            && match &self.kind {
                TxKind::Inspecting(lanes, _) => !lanes.have_room(&self.params, coming),
                _ => self.free() < coming.len(),
            }
    }

    /// Whether the edge is at its soft mark, or full if it has none.
    pub(crate) fn is_pressed(&self) -> bool {
        match &self.kind {
            TxKind::Inspecting(lanes, _) => lanes.is_pressed(&self.params),
            _ => self.free() < self.params.emits,
        }
    }

    /// True while the producer waits for more room although a slot is free: it must check again
    /// without being woken.
    pub(crate) fn is_settling(&self) -> bool {
        self.stalled.is_some_and(|since| since > 0)
    }

    /// Sends messages and empties the list; `runs` tell which were published together.
    ///
    /// # Errors
    /// With `when_full: fail`, if some found no room; they count as lost, and the node fails.
    #[inline]
    pub(crate) fn publish(&mut self, staged: &mut Vec<Message<T>>, runs: &[Run]) -> Result<(), EdgeFull> {
        let n = staged.len();
        if n == 0 {
            return Ok(());
        }
        if let (TxKind::Local(local), [run]) = (&self.kind, runs)
            && local.takes_all(n)
        {
            local.put_all(staged, run.sent, run.accounted, run.weight);
            return Ok(());
        }
        self.params.shared.producer.moved.add(n as u64);
        match &mut self.kind {
            TxKind::Local(local) => {
                let len = local.len.get() + n;
                if len > self.params.capacity {
                    return append_beyond(&self.params, local, staged, runs);
                }
                local.append(len, staged, runs);
                Ok(())
            }
            TxKind::Ring(items, run_ring) => {
                self.dirty = true;
                let mut fits = n.min(items.slots());
                let mut left = fits as u32;
                for run in runs {
                    let n = run.n.min(left);
                    // Runs go first, so that a consumer that sees a message sees its run. The run
                    // ring has a slot for every run of the messages in the ring: see `crossing`. A
                    // message without a run would not be sent.
                    if n > 0 && run_ring.push(Run { n, ..*run }).is_err() {
                        fits -= left as usize;
                        break;
                    }
                    left -= n;
                }
                if let Ok(chunk) = items.write_chunk_uninit(fits) {
                    chunk.fill_from_iter(staged.drain(..fits));
                }
                if fits == n {
                    return Ok(());
                }
                let lost = staged.drain(..).count() as u64;
                self.params.shared.producer.lose(Reason::FullNewest, lost);
                if self.params.policy.when_full == WhenFull::Fail { Err(EdgeFull) } else { Ok(()) }
            }
            TxKind::Evict(queue) => {
                self.dirty = true;
                put_evicting(stamped(staged, runs), queue, self.params.policy.when_full, &self.params.shared.producer);
                Ok(())
            }
            TxKind::Inspecting(lanes, _) => {
                self.dirty = true;
                lanes.publish(&self.params, staged, runs)
            }
            TxKind::Tap(tap) => {
                self.dirty = true;
                tap.look(staged);
                staged.clear();
                Ok(())
            }
        }
    }

    /// Sends a share of each message and keeps the originals.
    ///
    /// # Errors
    /// As [`Tx::publish`].
    pub(crate) fn publish_shared(&mut self, staged: &[Message<T>], runs: &[Run]) -> Result<(), EdgeFull> {
        if let TxKind::Tap(tap) = &mut self.kind {
            // A share would hold a buffer the plan has not counted: a tap has buffers of its own.
            self.dirty = true;
            tap.look(staged);
            return Ok(());
        }
        let mut shares = std::mem::take(&mut self.shares);
        if shares.capacity() == 0 {
            self.lend(&mut shares);
        }
        shares.extend(staged.iter().map(Message::share));
        let result = self.publish(&mut shares, runs);
        self.shares = shares;
        result
    }

    /// Wakes the consumer's worker if it sleeps and messages were sent since the last call.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.consumer_bell.ring();
        }
    }

    /// Closes the edge; `failed` if the producer has failed.
    pub(crate) fn close(&mut self, failed: bool) {
        if let TxKind::Tap(tap) = &self.kind {
            tap.close(failed);
        }
        self.params.shared.close(failed);
        self.params.consumer_bell.ring();
    }
}
