//! Edges that inspect each message before they accept it: soft marks, a cap on bytes, a lane for
//! urgent messages.
//!
//! An edge is *below* its soft mark, *between* the soft and the hard one, or at the *hard* one; its
//! state before a message is sent decides about that message. A cap may be overshot: the message
//! that reaches it is still accepted. Every message has a run of its own, and a lane is a separate
//! queue. That costs tens of nanoseconds a message, paid only by edges that use these policies.

use super::overflow::{evicted, verdict};
use super::{EdgeFull, Params, Reason, Stamped, stamped};
use crate::base::policy::{EdgePolicy, Qos};
use crate::host::sync::{Arc, Counter, Padded};
use crate::ledger::{Run, push_run};
use crate::message::payload::{Message, Payload};
use crossbeam_queue::ArrayQueue;

/// Where the queue depth of an edge is: below both watermarks, between them, or at the hard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Below,
    Between,
    Hard,
}

/// The decision about a message.
pub(super) enum AdmissionVerdict {
    Take,
    /// Accepted after evicting this many of the oldest, or as many as needed.
    Evict(Option<usize>),
    Lose(Reason),
    Fail,
}

/// The bytes that passed a lane; each counter has one writer.
#[derive(Debug, Default)]
struct PassedBytes {
    sent: Padded<Counter>,
    evicted: Counter,
    taken: Padded<Counter>,
}

impl PassedBytes {
    fn waiting(&self) -> u64 {
        self.sent.get().saturating_sub(self.evicted.get()).saturating_sub(self.taken.get())
    }
}

/// One queue of an edge.
struct Lane<T: Payload> {
    queue: Arc<ArrayQueue<Stamped<T>>>,
    bytes: Arc<PassedBytes>,
}

impl<T: Payload> Lane<T> {
    /// Whether it would be at the hard mark with `items` messages of `bytes` in total.
    fn is_hard(&self, items: usize, bytes: u64, params: &Params) -> bool {
        items >= self.queue.capacity() || params.policy.max_bytes.is_some_and(|most| bytes >= most.0)
    }
}

impl<T: Payload> Clone for Lane<T> {
    fn clone(&self) -> Self {
        Lane { queue: self.queue.clone(), bytes: self.bytes.clone() }
    }
}

/// Both ends of an edge that inspects messages; the first lane is the ordinary one.
pub(super) struct Lanes<T: Payload>(Vec<Lane<T>>);

impl<T: Payload> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        Lanes(self.0.clone())
    }
}

impl<T: Payload> Lanes<T> {
    pub(super) fn new(params: &Params) -> Self {
        let lane = |capacity| Lane { queue: Arc::new(ArrayQueue::new(capacity)), bytes: Arc::default() };
        let urgent = params.policy.urgent_capacity.map(lane);
        Lanes(std::iter::once(lane(params.capacity)).chain(urgent).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|lane| lane.queue.len()).sum()
    }

    /// Messages that every lane has room for, because a call may send to either.
    pub(super) fn free(&self, params: &Params) -> usize {
        let free = |lane: &Lane<T>| {
            let free = lane.queue.capacity() - lane.queue.len();
            match params.policy.max_bytes.map(|most| most.0.saturating_sub(lane.bytes.waiting())) {
                None => free,
                Some(0) => 0,
                // The cap is reached by the last message, not before; a call that needs more than
                // the cap is not blocked for ever.
                Some(bytes) => free.min((bytes.div_ceil(params.largest.max(1)) as usize).max(params.emits)),
            }
        };
        self.0.iter().map(free).min().unwrap_or(0)
    }

    /// The lane of a class.
    fn lane_of(&self, class: Qos) -> usize {
        usize::from(class == Qos::Urgent && self.0.len() > 1)
    }

    /// Whether none of the given messages, by class and size, would find its lane at the hard mark.
    pub(super) fn have_room(&self, params: &Params, coming: impl Iterator<Item = (Qos, u64)> + Clone) -> bool {
        self.0.iter().enumerate().all(|(at, lane)| {
            let (mut items, mut bytes) = (lane.queue.len(), lane.bytes.waiting());
            coming.clone().filter(|(class, _)| self.lane_of(*class) == at).all(|(_, more)| {
                let has_room = !lane.is_hard(items, bytes, params);
                (items, bytes) = (items + 1, bytes + more);
                has_room
            })
        })
    }

