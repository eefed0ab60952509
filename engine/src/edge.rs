//! Edges: the only module that names the ring crates.
//!
//! Inside a worker an edge is a [`Vec`] that the producer hands over and the consumer takes whole, so that a burst changes
//! hands in a few instructions whatever its length. The consumer gives the emptied buffer back to its worker's
//! [`Buffers`], where the next producer finds it: a chain of cheap nodes works on two buffers, whatever its length, and
//! they stay in the nearest cache. Between workers it is a ring: rtrb where the producer waits, drops the
//! newest or fails, crossbeam's `ArrayQueue` where the oldest is evicted (a plain SPSC ring cannot do that), with
//! capacity one for `latest`. Every form has the same ends, [`Tx`] and [`Rx`], and the same counters, and passes the
//! same tests.
//!
//! What an edge promises: order is kept; a message is moved, shared, or counted as lost with a [`Reason`]; `sent =
//! received + lost + left`, where *left* is found by emptying the edge after both ends have stopped.

mod admission;
mod outer;
mod tap;

pub(crate) use admission::Admission;
use admission::Lanes;
pub(crate) use outer::{OuterParams, OuterRx, OuterTx, outer};
pub(crate) use tap::TapTx;

use crate::meter::{Run, push_run};
use crate::payload::{Header, Message, Payload};
use crate::sync::{Arc, AtomicU8, Counter, Ordering, Padded};
use crate::wait::Bell;
use crossbeam_queue::ArrayQueue;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What happens when a message finds its edge full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The producer is not called until there is room. Nothing is lost.
    #[default]
    Block,
    /// The message that found no room is counted lost.
    DropNewest,
    /// The oldest message is counted lost and makes room.
    DropOldest,
    /// One fresh message; the one it supersedes is counted.
    Latest,
    /// The producing node fails.
    Fail,
}

impl WhenFull {
    /// The word used in YAML.
    pub fn name(self) -> &'static str {
        match self {
            WhenFull::Block => "block",
            WhenFull::DropNewest => "drop_newest",
            WhenFull::DropOldest => "drop_oldest",
            WhenFull::Latest => "latest",
            WhenFull::Fail => "fail",
        }
    }

    /// Whether messages can be lost on a healthy edge.
    pub fn is_lossy(self) -> bool {
        matches!(self, WhenFull::DropNewest | WhenFull::DropOldest | WhenFull::Latest)
    }
}

/// Why a message was lost. The list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Reason {
    FullNewest,
    FullOldest,
    Superseded,
    Expired,
    TooLarge,
    InvalidTime,
    Unmatched,
    Gate,
    NodeError,
    Panic,
    Detached,
    ConsumerGone,
    Stopped,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Reason; 13] = [
        Reason::FullNewest,
        Reason::FullOldest,
        Reason::Superseded,
        Reason::Expired,
        Reason::TooLarge,
        Reason::InvalidTime,
        Reason::Unmatched,
        Reason::Gate,
        Reason::NodeError,
        Reason::Panic,
        Reason::Detached,
        Reason::ConsumerGone,
        Reason::Stopped,
    ];

    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::FullNewest => "full_newest",
            Reason::FullOldest => "full_oldest",
            Reason::Superseded => "superseded",
            Reason::Expired => "expired",
            Reason::TooLarge => "too_large",
            Reason::InvalidTime => "invalid_time",
            Reason::Unmatched => "unmatched",
            Reason::Gate => "gate",
            Reason::NodeError => "node_error",
            Reason::Panic => "panic",
            Reason::Detached => "detached",
            Reason::ConsumerGone => "consumer_gone",
            Reason::Stopped => "stopped",
        }
    }
}

/// One end's half of an edge's counters, on cache lines of its own.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// Sent by the producer, or received by the consumer.
    pub(crate) moved: Counter,
    lost: [Counter; Reason::ALL.len()],
}

impl Half {
    pub(crate) fn lose(&self, reason: Reason, n: u64) {
        self.lost[reason as usize].add(n);
    }
}

const OPEN: u8 = 0;
const FINISHED: u8 = 1;
const FAILED: u8 = 2;

/// What both ends of an edge, and the report, share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) producer: Padded<Half>,
    pub(crate) consumer: Padded<Half>,
    state: AtomicU8,
}

impl Shared {
    /// The producer has ended.
    fn close(&self, failed: bool) {
        // Release: whoever sees the edge closed sees everything that was sent before.
        self.state.store(if failed { FAILED } else { FINISHED }, Ordering::Release);
    }

