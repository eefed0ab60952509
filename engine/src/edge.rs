//! Edges: the only module that names the ring crates.
//!
//! Inside a worker an edge is a list that is handed over whole ([`local`]). Between workers it is a
//! ring: rtrb if the producer blocks, drops the newest or fails; crossbeam's `ArrayQueue` if the
//! oldest is evicted (a plain SPSC ring cannot do that), with capacity one for `latest`. Every form
//! has the same ends, [`Tx`] and [`Rx`], and the same counters, and passes the same tests.
//!
//! Guarantees: order is kept; a message is moved, shared, or counted as lost with a [`Reason`];
//! `sent = received + lost + left`, where *left* is found by emptying the edge after both ends have
//! stopped.

mod admission;
mod local;
mod outer;
mod overflow;
mod rx;
mod tap;
#[cfg(all(test, not(loom)))]
mod tests;
mod tx;

use crate::base::policy::EdgePolicy;
use admission::Lanes;
pub(crate) use local::{EdgeBuffers, Local, local};
pub(crate) use outer::{OuterParams, OuterRx, OuterTx, outer};
pub(crate) use rx::{Remains, Rx};
pub(crate) use tap::TapTx;
pub(crate) use tx::{EdgeFull, Tx};

use crate::host::sync::{Arc, AtomicBool, AtomicU8, Counter, Ordering, Padded, fence};
use crate::host::wait::Bell;
use crate::ledger::Run;
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;
use std::any::Any;

/// Most messages a stage takes in one turn.
pub(crate) const BURST: usize = 64;

/// Why a message was lost. The engine's list is complete ([`Reason::ALL`]); later versions may add
/// reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
#[allow(missing_docs)]
#[non_exhaustive]
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
    pub const ALL: &[Reason] = <Reason as strum::VariantArray>::VARIANTS;

    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        self.into()
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

/// State shared by both ends of an edge and the report.
#[derive(Debug, Default)]
pub(crate) struct EdgeShared {
    pub(crate) producer: Padded<Half>,
    pub(crate) consumer: Padded<Half>,
    state: AtomicU8,
    /// The producer is waiting for room.
    producer_waits: AtomicBool,
}

impl EdgeShared {
    /// Marks the end of the producer.
    fn close(&self, failed: bool) {
        // Release: a reader that sees the edge closed sees everything sent before.
        self.state.store(if failed { FAILED } else { FINISHED }, Ordering::Release);
    }

    /// Whether the producer has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) != OPEN
    }

    /// Whether more messages can arrive. Tests closed before empty, so that messages sent before
    /// closing are never missed.
    #[inline]
    pub(crate) fn state(&self, is_empty: impl FnOnce() -> bool) -> EdgeState {
        let state = self.state.load(Ordering::Acquire);
        if state == OPEN || !is_empty() {
            EdgeState::Open
        } else if state == FAILED {
            EdgeState::Failed
        } else {
            EdgeState::Finished
        }
    }

    /// Registers the producer as waiting for room. True if it was not registered before; it must
    /// then check once more before it sleeps.
    fn request_room(&self) -> bool {
        let is_new = !self.producer_waits.swap(true, Ordering::Relaxed);
        // Pairs with the fence of `made_room`: either the consumer sees the flag, or the next check
        // sees the room.
        fence(Ordering::SeqCst);
        is_new
    }

    /// The producer no longer waits.
    fn stop_waiting(&self) {
        self.producer_waits.store(false, Ordering::Relaxed);
    }

    /// Wakes the producer if it is waiting for room. A producer that sleeps for another reason is
    /// left asleep, because a wakeup costs the consumer more than its messages.
    #[inline]
    fn made_room(&self, producer: &Bell) {
        fence(Ordering::SeqCst);
        if self.producer_waits.load(Ordering::Relaxed) {
            producer.ring();
        }
    }

    /// Messages sent and not yet received or lost, as of the counters' last update, once a turn.
    pub(crate) fn depth(&self) -> u64 {
        // The consumer's counters first: what it has received was sent before.
        let gone = self.consumer.moved.get() + Reason::ALL.iter().map(|reason| self.lost(*reason)).sum::<u64>();
        self.producer.moved.get().saturating_sub(gone)
    }

    pub(crate) fn lost(&self, reason: Reason) -> u64 {
        self.producer.lost[reason as usize].get() + self.consumer.lost[reason as usize].get()
    }
}

/// Whether more messages can arrive through an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EdgeState {
    Open,
    /// The producer has ended and the edge is empty.
    Finished,
    /// The producer has failed and the edge is empty.
    Failed,
}

/// The parameters of an edge.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    /// The edge's index in the plan.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) capacity: usize,
    /// Messages that one call of the producer may send; it is not called while there is less room.
    pub(crate) emits: usize,
    /// Capacity of a local edge's swapped buffers: the edge's capacity, or one burst if that is
    /// more.
    pub(crate) buffer: usize,
    pub(crate) shared: Arc<EdgeShared>,
    pub(crate) producer_bell: Arc<Bell>,
    pub(crate) consumer_bell: Arc<Bell>,
    /// The edge's policy from the graph file.
    pub(crate) policy: EdgePolicy,
    /// Bytes of the largest message.
    pub(crate) largest: u64,
}

/// Both ends of an edge, type-erased: the producer's, the consumer's.
pub(crate) type Pair<E> = (Box<E>, Box<E>);

