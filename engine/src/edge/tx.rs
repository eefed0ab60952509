//! The producer's end of an edge.

use super::local::{Local, split_runs};
use super::{CrossTx, CrossTxKind, Lanes, Params, Reason, Stamped, TapTx};
use crate::base::policy::Qos;
use crate::base::policy::WhenFull;
use crate::host::sync::Arc;
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;
use std::rc::Rc;

/// Below this capacity a producer that waits goes on as soon as a slot is free.
const HYSTERESIS_FROM: usize = 16;
/// Room that has been there for so long is used however little it is.
pub(super) const HYSTERESIS_NS: u64 = 20_000;

pub(super) enum TxKind<T: Payload> {
    Local(Rc<Local<T>>),
    Ring(rtrb::Producer<Message<T>>, rtrb::Producer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    /// Within a worker or between two; `true` where it is within one.
    Looking(Lanes<T>, bool),
    Tap(Box<TapTx<T>>),
}

/// The producer's end.
pub(crate) struct Tx<T: Payload> {
    params: Params,
    kind: TxKind<T>,
    /// Waiting for room since the edge was found full; when the first slot came free.
    stalled: Option<u64>,
    dirty: bool,
    /// Copies for an edge that is not the last of its port.
    shares: Vec<Message<T>>,
}

/// What a message met that was sent into a full edge with `when_full: fail`.
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
            CrossTxKind::Looking(lanes) => TxKind::Looking(lanes, false),
            CrossTxKind::Tap(tap) => TxKind::Tap(tap),
        };
        Tx::new(cross.params, kind)
    }

    pub(crate) fn name(&self) -> &str {
        &self.params.name
    }

    /// Gives an empty list a buffer for what will be published next: of a local edge the one that was used last; of a
    /// crossing edge a new one, which the producer keeps.
    pub(crate) fn lend(&self, to: &mut Vec<Message<T>>) {
        match &self.kind {
            TxKind::Local(local) => local.spares.borrow_mut().lend(to),
            _ => to.reserve_exact(self.params.buffer),
        }
    }

    /// True where [`Tx::publish`] hands the buffer over with the messages.
    pub(crate) fn takes_buffer(&self) -> bool {
        matches!(self.kind, TxKind::Local(_))
    }

    fn free(&self) -> usize {
        match &self.kind {
            TxKind::Local(local) => self.params.capacity.saturating_sub(local.len.get()),
            TxKind::Ring(items, _) => items.slots(),
            TxKind::Evict(queue) => self.params.capacity - queue.len(),
            TxKind::Looking(lanes, _) => lanes.free(&self.params),
            TxKind::Tap(_) => usize::MAX,
        }
    }

    /// How many messages may be sent now. Without limit where messages may be lost; an edge inside a core then still
    /// says what is free, but never zero: its consumer gets its turn before it need lose anything.
    ///
    /// A producer that found the edge full goes on when a quarter is free, or a slot has been for 20 µs: taking each
    /// slot as it comes free would make both ends fight for the same cache line.
    #[inline]
    pub(crate) fn room(&mut self, want: usize, now: impl FnOnce() -> u64) -> usize {
        // Nearly always: the edge is within a worker, and nobody waits.
        if let (TxKind::Local(local), WhenFull::Block, None) = (&self.kind, self.params.policy.when_full, self.stalled)
        {
            let free = self.params.capacity.saturating_sub(local.len.get());
            if free >= want {
                return free;
            }
        }
        let free = match (self.params.policy.when_full, &self.kind) {
            (WhenFull::Block, _) => self.free(),
            (_, TxKind::Local(_) | TxKind::Looking(_, true)) => return self.free().max(want),
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
        // An edge that looks at each message anyway may never have a quarter of its places free: a cap on bytes is a cap.
        let enough = matches!(self.kind, TxKind::Local(_) | TxKind::Looking(..))
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
        self.params.shared.ask_no_more();
        free
    }

    /// The producer will sleep until there is more room, here or in a pool whose slots go this way. True where it must look once
    /// more before.
    pub(crate) fn ask(&mut self) -> bool {
        if matches!(self.kind, TxKind::Local(_)) {
            return false;
        }
        self.stalled.get_or_insert(0);
        self.params.shared.ask()
    }

    /// The edge itself, where it is within a worker. A message that finds it empty may go there without another look: what this
    /// end remembers, it remembers of an edge that was full.
    pub(crate) fn local(&self) -> Option<Rc<Local<T>>> {
        if let TxKind::Local(local) = &self.kind { Some(local.clone()) } else { None }
    }

    /// Whether the edge would fail its producer for want of room for all messages of these classes and bytes. Only the consumer
    /// changes that before they are sent, and makes more.
    pub(crate) fn refuses(&self, coming: impl ExactSizeIterator<Item = (Qos, u64)> + Clone) -> bool {
        self.params.policy.when_full == WhenFull::Fail
            && match &self.kind {
                TxKind::Looking(lanes, _) => !lanes.have_room(&self.params, coming),
                _ => self.free() < coming.len(),
            }
    }

    /// Whether the edge is at its soft mark, or full where it has none.
    pub(crate) fn is_pressed(&self) -> bool {
        match &self.kind {
            TxKind::Looking(lanes, _) => lanes.is_pressed(&self.params),
            _ => self.free() < self.params.emits,
        }
    }

    /// True while the producer waits for more of a slot that is free already: it must look again, unasked.
    pub(crate) fn is_settling(&self) -> bool {
        self.stalled.is_some_and(|since| since > 0)
    }

    /// Sends messages and empties the list; `runs` say how they were published together.
    ///
    /// # Errors
    /// With `when_full: fail`, when some found no room; they are counted lost, the node fails.
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
                    return Self::overflow(&self.params, local, staged, runs);
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
                    // The messages come after, so that whoever sees them sees their run. The runs' ring has a place for every
                    // run of what is in the ring: see `crossing`. A message without one would not go.
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
                let mut runs = runs.iter();
                let mut run = Run::default();
                let mut lost = 0;
                for message in staged.drain(..) {
                    while run.n == 0 {
                        run = *runs.next().unwrap_or(&Run { n: 1, ..Run::default() });
                    }
                    run.n -= 1;
                    lost += u64::from(queue.force_push(Stamped { message, run: Run { n: 1, ..run } }).is_some());
                }
                self.params.shared.producer.lose(evicted(self.params.policy.when_full), lost);
                Ok(())
            }
            TxKind::Looking(lanes, _) => {
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

    /// A local edge without room for all: the policy decides, message by message.
    #[cold]
    fn overflow(params: &Params, local: &Local<T>, staged: &mut Vec<Message<T>>, runs: &[Run]) -> Result<(), EdgeFull> {
        let excess = local.len.get() + staged.len() - params.capacity;
        local.append(params.capacity, staged, runs);
        let (mut items, mut runs) = (local.items.borrow_mut(), local.runs.borrow_mut());
        match params.policy.when_full {
            WhenFull::DropOldest | WhenFull::Latest => {
                drop(items.drain(..excess));
                split_runs(&mut runs, excess as u32, drop);
                params.shared.producer.lose(evicted(params.policy.when_full), excess as u64);
                Ok(())
            }
            // `block` never gets here: its producer asks for room first.
            WhenFull::Block | WhenFull::DropNewest | WhenFull::Fail => {
                items.truncate(params.capacity);
                let mut gone = excess as u32;
                while gone > 0 {
                    let Some(back) = runs.last_mut() else { break };
                    let n = back.n.min(gone);
                    (back.n, gone) = (back.n - n, gone - n);
                    if back.n == 0 {
                        runs.pop();
                    }
                }
                params.shared.producer.lose(Reason::FullNewest, excess as u64);
                if params.policy.when_full == WhenFull::Fail { Err(EdgeFull) } else { Ok(()) }
            }
        }
    }

    /// Sends a copy of each message and leaves the messages where they are.
    ///
    /// # Errors
    /// As [`Tx::publish`].
    pub(crate) fn publish_shared(&mut self, staged: &[Message<T>], runs: &[Run]) -> Result<(), EdgeFull> {
        if let TxKind::Tap(tap) = &mut self.kind {
            // A share would hold a buffer that was not reckoned with: a tap has buffers of its own.
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

    /// Wakes the consumer's worker if something was sent since the last time and it sleeps.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if std::mem::take(&mut self.dirty) {
            self.params.consumer_bell.ring();
        }
    }

    /// No more will be sent; `failed` where the producer died.
    pub(crate) fn close(&mut self, failed: bool) {
        if let TxKind::Tap(tap) = &self.kind {
            tap.close(failed);
        }
        self.params.shared.close(failed);
        self.params.consumer_bell.ring();
    }
}

pub(super) fn evicted(when_full: WhenFull) -> Reason {
    if when_full == WhenFull::Latest { Reason::Superseded } else { Reason::FullOldest }
}