    /// Whether more can come. Closed is looked at before empty: what was sent before closing is never missed.
    #[inline]
    pub(crate) fn state(&self, is_empty: impl FnOnce() -> bool) -> State {
        let state = self.state.load(Ordering::Acquire);
        if state == OPEN || !is_empty() {
            State::Open
        } else if state == FAILED {
            State::Failed
        } else {
            State::Finished
        }
    }

    pub(crate) fn lost(&self, reason: Reason) -> u64 {
        self.producer.lost[reason as usize].get() + self.consumer.lost[reason as usize].get()
    }
}

/// Whether more can come through an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// The producer has ended and the edge is empty.
    Finished,
    /// The producer has died and the edge is empty.
    Failed,
}

/// What it takes to make an edge.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// The edge's index in the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) capacity: usize,
    pub(crate) when_full: WhenFull,
    /// Messages that one call of the producer may send: it is not called while there is less room.
    pub(crate) emits: usize,
    /// What it asks of messages beyond room for one more.
    pub(crate) admission: Admission,
    /// What the swapped buffers of a local edge must hold: its capacity, or one burst if that is more.
    pub(crate) buffer: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) producer_bell: Arc<Bell>,
    pub(crate) consumer_bell: Arc<Bell>,
}

/// Both ends of an edge, erased: the producer's, the consumer's.
pub(crate) type Pair<E> = (Box<E>, Box<E>);

/// How to make an edge of one payload, both ends erased: a producer's, then a consumer's.
#[derive(Clone, Copy)]
pub(crate) struct Connect {
    /// For both ends on the calling thread: [`Tx`] and [`Rx`].
    pub(crate) local: fn(&Params, &mut Buffers) -> Pair<dyn Any>,
    /// For ends that travel to their threads: [`CrossTx`] and [`CrossRx`].
    pub(crate) crossing: fn(&Params) -> Pair<dyn Any + Send>,
}

pub(crate) fn connect<T: Payload>() -> Connect {
    Connect {
        local: |params, buffers| {
            let (tx, rx) = local::<T>(params, buffers);
            (Box::new(tx), Box::new(rx))
        },
        crossing: |params| {
            let (tx, rx) = crossing::<T>(params);
            (Box::new(tx), Box::new(rx))
        },
    }
}

/// Takes an erased end back to its type; both ends' types were compared while planning.
pub(crate) fn tx<T: Payload>(end: Box<dyn Any>) -> Tx<T> {
    match end.downcast::<Tx<T>>() {
        Ok(tx) => *tx,
        Err(end) => Tx::from_cross(*end.downcast::<CrossTx<T>>().expect("port types were compared while planning")),
    }
}

/// As [`tx`], for the consumer's end.
pub(crate) fn rx<T: Payload>(end: Box<dyn Any>) -> Rx<T> {
    match end.downcast::<Rx<T>>() {
        Ok(rx) => *rx,
        Err(end) => Rx::from_cross(*end.downcast::<CrossRx<T>>().expect("port types were compared while planning")),
    }
}

/// The empty buffers of one worker's local edges, by payload and size.
#[derive(Default)]
pub(crate) struct Buffers(BTreeMap<(TypeId, usize), Box<dyn Any>>);

/// Empty buffers of one payload and size. Those below `free` are there; a place above holds what was given in exchange.
struct Spares<T: Payload> {
    buffers: Vec<Vec<Message<T>>>,
    free: usize,
}

impl<T: Payload> Spares<T> {
    /// Gives the buffer used last for a list that has none.
    #[inline]
    fn lend(&mut self, to: &mut Vec<Message<T>>) {
        if let Some(free) = self.free.checked_sub(1)
            && let Some(place) = self.buffers.get_mut(free)
        {
            // Places are swapped, not moved through: a buffer written and read again at once in other portions would have to
            // wait for the cache.
            std::mem::swap(place, to);
            self.free = free;
        }
    }

    /// Takes the buffer of an empty list back.
    #[inline]
    fn recycle(&mut self, from: &mut Vec<Message<T>>) {
        if let Some(place) = self.buffers.get_mut(self.free) {
            std::mem::swap(place, from);
            self.free += 1;
        }
    }
}

