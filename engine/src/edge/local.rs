//! Edges inside a worker, and the worker's pool of buffers.
//!
//! A burst is a [`Vec`] that the producer hands over and the consumer takes whole, in a few
//! instructions whatever its length. The consumer returns the emptied buffer to its worker's
//! [`EdgeBuffers`], where the next producer finds it: a chain of cheap nodes of any length works on
//! two buffers, which stay in the L1 cache.

use super::rx::{Rx, RxKind};
use super::tx::{Tx, TxKind};
use super::{EdgeShared, Lanes, Params};
use crate::host::footprint::Footprint;
use crate::host::sync::Arc;
use crate::ledger::{Run, push_run};
use crate::message::payload::{Message, Payload};
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The empty buffers of one worker's local edges, by payload and size.
#[derive(Default)]
pub(crate) struct EdgeBuffers {
    spares: HashMap<(TypeId, usize), Box<dyn Any>>,
    /// The memory of these buffers and of the edges.
    pub(crate) footprint: Footprint,
}

/// Empty buffers of one payload and size. Entries below `free` have a buffer, the others have none.
pub(super) struct Spares<T: Payload> {
    buffers: Vec<Vec<Message<T>>>,
    free: usize,
}

impl<T: Payload> Spares<T> {
    /// Lends the most recently used buffer to a list without one.
    #[inline]
    pub(super) fn lend(&mut self, to: &mut Vec<Message<T>>) {
        if let Some(free) = self.free.checked_sub(1)
            && let Some(place) = self.buffers.get_mut(free)
        {
            // The old value is not read: it was just written word by word, and a wider read would
            // defeat store-to-load forwarding. It is an empty list without a buffer.
            std::mem::forget(std::mem::replace(to, std::mem::take(place)));
            self.free = free;
        }
    }

    /// Takes the buffer of an empty list back.
    #[inline]
    pub(super) fn recycle(&mut self, from: &mut Vec<Message<T>>) {
        if let Some(place) = self.buffers.get_mut(self.free) {
            std::mem::swap(place, from);
            self.free += 1;
        }
    }
}

impl EdgeBuffers {
    /// The spares for buffers of `size` messages, with three added: an edge holds one buffer, its
    /// producer fills one, and its consumer empties one.
    fn spares<T: Payload>(&mut self, size: usize) -> Rc<RefCell<Spares<T>>> {
        let new = || Box::new(Rc::new(RefCell::new(Spares::<T> { buffers: Vec::new(), free: 0 })));
        let spares = self.spares.entry((TypeId::of::<T>(), size)).or_insert_with(|| new());
        let spares = spares.downcast_ref::<Rc<RefCell<Spares<T>>>>().expect("the key names the payload").clone();
        let mut grown = spares.borrow_mut();
        grown.buffers.extend((0..3).map(|_| Vec::with_capacity(size)));
        grown.free = grown.buffers.len();
        grown.buffers.iter().for_each(|buffer| self.footprint.add(buffer.as_ptr(), 64));
        drop(grown);
        spares
    }
}

/// An edge inside a worker.
// What a single message needs comes first, in one cache line if the message is a handle.
#[repr(C, align(64))]
pub(crate) struct Local<T: Payload> {
    /// Number of messages held.
    pub(super) len: Cell<usize>,
    capacity: usize,
    shared: Arc<EdgeShared>,
    /// How messages are kept, and the run of a single message or of one burst, which is not in
    /// `runs`.
    run: RunCells,
    /// A message that was sent alone; not in `items`.
    single: Cell<Option<Message<T>>>,
    /// Has no buffer while empty.
    pub(super) items: RefCell<Vec<Message<T>>>,
    pub(super) runs: RefCell<Vec<Run>>,
    pub(super) spares: Rc<RefCell<Spares<T>>>,
}

/// How an edge inside a worker keeps its messages and their runs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(u32)]
enum BurstForm {
    /// Both in lists.
    #[default]
    Listed,
    /// One message, sent into an empty edge.
    Single,
    /// A list of messages that were published together into an empty edge.
    Burst,
}

/// A run stored word by word: moved as a whole it would be read with other widths than it was
/// written, which defeats store-to-load forwarding. The form is here because it fills the word of
/// the weight.
#[derive(Default)]
#[repr(C)]
struct RunCells {
    form: Cell<BurstForm>,
    weight: Cell<u32>,
    sent: Cell<u64>,
    accounted: Cell<u64>,
}

impl RunCells {
    #[inline(always)]
    fn set(&self, sent: u64, accounted: u64, weight: u32) {
        self.sent.set(sent);
        // These are not read if the run is not recorded.
        if sent != 0 {
            self.accounted.set(accounted);
            self.weight.set(weight);
        }
    }

    #[inline]
    fn get(&self, n: u32) -> Run {
        Run { sent: self.sent.get(), accounted: self.accounted.get(), wait: 0, n, weight: self.weight.get() }
    }
}

pub(crate) fn local<T: Payload>(params: &Params, buffers: &mut EdgeBuffers) -> (Tx<T>, Rx<T>) {
    if params.policy.checks_each_message() {
        let lanes = Lanes::new(params);
        let tx = Tx::new(params.clone(), TxKind::Inspecting(lanes.clone(), true));
        return (tx, Rx::new(params.clone(), RxKind::Inspecting(lanes)));
    }
    let shared = Rc::new(Local {
        len: Cell::new(0),
        capacity: params.capacity,
        run: RunCells::default(),
        single: Cell::new(None),
        items: RefCell::default(),
        runs: RefCell::new(Vec::with_capacity(params.buffer + 1)),
        spares: buffers.spares(params.buffer),
        shared: params.shared.clone(),
    });
    buffers.footprint.add(&*shared, 64);
    buffers.footprint.add_value(&params.shared.producer.moved);
    buffers.footprint.add_value(&params.shared.consumer.moved);
    (Tx::new(params.clone(), TxKind::Local(shared.clone())), Rx::new(params.clone(), RxKind::Local(shared)))
}

