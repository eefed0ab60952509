//! Edges inside a worker, and the buffers that go round in it.
//!
//! A burst is a [`Vec`] that the producer hands over and the consumer takes whole, in a few instructions whatever its length. The
//! consumer gives the emptied buffer back to its worker's [`Buffers`], where the next producer finds it: a chain of cheap nodes
//! works on two buffers, whatever its length, and they stay in the nearest cache.

use super::rx::{Rx, RxKind};
use super::tx::{Tx, TxKind};
use super::{Lanes, Params};
use crate::meter::{Run, push_run};
use crate::payload::{Message, Payload};
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The empty buffers of one worker's local edges, by payload and size.
#[derive(Default)]
pub(crate) struct Buffers(BTreeMap<(TypeId, usize), Box<dyn Any>>);

/// Empty buffers of one payload and size. Those below `free` are there; a place above holds what was given in exchange.
pub(super) struct Spares<T: Payload> {
    buffers: Vec<Vec<Message<T>>>,
    free: usize,
}

impl<T: Payload> Spares<T> {
    /// Gives the buffer used last for a list that has none.
    #[inline]
    pub(super) fn lend(&mut self, to: &mut Vec<Message<T>>) {
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
    pub(super) fn recycle(&mut self, from: &mut Vec<Message<T>>) {
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
pub(super) struct Local<T: Payload> {
    /// How many messages it holds.
    pub(super) len: Cell<usize>,
    /// The run of a message that was sent alone into an empty edge; it is in no list.
    pub(super) lone: Lone,
    /// Without a buffer while there are none.
    pub(super) items: RefCell<Vec<Message<T>>>,
    pub(super) runs: RefCell<Vec<Run>>,
    pub(super) spares: Rc<RefCell<Spares<T>>>,
}

/// The run of one message, word by word: moved as a whole, it would be read back in other portions than it was written in,
/// and have to wait for the cache.
#[derive(Default)]
pub(super) struct Lone {
    is_here: Cell<bool>,
    sent: Cell<u64>,
    accounted: Cell<u64>,
    weight: Cell<u32>,
}

impl Lone {
    #[inline]
    pub(super) fn put(&self, sent: u64, accounted: u64, weight: u32) {
        self.sent.set(sent);
        self.accounted.set(accounted);
        self.weight.set(weight);
        self.is_here.set(true);
    }

    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.is_here.get()
    }

    #[inline]
    pub(super) fn take(&self) -> Option<Run> {
        let run =
            Run { sent: self.sent.get(), accounted: self.accounted.get(), hold: 0, n: 1, weight: self.weight.get() };
        self.is_here.replace(false).then_some(run)
    }
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

impl<T: Payload> Local<T> {
    /// Takes the only message of a list while there is none here.
    #[inline]
    pub(super) fn put(&self, staged: &mut Vec<Message<T>>, sent: u64, accounted: u64, weight: u32) {
        std::mem::swap(&mut *self.items.borrow_mut(), staged);
        self.lone.put(sent, accounted, weight);
        self.len.set(1);
    }

    /// Takes what is staged; the edge then holds `len`.
    #[inline]
    pub(super) fn append(&self, len: usize, staged: &mut Vec<Message<T>>, staged_runs: &[Run]) {
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
    pub(super) fn fill(&self, n: usize, into: &mut Vec<Message<T>>, into_runs: &mut Vec<Run>) {
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

/// Splits `n` messages' worth off a sequence of runs.
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