impl Buffers {
    /// The spares for buffers of `size` messages, with three more: an edge holds one buffer, its producer fills one, and
    /// its consumer empties one.
    fn spares<T: Payload>(&mut self, size: usize) -> Rc<RefCell<Spares<T>>> {
        let new = || Box::new(Rc::new(RefCell::new(Spares::<T> { buffers: Vec::new(), free: 0 })));
        let spares = self.0.entry((TypeId::of::<T>(), size)).or_insert_with(|| new());
        let spares = spares.downcast_ref::<Rc<RefCell<Spares<T>>>>().expect("the key names the payload").clone();
        let mut grown = spares.borrow_mut();
        grown.buffers.extend((0..3).map(|_| Vec::with_capacity(size)));
        grown.free = grown.buffers.len();
        drop(grown);
        spares
    }
}

/// An edge inside a worker.
struct Local<T: Payload> {
    /// How many messages it holds.
    len: Cell<usize>,
    /// The run of a message that was sent alone into an empty edge; it is in no list.
    lone: Lone,
    /// Without a buffer while there are none.
    items: RefCell<Vec<Message<T>>>,
    runs: RefCell<Vec<Run>>,
    spares: Rc<RefCell<Spares<T>>>,
}

/// The run of one message, word by word: moved as a whole, it would be read back in other portions than it was written in,
/// and have to wait for the cache.
#[derive(Default)]
struct Lone {
    is_here: Cell<bool>,
    sent: Cell<u64>,
    accounted: Cell<u64>,
    weight: Cell<u32>,
}

impl Lone {
    #[inline]
    fn put(&self, sent: u64, accounted: u64, weight: u32) {
        self.sent.set(sent);
        self.accounted.set(accounted);
        self.weight.set(weight);
        self.is_here.set(true);
    }

    #[inline]
    fn take(&self) -> Option<Run> {
        let run =
            Run { sent: self.sent.get(), accounted: self.accounted.get(), hold: 0, n: 1, weight: self.weight.get() };
        self.is_here.replace(false).then_some(run)
    }
}

/// A message in a queue that evicts: its stamps travel with it, because its neighbours may be evicted.
pub(crate) struct Stamped<T: Payload> {
    message: Message<T>,
    run: Run,
}

enum TxKind<T: Payload> {
    Local(Rc<Local<T>>),
    Ring(rtrb::Producer<Message<T>>, rtrb::Producer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    /// Within a worker or between two; `true` where it is within one.
    Looking(Lanes<T>, bool),
    Tap(Box<TapTx<T>>),
}

/// A producer's end that may still travel to its thread.
pub(crate) struct CrossTx<T: Payload> {
    params: Params,
    kind: CrossTxKind<T>,
}

enum CrossTxKind<T: Payload> {
    Ring(rtrb::Producer<Message<T>>, rtrb::Producer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Looking(Lanes<T>),
    Tap(Box<TapTx<T>>),
}

/// A consumer's end that may still travel to its thread.
pub(crate) struct CrossRx<T: Payload> {
    params: Params,
    kind: CrossRxKind<T>,
}

enum CrossRxKind<T: Payload> {
    Ring(rtrb::Consumer<Message<T>>, rtrb::Consumer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Looking(Lanes<T>),
}

fn crossing<T: Payload>(params: &Params) -> (CrossTx<T>, CrossRx<T>) {
    let (tx, rx) = match params.when_full {
        _ if params.admission.looks() => {
            let lanes = Lanes::new(params);
            (CrossTxKind::Looking(lanes.clone()), CrossRxKind::Looking(lanes))
        }
        WhenFull::DropOldest | WhenFull::Latest => {
            let queue = Arc::new(ArrayQueue::new(params.capacity));
            (CrossTxKind::Evict(queue.clone()), CrossRxKind::Evict(queue))
        }
        _ => {
            let (items_tx, items_rx) = rtrb::RingBuffer::new(params.capacity);
            // A run has at least one message, and the consumer may hold one run half taken: this never is full.
            let (runs_tx, runs_rx) = rtrb::RingBuffer::new(params.capacity + 1);
            (CrossTxKind::Ring(items_tx, runs_tx), CrossRxKind::Ring(items_rx, runs_rx))
        }
    };
    (CrossTx { params: params.clone(), kind: tx }, CrossRx { params: params.clone(), kind: rx })
}

pub(crate) fn local<T: Payload>(params: &Params, buffers: &mut Buffers) -> (Tx<T>, Rx<T>) {
    if params.admission.looks() {
        let lanes = Lanes::new(params);
        let tx = Tx::new(params.clone(), TxKind::Looking(lanes.clone(), true));
        return (tx, Rx::new(params.clone(), RxKind::Looking(lanes)));
    }
    let shared = Rc::new(Local {
        len: Cell::new(0),
        lone: Lone::default(),
        items: RefCell::default(),
        runs: RefCell::new(Vec::with_capacity(params.buffer + 1)),
        spares: buffers.spares(params.buffer),
    });
    (Tx::new(params.clone(), TxKind::Local(shared.clone())), Rx::new(params.clone(), RxKind::Local(shared)))
}

/// Below this capacity a producer that waits goes on as soon as a slot is free.
const HYSTERESIS_FROM: usize = 16;
/// Room that has been there for so long is used however little it is.
const HYSTERESIS_NS: u64 = 20_000;

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
    fn new(params: Params, kind: TxKind<T>) -> Self {
        Tx { params, kind, stalled: None, dirty: false, shares: Vec::new() }
    }