/// Constructors of an edge of one payload, both ends type-erased.
#[derive(Clone, Copy)]
pub(crate) struct Connect {
    /// For both ends on the calling thread: [`Tx`] and [`Rx`].
    pub(crate) local: fn(&Params, &mut EdgeBuffers) -> Pair<dyn Any>,
    /// For ends that move to their threads: [`CrossTx`] and [`CrossRx`].
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

/// Downcasts an erased end; both ends' types were compared while planning.
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

/// A message in an evicting queue: its stamps travel with it, because its neighbours may be
/// evicted.
pub(crate) struct Stamped<T: Payload> {
    message: Message<T>,
    run: Run,
}

/// The messages of a list, which it empties, each with a run of its own.
fn stamped<T: Payload>(staged: &mut Vec<Message<T>>, runs: &[Run]) -> impl Iterator<Item = Stamped<T>> {
    let mut runs = runs.iter();
    let mut run = Run::default();
    staged.drain(..).map(move |message| {
        while run.n == 0 {
            run = *runs.next().unwrap_or(&Run { n: 1, ..Run::default() });
        }
        run.n -= 1;
        Stamped { message, run: Run { n: 1, ..run } }
    })
}

/// A producer's end that can still move to its thread.
pub(crate) struct CrossTx<T: Payload> {
    params: Params,
    kind: CrossTxKind<T>,
}

enum CrossTxKind<T: Payload> {
    Ring(rtrb::Producer<Message<T>>, rtrb::Producer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Inspecting(Lanes<T>),
    Tap(Box<TapTx<T>>),
}

/// A consumer's end that can still move to its thread.
pub(crate) struct CrossRx<T: Payload> {
    params: Params,
    kind: CrossRxKind<T>,
}

enum CrossRxKind<T: Payload> {
    Ring(rtrb::Consumer<Message<T>>, rtrb::Consumer<Run>),
    Evict(Arc<ArrayQueue<Stamped<T>>>),
    Inspecting(Lanes<T>),
}

fn crossing<T: Payload>(params: &Params) -> (CrossTx<T>, CrossRx<T>) {
    let (tx, rx) = if params.policy.checks_each_message() {
        let lanes = Lanes::new(params);
        (CrossTxKind::Inspecting(lanes.clone()), CrossRxKind::Inspecting(lanes))
    } else if params.policy.when_full.evicts() {
        let queue = Arc::new(ArrayQueue::new(params.capacity));
        (CrossTxKind::Evict(queue.clone()), CrossRxKind::Evict(queue))
    } else {
        let (items_tx, items_rx) = rtrb::RingBuffer::new(params.capacity);
        // A run has at least one message, and the consumer takes the run before it frees the
        // message's slot: where a message has a slot, its run has one too.
        let (runs_tx, runs_rx) = rtrb::RingBuffer::new(params.capacity);
        (CrossTxKind::Ring(items_tx, runs_tx), CrossRxKind::Ring(items_rx, runs_rx))
    };
    (CrossTx { params: params.clone(), kind: tx }, CrossRx { params: params.clone(), kind: rx })
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::host::sync::{AtomicU32, thread};

    /// The ring itself is rtrb's, tested there; here it is a number of messages, published with
    /// Release as rtrb does. A consumer that sees the edge finished has seen every message.
    #[test]
    fn loom_closed_then_empty_misses_nothing() {
        loom::model(|| {
            let edge = Arc::new((EdgeShared::default(), AtomicU32::new(0)));
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
                if edge.0.state(|| edge.1.load(Ordering::Acquire) == taken) == EdgeState::Finished {
                    break;
                }
                thread::yield_now();
            }
            assert_eq!(taken, 2);
            producer.join().unwrap();
        });
    }

    /// A producer sleeps while its edge of capacity one is full, and the consumer's node fails on
    /// the first message. The consumer becomes a drain, which frees the slot, rings, and counts
    /// what it takes as lost. The producer always continues, the drain always ends, and the counts
    /// add up.
    #[test]
    fn loom_a_dead_consumer_releases_a_waiting_producer() {
        loom::model(|| {
            let (sent, taken) = (AtomicU32::new(0), AtomicU32::new(0));
            let edge = Arc::new((EdgeShared::default(), Bell::default(), sent, taken));
            edge.1.set_sleeper();
            let consumer = {
                let edge = edge.clone();
                thread::spawn(move || {
                    let (shared, bell, sent, taken) = &*edge;
                    let mut n = 0;
                    loop {
                        while sent.load(Ordering::Acquire) > n {
                            n += 1;
                            match n {
                                1 => shared.consumer.moved.add(1),
                                _ => shared.consumer.lost[Reason::ConsumerGone as usize].add(1),
                            }
                            taken.store(n, Ordering::Release);
                            shared.made_room(bell);
                        }
                        if shared.state(|| sent.load(Ordering::Acquire) == n) == EdgeState::Finished {
                            return;
                        }
                        thread::yield_now();
                    }
                })
            };
            let (shared, bell, sent, taken) = &*edge;
            for n in 1..=2 {
                let room = || taken.load(Ordering::Acquire) + 1 == n;
                while !room() {
                    if shared.request_room() {
                        continue;
                    }
                    bell.arm();
                    if room() {
                        bell.disarm();
                        break;
                    }
                    bell.sleep(None);
                }
                shared.stop_waiting();
                sent.store(n, Ordering::Release);
                shared.producer.moved.add(1);
            }
            shared.close(false);
            consumer.join().unwrap();
            let (sent, received) = (shared.producer.moved.get(), shared.consumer.moved.get());
            assert_eq!((sent, received, shared.lost(Reason::ConsumerGone)), (2, 1, 1));
        });
    }
}