    fn mark(&self, at: usize, params: &Params) -> Mark {
        let EdgePolicy { soft_capacity, soft_bytes, .. } = params.policy;
        let lane = &self.0[at];
        let (items, bytes) = (lane.queue.len(), lane.bytes.waiting());
        // The urgent lane has no soft mark: no class has precedence over it.
        let is_soft = at == 0
            && (soft_capacity.is_some_and(|soft| items >= soft) || soft_bytes.is_some_and(|soft| bytes >= soft.0));
        if lane.is_hard(items, bytes, params) {
            Mark::Hard
        } else if is_soft {
            Mark::Between
        } else {
            Mark::Below
        }
    }

    /// Whether the edge is at its soft mark or beyond.
    pub(super) fn is_pressed(&self, params: &Params) -> bool {
        self.mark(0, params) != Mark::Below
    }

    #[cold]
    pub(super) fn publish(&self, params: &Params, staged: &mut Vec<Message<T>>, runs: &[Run]) -> Result<(), EdgeFull> {
        let mut result = Ok(());
        for Stamped { message, run } in stamped(staged, runs) {
            let class = message.header().qos;
            let at = self.lane_of(class);
            let bytes = T::bytes(&message) as u64;
            let lose = |reason| params.shared.producer.lose(reason, 1);
            let evict = || {
                let gone = self.0[at].queue.pop();
                if let Some(gone) = &gone {
                    self.0[at].bytes.evicted.add(T::bytes(&gone.message) as u64);
                    lose(evicted(params.policy.when_full));
                }
                gone.is_some()
            };
            match verdict(params, class, self.mark(at, params), bytes) {
                AdmissionVerdict::Take => {}
                AdmissionVerdict::Evict(Some(n)) => (0..n).for_each(|_| {
                    evict();
                }),
                AdmissionVerdict::Evict(None) => while self.mark(at, params) == Mark::Hard && evict() {},
                AdmissionVerdict::Lose(reason) => {
                    lose(reason);
                    continue;
                }
                AdmissionVerdict::Fail => {
                    lose(Reason::FullNewest);
                    result = Err(EdgeFull);
                    continue;
                }
            }
            self.0[at].bytes.sent.add(bytes);
            // There is room, made or checked above: only the consumer changes the lane meanwhile,
            // and it only makes room.
            if self.0[at].queue.push(Stamped { message, run }).is_err() {
                self.0[at].bytes.evicted.add(bytes);
                lose(Reason::FullNewest);
            }
        }
        result
    }