    fn from_cross(cross: CrossTx<T>) -> Self {
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
        let free = match (self.params.when_full, &self.kind) {
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
        free
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

    /// Sends the only message of a list.
    ///
    /// # Errors
    /// As [`Tx::publish`].
    #[inline]
    pub(crate) fn publish_only(
        &mut self,
        staged: &mut Vec<Message<T>>,
        sent: u64,
        accounted: u64,
        weight: u32,
    ) -> Result<(), EdgeFull> {
        if let TxKind::Local(local) = &self.kind
            && local.len.get() == 0
        {
            self.params.shared.producer.moved.add(1);
            local.put(staged, sent, accounted, weight);
            return Ok(());
        }
        self.publish(staged, &[Run { sent, accounted, hold: 0, n: 1, weight }])
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
        self.params.shared.producer.moved.add(n as u64);
        match &mut self.kind {
            TxKind::Local(local) => {
                let len = local.len.get() + n;
                if len > self.params.capacity {
                    return Self::overflow(&self.params, local, staged, runs);
                }
                match runs {
                    [run] if len == 1 => local.put(staged, run.sent, run.accounted, run.weight),
                    runs => local.append(len, staged, runs),
                }
                Ok(())
            }
            TxKind::Ring(items, run_ring) => {
                self.dirty = true;
                let fits = n.min(items.slots());
                let mut left = fits as u32;
                for run in runs {
                    let n = run.n.min(left);
                    left -= n;
                    if n > 0 {
                        // The runs' ring cannot be full: see `crossing`. The messages come after, so that whoever
                        // sees them sees their run.
                        let _ = run_ring.push(Run { n, ..*run });
                    }
                }
                if let Ok(chunk) = items.write_chunk_uninit(fits) {
                    chunk.fill_from_iter(staged.drain(..fits));
                }
                if fits == n {
                    return Ok(());
                }
                let lost = staged.drain(..).count() as u64;
                self.params.shared.producer.lose(Reason::FullNewest, lost);
                if self.params.when_full == WhenFull::Fail { Err(EdgeFull) } else { Ok(()) }
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
                self.params.shared.producer.lose(evicted(self.params.when_full), lost);
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
        match params.when_full {
            WhenFull::DropOldest | WhenFull::Latest => {
                drop(items.drain(..excess));
                split_runs(&mut runs, excess as u32, drop);
                params.shared.producer.lose(evicted(params.when_full), excess as u64);
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
                if params.when_full == WhenFull::Fail { Err(EdgeFull) } else { Ok(()) }
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

fn evicted(when_full: WhenFull) -> Reason {
    if when_full == WhenFull::Latest { Reason::Superseded } else { Reason::FullOldest }
}

enum RxKind<T: Payload> {
    Local(Rc<Local<T>>),
    Ring { items: rtrb::Consumer<Message<T>>, runs: rtrb::Consumer<Run>, front: Run },
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Looking(Lanes<T>),
}

/// The consumer's end.
pub(crate) struct Rx<T: Payload> {
    params: Params,
    kind: RxKind<T>,
    dirty: bool,
}

impl<T: Payload> Rx<T> {
    fn new(params: Params, kind: RxKind<T>) -> Self {
        Rx { params, kind, dirty: false }
    }

    fn from_cross(cross: CrossRx<T>) -> Self {
        let kind = match cross.kind {
            CrossRxKind::Ring(items, runs) => RxKind::Ring { items, runs, front: Run::default() },
            CrossRxKind::Evict(queue) => RxKind::Evict(queue),
            CrossRxKind::Looking(lanes) => RxKind::Looking(lanes),
        };
        Rx::new(cross.params, kind)
    }

    /// An empty list for [`Rx::fill`]: of a local edge one without a buffer, because the edge gives one along.
    pub(crate) fn list(&self) -> Vec<Message<T>> {
        match &self.kind {
            RxKind::Local(_) => Vec::new(),
            _ => Vec::with_capacity(self.params.buffer),
        }
    }

    /// Gives the buffer of an emptied list back to the worker, if it came from there.
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
        match &self.kind {
            RxKind::Local(local) => local.len.get(),
            RxKind::Ring { items, .. } => items.slots(),
            RxKind::Evict(queue) => queue.len(),
            RxKind::Looking(lanes) => lanes.len(),
        }
    }

    /// Whether the producer waits until something is taken.
    pub(crate) fn is_full(&self) -> bool {
        if self.params.when_full != WhenFull::Block {
            return false;
        }
        match &self.kind {
            RxKind::Looking(lanes) => lanes.free(&self.params) < self.params.emits,
            _ => self.len() + self.params.emits > self.params.capacity,
        }
    }

    /// Shows the message that is next, where it can be seen without being taken.
    pub(crate) fn peek(&self, see: impl FnOnce(&Header)) {
        match &self.kind {
            RxKind::Local(local) => {
                if let Some(message) = local.items.borrow().first() {
                    see(message.header());
                }
            }
            RxKind::Ring { items, .. } => {
                if let Ok(message) = items.peek() {
                    see(message.header());
                }
            }
            // Whoever evicts may take it at any moment.
            RxKind::Evict(_) | RxKind::Looking(_) => {}
        }
    }

    /// True where each message should be taken only when it is needed, because a fresher one may replace it, or a more urgent
    /// one overtake it.
    pub(crate) fn is_perishable(&self) -> bool {
        matches!(self.params.when_full, WhenFull::DropOldest | WhenFull::Latest) || self.params.admission.lane > 0
    }

    /// Moves up to `n` messages to the end of the list, and names their runs one after the other. They are counted as received by
    /// [`Rx::received`], when the node gets them.
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
                if let Ok(chunk) = items.read_chunk(n) {
                    into.extend(chunk);
                }
                take_runs(n as u32, front, || runs.pop().ok(), |run| push_run(into_runs, run));
                self.dirty = true;
            }
            RxKind::Evict(queue) => {
                for _ in 0..n {
                    let Some(stamped) = queue.pop() else { break };
                    into.push(stamped.message);
                    push_run(into_runs, stamped.run);
                }
            }
            RxKind::Looking(lanes) => self.dirty |= lanes.fill(n, into, into_runs),
        }
    }

    /// Takes a message that was sent alone, and its run.
    #[inline]
    pub(crate) fn take_only(&mut self) -> Option<(Message<T>, Run)> {
        let RxKind::Local(local) = &self.kind else { return None };
        let run = local.lone.take()?;
        local.len.set(0);
        local.items.borrow_mut().pop().map(|message| (message, run))
    }

    /// Counts messages given to the node.
    #[inline]
    pub(crate) fn received(&self, n: u64) {
        self.params.shared.consumer.moved.add(n);
    }

    /// Counts messages the node will never get.
    pub(crate) fn lose(&self, reason: Reason, n: u64) {
        self.params.shared.consumer.lose(reason, n);
    }

    /// Wakes the producer's worker if slots were freed since the last time and it sleeps. Says whether any were.
    #[inline]
    pub(crate) fn ring(&mut self) -> bool {
        let freed = std::mem::take(&mut self.dirty);
        // Inside a worker nobody sleeps who could be woken.
        if freed && !matches!(self.kind, RxKind::Local(_)) {
            self.params.producer_bell.ring();
        }
        freed
    }

    /// Whether slots were freed that [`Rx::ring`] has not said.
    pub(crate) fn has_freed(&self) -> bool {
        self.dirty
    }

    /// Whether more can come.
    #[inline]
    pub(crate) fn state(&self) -> State {
        self.params.shared.state(|| self.len() == 0)
    }

    /// Empties the edge and counts what was in it as lost: the node is gone.
    pub(crate) fn discard(&mut self, reason: Reason) -> u64 {
        let n = self.empty();
        self.lose(reason, n);
        self.ring();
        n
    }

    /// Empties the edge: what is left after both ends have stopped.
    pub(crate) fn empty(&mut self) -> u64 {
        let (mut items, mut runs) = (Vec::new(), Vec::new());
        self.fill(self.len(), &mut items, &mut runs);
        let n = items.len() as u64;
        items.clear();
        self.recycle(&mut items);
        n
    }
}

impl<T: Payload> Local<T> {
    /// Takes the only message of a list while there is none here.
    #[inline]
    fn put(&self, staged: &mut Vec<Message<T>>, sent: u64, accounted: u64, weight: u32) {
        std::mem::swap(&mut *self.items.borrow_mut(), staged);
        self.lone.put(sent, accounted, weight);
        self.len.set(1);
    }

    /// Takes what is staged; the edge then holds `len`.
    #[inline]
    fn append(&self, len: usize, staged: &mut Vec<Message<T>>, staged_runs: &[Run]) {
        if let Some(run) = self.lone.take() {
            self.runs.borrow_mut().push(run);
        }
        let mut items = self.items.borrow_mut();
        if items.is_empty() {
            std::mem::swap(&mut *items, staged);
        } else {
            items.append(staged);
        }
        let mut runs = self.runs.borrow_mut();
        staged_runs.iter().for_each(|run| push_run(&mut runs, *run));
        self.len.set(len);
    }

    #[inline]
    fn fill(&self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) {
        if let Some(run) = self.lone.take() {
            self.runs.borrow_mut().push(run);
        }
        if n < self.len.get() || !into.is_empty() || !into_runs.is_empty() {
            return self.fill_partly(n, into, into_runs);
        }
        std::mem::swap(&mut *self.items.borrow_mut(), into);
        std::mem::swap(&mut *self.runs.borrow_mut(), into_runs);
        self.len.set(0);
    }

    #[cold]
    fn fill_partly(&self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) {
        if into.capacity() == 0 {
            self.spares.borrow_mut().lend(into);
        }
        let n = n.min(self.len.get());
        into.extend(self.items.borrow_mut().drain(..n));
        split_runs(&mut self.runs.borrow_mut(), n as u32, |run| push_run(into_runs, run));
        self.len.set(self.len.get() - n);
    }
}

/// Splits `n` messages' worth off the front of some runs.
fn split_runs(runs: &mut Vec<Run>, n: u32, give: impl FnMut(Run)) {
    let (mut front, mut used) = (Run::default(), 0);
    let mut next = || {
        used += 1;
        runs.get(used - 1).copied()
    };
    take_runs(n, &mut front, &mut next, give);
    let used = used.min(runs.len());
    runs.drain(..used);
    if front.n > 0 {
        runs.insert(0, front);
    }
}

/// Splits `n` messages' worth off a sequence of runs.
#[inline]
fn take_runs(mut n: u32, front: &mut Run, mut next: impl FnMut() -> Option<Run>, mut give: impl FnMut(Run)) {
    while n > 0 {
        if front.n == 0 {
            match next() {
                Some(run) => *front = run,
                None => {
                    give(Run { n, ..Run::default() });
                    return;
                }
            }
        }
        let take = front.n.min(n);
        give(Run { n: take, ..*front });
        (front.n, n) = (front.n - take, n - take);
    }
}

/// A consumer's end that is emptied, and its messages counted, once every thread has ended.
pub(crate) trait Remains: Send {
    /// Empties the edge and says how many messages were left.
    fn count(self: Box<Self>) -> u64;
}

impl<T: Payload> Remains for CrossRx<T> {
    fn count(self: Box<Self>) -> u64 {
        Rx::from_cross(*self).empty()
    }
}

impl<T: Payload> Rx<T> {
    /// The end of a crossing edge, to be counted later; a local edge is counted at once, because both its ends are
    /// here.
    pub(crate) fn into_remains(mut self) -> Result<Box<dyn Remains>, u64> {
        let kind = match self.kind {
            RxKind::Local(_) => return Err(self.empty()),
            RxKind::Ring { items, runs, .. } => CrossRxKind::Ring(items, runs),
            RxKind::Evict(queue) => CrossRxKind::Evict(queue),
            RxKind::Looking(lanes) => CrossRxKind::Looking(lanes),
        };
        Ok(Box::new(CrossRx { params: self.params, kind }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::payload::{Header, Plain};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number(u64);
    impl Plain for Number {}

    /// Every policy in both forms: the same tests run over all of them.
    fn every_form(when_full: &[WhenFull], capacity: usize, test: impl Fn(&str, Tx<Number>, Rx<Number>, Arc<Shared>)) {
        for when_full in when_full {
            let capacity = if *when_full == WhenFull::Latest { 1 } else { capacity };
            for form in ["local", "crossing", "looking local", "looking crossing"] {
                // A cap that is never reached.
                let max_bytes = form.starts_with("looking").then_some(u64::MAX);
                let admission = Admission { max_bytes, largest: 1, ..Admission::default() };
                let params = Params {
                    index: 0,
                    name: "a/out -> b/in".into(),
                    capacity,
                    when_full: *when_full,
                    buffer: capacity.max(64),
                    emits: 1,
                    admission,
                    shared: Arc::default(),
                    producer_bell: Arc::default(),
                    consumer_bell: Arc::default(),
                };
                let shared = params.shared.clone();
                let (a, b) = if form.ends_with("local") {
                    local(&params, &mut Buffers::default())
                } else {
                    let (a, b) = crossing(&params);
                    (Tx::from_cross(a), Rx::from_cross(b))
                };
                test(&format!("{} {form}", when_full.name()), a, b, shared);
            }
        }
    }

    const ALL: [WhenFull; 5] =
        [WhenFull::Block, WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::Latest, WhenFull::Fail];

    fn send(tx: &mut Tx<Number>, numbers: std::ops::Range<u64>) -> Result<(), EdgeFull> {
        let mut staged: Vec<_> = numbers.map(|n| Message::new(Header::new(n, Time(n)), Number(n))).collect();
        let run = Run { sent: 7, accounted: 7, n: staged.len() as u32, weight: 1, ..Run::default() };
        tx.publish(&mut staged, &[run])
    }

    fn take(rx: &mut Rx<Number>, n: usize) -> (Vec<u64>, u32) {
        let (mut items, mut runs) = (Vec::new(), Vec::<Run>::new());
        rx.fill(n, &mut items, &mut runs);
        rx.received(items.len() as u64);
        (items.into_iter().map(|m| m.body.0).collect(), runs.iter().map(|r| r.n).sum())
    }

    fn law(shared: &Shared, left: u64) {
        let lost: u64 = Reason::ALL.iter().map(|r| shared.lost(*r)).sum();
        assert_eq!(shared.producer.moved.get(), shared.consumer.moved.get() + lost + left);
    }

    #[test]
    fn order_is_kept_and_every_run_is_whole() {
        every_form(&ALL, 8, |name, mut tx, mut rx, shared| {
            let mut seen = Vec::new();
            for n in 0..20 {
                send(&mut tx, n..n + 1).unwrap();
                let (items, in_runs) = take(&mut rx, 1);
                assert_eq!(items.len() as u32, in_runs, "{name}");
                seen.extend(items);
            }
            assert_eq!(seen, (0..20).collect::<Vec<_>>(), "{name}");
            law(&shared, 0);
        });
    }

    #[test]
    fn a_full_edge_does_what_its_policy_says() {
        every_form(&ALL, 4, |name, mut tx, mut rx, shared| {
            let room = tx.room(1, || 0);
            let result = if name.starts_with("block") { send(&mut tx, 0..room as u64) } else { send(&mut tx, 0..10) };
            let (items, in_runs) = take(&mut rx, 64);
            assert_eq!(items.len() as u32, in_runs, "{name}");
            let (expected, reason) = match name.split(' ').next().unwrap() {
                "block" => {
                    law(&shared, 0);
                    assert_eq!(items, [0, 1, 2, 3], "{name}");
                    return;
                }
                "drop_newest" => (vec![0, 1, 2, 3], Reason::FullNewest),
                "drop_oldest" => (vec![6, 7, 8, 9], Reason::FullOldest),
                "latest" => (vec![9], Reason::Superseded),
                _ => (vec![0, 1, 2, 3], Reason::FullNewest),
            };
            assert_eq!(result.is_err(), name.starts_with("fail"), "{name}");
            assert_eq!(items, expected, "{name}");
            assert_eq!(shared.lost(reason), 10 - expected.len() as u64, "{name}");
            law(&shared, 0);
        });
    }

    #[test]
    fn a_blocked_producer_goes_on_at_a_quarter_or_after_20_us() {
        every_form(&[WhenFull::Block], 32, |name, mut tx, mut rx, _| {
            let now = std::cell::Cell::new(1_000_000);
            send(&mut tx, 0..32).unwrap();
            assert_eq!(tx.room(1, || now.get()), 0, "{name}");
            take(&mut rx, 1);
            if name == "block crossing" {
                assert_eq!(tx.room(1, || now.get()), 0, "{name}");
                assert!(tx.is_settling(), "{name}");
                now.set(now.get() + HYSTERESIS_NS);
            }
            assert_eq!(tx.room(1, || now.get()), 1, "{name}");
            send(&mut tx, 32..33).unwrap();
            assert_eq!(tx.room(1, || now.get()), 0, "{name}");
            take(&mut rx, 8);
            assert_eq!(tx.room(1, || now.get()), 8, "{name}");
        });
    }

    #[test]
    fn what_was_sent_before_closing_is_never_missed() {
        every_form(&ALL, 4, |name, mut tx, mut rx, shared| {
            send(&mut tx, 0..1).unwrap();
            tx.close(name.starts_with("fail"));
            assert_eq!(rx.state(), State::Open, "{name}");
            assert_eq!(take(&mut rx, 4).0, [0], "{name}");
            let expected = if name.starts_with("fail") { State::Failed } else { State::Finished };
            assert_eq!(rx.state(), expected, "{name}");
            law(&shared, 0);
        });
    }

    #[test]
    fn what_is_left_is_counted_by_emptying() {
        every_form(&ALL, 4, |name, mut tx, rx, shared| {
            send(&mut tx, 0..1).unwrap();
            let left = match rx.into_remains() {
                Ok(remains) => remains.count(),
                Err(n) => n,
            };
            assert_eq!(left, 1, "{name}");
            law(&shared, left);
        });
    }

    #[test]
    fn a_partial_take_splits_its_run() {
        every_form(&[WhenFull::Block, WhenFull::DropNewest], 8, |name, mut tx, mut rx, _| {
            send(&mut tx, 0..5).unwrap();
            send(&mut tx, 5..8).unwrap();
            let (mut items, mut runs) = (Vec::new(), Vec::new());
            rx.fill(2, &mut items, &mut runs);
            rx.fill(4, &mut items, &mut runs);
            // Where each message is looked at, each has a run of its own.
            let whole = if name.contains("looking") { vec![1; 6] } else { vec![2, 3, 1] };
            assert_eq!(runs.iter().map(|r| r.n).collect::<Vec<_>>(), whole, "{name}");
            assert_eq!(items.iter().map(|m| m.body.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "{name}");
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicU32, thread};

    /// The ring itself is rtrb's, tested there; here it is a number of messages, published with Release as rtrb does.
    /// A consumer that sees the edge finished has seen every message.
    #[test]
    fn loom_closed_then_empty_misses_nothing() {
        loom::model(|| {
            let edge = Arc::new((Shared::default(), AtomicU32::new(0)));
            let producer = {
                let edge = edge.clone();
                thread::spawn(move || {
                    edge.1.store(1, Ordering::Release);
                    edge.1.store(2, Ordering::Release);
                    edge.0.close(false);
                })
            };
            let mut taken = 0;
            loop {
                taken = edge.1.load(Ordering::Acquire).max(taken);
                if edge.0.state(|| edge.1.load(Ordering::Acquire) == taken) == State::Finished {
                    break;
                }
                thread::yield_now();
            }
            assert_eq!(taken, 2);
            producer.join().unwrap();
        });
    }

    /// A producer that sleeps because its edge is full, and a consumer whose node has died: it becomes a drain, frees the
    /// slot and rings; the producer always goes on.
    #[test]
    fn loom_a_dead_consumer_releases_a_waiting_producer() {
        loom::model(|| {
            let edge = Arc::new((Bell::default(), AtomicU32::new(0)));
            edge.0.answer_here();
            let consumer = {
                let edge = edge.clone();
                thread::spawn(move || {
                    edge.1.store(1, Ordering::Release);
                    edge.0.ring();
                })
            };
            let room = || edge.1.load(Ordering::Acquire) == 1;
            while !room() {
                edge.0.arm();
                if room() {
                    edge.0.disarm();
                    break;
                }
                edge.0.sleep(None);
            }
            consumer.join().unwrap();
        });
    }
}