impl<T: Payload> Local<T> {
    /// Whether the edge is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Whether [`Local::put_all`] may send `n` messages: the edge is empty, has room for them, and
    /// `n` is at least 1.
    #[inline(always)]
    pub(crate) fn takes_all(&self, n: usize) -> bool {
        self.is_empty() && n.wrapping_sub(1) < self.capacity
    }

    /// Sends messages that were published together; requires [`Local::takes_all`].
    #[inline(always)]
    pub(crate) fn put_all(&self, staged: &mut Vec<Message<T>>, sent: u64, accounted: u64, weight: u32) {
        // Nothing else is tested for a single message: more branches in a turn make it harder to
        // predict which stage comes next.
        if staged.len() == 1
            && let Some(message) = staged.pop()
        {
            self.put(message, sent, accounted, weight);
        } else {
            self.put_burst(staged, sent, accounted, weight);
        }
    }

    /// Sends a message into an empty edge. Out of line, so that the message arrives in registers:
    /// copying it from where the node has just written it would defeat store-to-load forwarding.
    #[inline(never)]
    fn put(&self, message: Message<T>, sent: u64, accounted: u64, weight: u32) {
        self.shared.producer.moved.add(1);
        self.run.set(sent, accounted, weight);
        // It was `None`: forgetting it skips a test.
        std::mem::forget(self.single.replace(Some(message)));
        self.run.form.set(BurstForm::Single);
        self.len.set(1);
    }

    #[inline]
    fn put_burst(&self, staged: &mut Vec<Message<T>>, sent: u64, accounted: u64, weight: u32) {
        self.shared.producer.moved.add(staged.len() as u64);
        self.len.set(staged.len());
        self.run.set(sent, accounted, weight);
        self.run.form.set(BurstForm::Burst);
        std::mem::swap(&mut *self.items.borrow_mut(), staged);
    }

    /// Whether the only message here was sent alone.
    #[inline]
    pub(super) fn has_single(&self) -> bool {
        self.run.form.get() == BurstForm::Single
    }

    /// Takes the message that was sent alone, and when it was sent; 0 if it is not recorded. There
    /// is one if [`Local::has_single`].
    #[inline]
    pub(super) fn take_single(&self) -> Option<(Message<T>, u64)> {
        let message = self.single.take()?;
        self.run.form.set(BurstForm::Listed);
        self.len.set(0);
        Some((message, self.run.sent.get()))
    }

    /// Moves all messages to an empty list, if they were published together and are at most `most`.
    #[inline]
    pub(super) fn take_burst(&self, most: usize, into: &mut Vec<Message<T>>) -> bool {
        let has_burst = self.run.form.get() == BurstForm::Burst && self.len.get() <= most;
        if has_burst {
            std::mem::swap(&mut *self.items.borrow_mut(), into);
            self.run.form.set(BurstForm::Listed);
            self.len.set(0);
        }
        has_burst
    }

    /// The run of the `n` messages that [`Local::take_single`] or [`Local::take_burst`] returned
    /// last.
    #[inline]
    pub(super) fn run(&self, n: usize) -> Run {
        self.run.get(n as u32)
    }

    /// Shows the next message.
    pub(super) fn peek(&self, see: impl FnOnce(&Message<T>)) {
        if let Some(message) = self.single.take() {
            see(&message);
            self.single.set(Some(message));
        } else if let Some(message) = self.items.borrow().first() {
            see(message);
        }
    }

    /// Appends the staged messages; the edge then holds `len`.
    #[inline]
    pub(super) fn append(&self, len: usize, staged: &mut Vec<Message<T>>, staged_runs: &[Run]) {
        if self.run.form.get() != BurstForm::Listed {
            self.enlist();
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

    /// Switches to lists, because more messages arrive or only some are taken.
    #[inline(never)]
    fn enlist(&self) {
        self.run.form.set(BurstForm::Listed);
        if let Some(message) = self.single.take() {
            let mut items = self.items.borrow_mut();
            if items.capacity() == 0 {
                self.spares.borrow_mut().lend(&mut items);
            }
            items.push(message);
        }
        self.runs.borrow_mut().push(self.run(self.len.get()));
    }

    #[inline]
    pub(super) fn fill(&self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) {
        if self.run.form.get() != BurstForm::Listed {
            self.enlist();
        }
        if n < self.len.get() || !into.is_empty() || !into_runs.is_empty() {
            return self.fill_partly(n, into, into_runs);
        }
        std::mem::swap(&mut *self.items.borrow_mut(), into);
        let mut runs = self.runs.borrow_mut();
        // Swapping for a smaller list would make this one grow while messages move.
        if into_runs.capacity() < runs.capacity() {
            into_runs.append(&mut runs);
        } else {
            std::mem::swap(&mut *runs, into_runs);
        }
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

/// Splits the runs of `n` messages off the front of a list of runs.
pub(super) fn split_runs(runs: &mut Vec<Run>, n: u32, give: impl FnMut(Run)) {
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

/// Splits the runs of `n` messages off a sequence of runs.
#[inline]
pub(super) fn take_runs(mut n: u32, front: &mut Run, mut next: impl FnMut() -> Option<Run>, mut give: impl FnMut(Run)) {
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