    /// Appends up to `n` messages to the list, urgent ones first. Returns whether there were any.
    pub(super) fn fill(&self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) -> bool {
        let mut left = n;
        for lane in self.0.iter().rev() {
            while left > 0 {
                let Some(stamped) = lane.queue.pop() else { break };
                // One by one, so that each message taken makes room immediately.
                lane.bytes.taken.add(T::bytes(&stamped.message) as u64);
                into.push(stamped.message);
                push_run(into_runs, stamped.run);
                left -= 1;
            }
        }
        left < n
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::policy::WhenFull;
    use crate::base::unit::Bytes;
    use crate::edge::{EdgeBuffers, Rx, Tx, local};
    use crate::host::clock::Time;
    use crate::message::payload::{Header, Plain};

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Number(u64);
    impl Plain for Number {}

    fn edge(when_full: WhenFull, policy: EdgePolicy) -> (Tx<Number>, Rx<Number>, Params) {
        let params = Params {
            index: 0,
            name: "a/out -> b/in".into(),
            capacity: 4,
            buffer: 64,
            emits: 1,
            policy: EdgePolicy { when_full, ..policy },
            largest: 8,
            shared: Arc::default(),
            producer_bell: Arc::default(),
            consumer_bell: Arc::default(),
        };
        let (tx, rx) = local(&params, &mut EdgeBuffers::default());
        (tx, rx, params)
    }

    fn send(tx: &mut Tx<Number>, qos: Qos, numbers: std::ops::Range<u64>) -> bool {
        let message = |n| Message::new(Header { qos, ..Header::new(n, Time(n)) }, Number(n));
        let mut staged: Vec<_> = numbers.map(message).collect();
        let n = staged.len() as u32;
        tx.publish(&mut staged, &[Run { sent: 7, n, weight: 1, ..Run::default() }]).is_ok()
    }

    fn take(rx: &mut Rx<Number>, n: usize) -> Vec<u64> {
        let (mut items, mut runs) = (Vec::new(), Vec::new());
        rx.fill(n, &mut items, &mut runs);
        rx.received(items.len() as u64);
        assert_eq!(runs.iter().map(|run| run.n as usize).sum::<usize>(), items.len());
        items.into_iter().map(|message| message.body.0).collect()
    }

    fn is_balanced(params: &Params, left: u64) {
        let shared = &params.shared;
        let lost: u64 = Reason::ALL.iter().map(|reason| shared.lost(*reason)).sum();
        assert_eq!(shared.producer.moved.get(), shared.consumer.moved.get() + lost + left);
    }

    /// Promise (edges): Above a soft watermark, an edge decides by its policy and by the priority
    /// of the message.
    ///
    /// The messages kept of six, by an edge for four with a soft mark at two.
    #[test]
    fn a_soft_mark_does_what_policy_and_class_say() {
        use Qos::{Background, Normal, Urgent};
        use WhenFull::{DropNewest, DropOldest, Fail};
        for (when_full, soft_evict, class, kept, is_ok) in [
            (DropNewest, false, Normal, vec![0, 1], true),
            (DropNewest, false, Urgent, vec![0, 1, 2, 3], true),
            (DropNewest, false, Background, vec![0, 1], true),
            (DropOldest, false, Normal, vec![2, 3, 4, 5], true),
            (DropOldest, true, Normal, vec![4, 5], true),
            (DropOldest, true, Urgent, vec![2, 3, 4, 5], true),
            (DropOldest, false, Background, vec![0, 1], true),
            (Fail, false, Normal, vec![0, 1, 2, 3], false),
        ] {
            let (mut tx, mut rx, params) = edge(
                when_full,
                EdgePolicy { soft_capacity: Some(2), soft_evict: Some(soft_evict), ..EdgePolicy::default() },
            );
            assert!(!tx.is_pressed());
            let what = format!("{when_full:?} {soft_evict} {class:?}");
            assert_eq!(send(&mut tx, class, 0..6), is_ok, "{what}");
            assert!(tx.is_pressed());
            assert_eq!(take(&mut rx, 64), kept, "{what}");
            is_balanced(&params, 0);
        }
    }

    /// Promise (edges): An edge below its byte limit accepts one more message of any size.
    #[test]
    fn a_cap_on_bytes_is_reached_and_not_passed() {
        // Eight bytes each: the third finds 16 of 20 used, and is accepted.
        let cap = EdgePolicy { max_bytes: Some(Bytes(20)), ..EdgePolicy::default() };
        for (when_full, kept) in [(WhenFull::DropNewest, vec![0, 1, 2]), (WhenFull::DropOldest, vec![3, 4, 5])] {
            let (mut tx, mut rx, params) = edge(when_full, cap);
            send(&mut tx, Qos::Normal, 0..6);
            assert_eq!(take(&mut rx, 64), kept, "{when_full:?}");
            is_balanced(&params, 0);
        }
        let (mut tx, mut rx, params) = edge(WhenFull::Block, cap);
        assert_eq!(tx.room(1, || 0), 3);
        send(&mut tx, Qos::Normal, 0..3);
        assert_eq!(tx.room(1, || 0), 0);
        assert!(rx.is_full());
        assert_eq!(take(&mut rx, 1), [0]);
        assert_eq!(tx.room(1, || 0), 1);
        is_balanced(&params, 2);
    }

    /// Promise (edges): A message that alone reaches the byte limit evicts nothing; at the limit,
    /// `drop_oldest` loses it (`too_large`).
    #[test]
    fn a_message_as_large_as_the_cap_is_accepted_if_there_is_room_and_evicts_nothing() {
        let (mut tx, mut rx, params) =
            edge(WhenFull::DropOldest, EdgePolicy { max_bytes: Some(Bytes(8)), ..EdgePolicy::default() });
        send(&mut tx, Qos::Normal, 0..2);
        assert_eq!(take(&mut rx, 64), [0]);
        assert_eq!(params.shared.lost(Reason::TooLarge), 1);
        is_balanced(&params, 0);
    }

    /// Promise (edges): Urgent messages that have a lane overtake other messages and keep their own
    /// order.
    #[test]
    fn urgent_messages_overtake_others_and_keep_their_own_order() {
        let (mut tx, mut rx, params) =
            edge(WhenFull::Block, EdgePolicy { urgent_capacity: Some(2), ..EdgePolicy::default() });
        send(&mut tx, Qos::Normal, 0..3);
        send(&mut tx, Qos::Urgent, 10..12);
        // The next message may need either lane.
        assert_eq!(tx.room(1, || 0), 0);
        assert_eq!(rx.len(), 5);
        assert_eq!(take(&mut rx, 3), [10, 11, 0]);
        assert_eq!(take(&mut rx, 64), [1, 2]);
        is_balanced(&params, 0);
    }
}
