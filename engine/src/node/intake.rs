//! Intakes: how a stage gets what its node takes.
//!
//! One input hands over bursts as they come. `TensorMut` moves the buffer, or copies it where the plan found that others
//! may hold it too. What several inputs give is [`join`]'s and [`merge`]'s business.

mod join;
mod merge;

pub(crate) use join::{JoinRule, Lead, ZipMany};
pub use merge::{OneOf, Picked};

use crate::edge::{Reason, Remains, Rx, State, rx};
use crate::ledger::Run;
use crate::message::origins::{Origin, Trace};
use crate::message::payload::{Header, Message, Payload};
use crate::message::pool::Pool;
use crate::message::tensor::{Tensor, TensorMut};
use crate::node::{Inputs, PortType};
use std::any::Any;
use std::fmt;

/// Items taken together, and how they were published.
#[doc(hidden)]
#[derive(Debug)]
pub struct Burst<T> {
    pub(crate) items: Vec<T>,
    pub(crate) runs: Vec<Run>,
}

impl<T> Burst<T> {
    pub(crate) fn new(items: Vec<T>, most_runs: usize) -> Self {
        Burst { items, runs: Vec::with_capacity(most_runs) }
    }
}

/// What it takes to make an intake on its thread.
#[doc(hidden)]
pub struct IntakeParts {
    pub(crate) edges: Vec<Box<dyn Any>>,
    /// Where a mutating node's copies go, if it needs any.
    pub(crate) copies: Option<Pool>,
    /// By input: where its interpolated messages go, if it has any.
    pub(crate) blends: Vec<Option<Pool>>,
    /// What belongs together, and how long it is waited for.
    pub(crate) rule: JoinRule,
}

impl fmt::Debug for IntakeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntakeParts").field("edges", &self.edges.len()).finish_non_exhaustive()
    }
}

/// What is left on an edge when its consumer has ended: counted already, or to be counted when all threads have ended.
#[doc(hidden)]
pub struct Left {
    pub(crate) edge: usize,
    pub(crate) counted: u64,
    pub(crate) remains: Option<Box<dyn Remains>>,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("edge", &self.edge).field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// The inputs of one stage.
#[doc(hidden)]
#[allow(private_interfaces)]
pub trait Intake: Sized + 'static {
    type Taken;
    /// Whether a call may be given messages of several inputs.
    const JOINS: bool = false;
    fn build(parts: IntakeParts) -> Self;
    /// An empty burst that never has to grow.
    fn burst(&self) -> Burst<Self::Taken>;
    /// The burst was emptied: its buffer may be used again.
    fn recycle(&mut self, burst: &mut Burst<Self::Taken>) {
        let _ = burst;
    }
    /// How many calls' worth there is, at most `limit`.
    fn ready(&mut self, limit: usize) -> usize;
    /// Shows the header of what is next, where it can be seen without being taken.
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        let _ = see;
    }
    /// Whether there is only one message, sent alone within the worker, so that [`Intake::take_only`] has it.
    fn has_only(&self) -> bool {
        false
    }
    /// Takes the only message there is, where that is cheaper than a burst of one, and says when it was sent; 0 where it is
    /// not recorded.
    fn take_only(&mut self) -> Option<(Self::Taken, u64)> {
        None
    }
    /// Takes everything there is, where it was published together within the worker, is at most `most` calls' worth, and needs
    /// no closer look. The list is empty.
    fn take_burst(&mut self, most: usize, into: &mut Vec<Self::Taken>) -> bool {
        let _ = (most, into);
        false
    }
    /// The run of what [`Intake::take_only`] or [`Intake::take_burst`] took last: `n` messages.
    fn last_run(&self, n: usize) -> Run {
        let _ = n;
        Run::default()
    }
    /// Moves `n` calls' worth into an empty burst.
    fn fill(&mut self, n: usize, into: &mut Burst<Self::Taken>);
    /// How many more calls the node can be given for lack of copies' slots.
    fn room(&mut self, calls: usize) -> usize {
        calls
    }
    /// Counts calls' worth as received.
    fn received(&mut self, calls: u64);
    /// Counts calls' worth, taken but never given to the node, as lost.
    fn lose(&mut self, reason: Reason, calls: u64);
    /// Counts one call's worth as lost that `before` others were taken before.
    fn lose_at(&mut self, before: usize, reason: Reason) {
        let _ = before;
        self.lose(reason, 1);
    }
    /// When to look again although nothing comes; never, by default.
    fn due(&self) -> u64 {
        u64::MAX
    }
    /// Whether the node can be given more. A join cannot once one of its inputs has ended, whatever comes on the others.
    fn state(&self) -> State;
    /// Every input has ended, and nothing is left in it.
    fn is_drained(&self) -> bool {
        self.state() != State::Open
    }
    /// Empties the inputs: the node is gone. Says whether there was anything.
    fn discard(&mut self, reason: Reason) -> bool;
    /// Wakes producers that there is room for again. Says whether there is any since the last time.
    fn ring(&mut self) -> bool;
    /// Whether [`Intake::ring`] would say so.
    fn has_freed(&self) -> bool;
    fn is_perishable(&self) -> bool;
    /// The header whose origin the outputs inherit.
    fn header(taken: &Self::Taken, lead: Lead) -> &Header;
    /// The header of each input's message.
    fn each_header(taken: &Self::Taken, see: &mut dyn FnMut(usize, &Header)) {
        see(0, Self::header(taken, Lead::Oldest));
    }
    /// When each source that is behind what a call takes began it. `fresh` has a bit for each input whose message was in no call
    /// before.
    fn each_origin(taken: &Self::Taken, fresh: u16, see: &mut dyn FnMut(Origin));
    /// Which messages of the call that is `at` others after the first not yet counted were in no call before.
    fn fresh_at(&self, at: usize) -> u16 {
        let _ = at;
        u16::MAX
    }
    fn left(self) -> Vec<Left>;
}

/// A call begins that takes these messages.
pub(crate) fn trace_call<I: Intake>(trace: &mut Trace, taken: &I::Taken, fresh: u16) {
    trace.begin();
    I::each_header(taken, &mut |_, header| trace.takes(header.source, header.seq));
    I::each_origin(taken, fresh, &mut |origin| trace.now.add(origin));
    trace.keep();
}

/// How far apart the messages of one call began, ns.
pub(crate) fn skew_of<I: Intake>(taken: &I::Taken) -> u64 {
    let (mut first, mut last) = (u64::MAX, 0);
    I::each_header(taken, &mut |_, header| {
        first = first.min(header.origin.0);
        last = last.max(header.origin.0);
    });
    last.saturating_sub(first)
}

fn left_of<T: Payload>(rx: Rx<T>, queued: u64) -> Left {
    let edge = rx.index();
    match rx.into_remains() {
        Ok(remains) => Left { edge, counted: queued, remains: Some(remains) },
        Err(n) => Left { edge, counted: queued + n, remains: None },
    }
}

/// One input.
#[doc(hidden)]
pub struct Single<T: Payload> {
    rx: Rx<T>,
}

impl<T: Payload> fmt::Debug for Single<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Single")
    }
}

#[allow(private_interfaces)]
impl<T: Payload> Intake for Single<T> {
    type Taken = Message<T>;
    fn build(mut parts: IntakeParts) -> Self {
        Single { rx: rx(parts.edges.remove(0)) }
    }
    fn burst(&self) -> Burst<Message<T>> {
        Burst::new(self.rx.list(), self.rx.buffer() + 1)
    }
    #[inline]
    fn recycle(&mut self, burst: &mut Burst<Message<T>>) {
        self.rx.recycle(&mut burst.items);
    }
    #[inline]
    fn ready(&mut self, limit: usize) -> usize {
        self.rx.len().min(limit)
    }
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        self.rx.peek(see);
    }
    #[inline]
    fn has_only(&self) -> bool {
        self.rx.has_only()
    }
    #[inline]
    fn take_only(&mut self) -> Option<(Message<T>, u64)> {
        self.rx.take_only()
    }
    #[inline]
    fn take_burst(&mut self, most: usize, into: &mut Vec<Message<T>>) -> bool {
        self.rx.take_burst(most, into)
    }
    #[inline]
    fn last_run(&self, n: usize) -> Run {
        self.rx.last_run(n)
    }
    #[inline]
    fn fill(&mut self, n: usize, into: &mut Burst<Message<T>>) {
        self.rx.fill(n, &mut into.items, &mut into.runs);
    }
    #[inline]
    fn received(&mut self, calls: u64) {
        self.rx.received(calls);
    }
    fn lose(&mut self, reason: Reason, calls: u64) {
        self.rx.lose(reason, calls);
    }
    #[inline]
    fn state(&self) -> State {
        self.rx.state()
    }
    fn discard(&mut self, reason: Reason) -> bool {
        self.rx.discard(reason) > 0
    }
    #[inline]
    fn ring(&mut self) -> bool {
        self.rx.ring()
    }
    fn has_freed(&self) -> bool {
        self.rx.has_freed()
    }
    fn is_perishable(&self) -> bool {
        self.rx.is_perishable()
    }
    #[inline]
    fn header(taken: &Message<T>, _: Lead) -> &Header {
        taken.header()
    }
    fn each_origin(taken: &Message<T>, _: u16, see: &mut dyn FnMut(Origin)) {
        T::each_origin(taken, see);
    }
    fn left(self) -> Vec<Left> {
        vec![left_of(self.rx, 0)]
    }
}

impl<T: Payload> Inputs for T {
    type Taken = Message<T>;
    type Intake = Single<T>;
    const COUNT: Option<usize> = Some(1);
    fn types(_: usize) -> Vec<PortType> {
        vec![PortType::of::<T>()]
    }
}

/// One input of tensors that the node writes.
#[doc(hidden)]
#[derive(Debug)]
pub struct Mutable {
    single: Single<Tensor>,
    copies: Option<Pool>,
    burst: Burst<Message<Tensor>>,
}

impl Mutable {
    fn own(&mut self, message: Message<Tensor>) -> Option<TensorMut> {
        match &mut self.copies {
            None => message.body.into_mut().ok(),
            Some(pool) => message.body.copy_to(pool),
        }
    }
}

#[allow(private_interfaces)]
impl Intake for Mutable {
    type Taken = TensorMut;
    fn build(mut parts: IntakeParts) -> Self {
        let copies = parts.copies.take();
        let single = Single::build(parts);
        let burst = single.burst();
        Mutable { single, copies, burst }
    }
    fn burst(&self) -> Burst<TensorMut> {
        Burst::new(Vec::with_capacity(self.single.rx.buffer()), self.single.rx.buffer() + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        self.single.ready(limit)
    }
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        self.single.peek(see);
    }
    fn room(&mut self, calls: usize) -> usize {
        let Some(pool) = &mut self.copies else { return calls };
        let mut room = calls;
        while room > 0 && !pool.has_free(room) {
            room /= 2;
        }
        room
    }
    fn fill(&mut self, n: usize, into: &mut Burst<TensorMut>) {
        let mut burst = std::mem::replace(&mut self.burst, Burst { items: Vec::new(), runs: Vec::new() });
        self.single.fill(n, &mut burst);
        for message in burst.items.drain(..) {
            // The plan decided between moving and copying, and `room` saw a slot: neither can fail.
            into.items.push(self.own(message).expect("the plan made the buffer exclusive or gave it a copy's slot"));
        }
        into.runs.append(&mut burst.runs);
        self.single.recycle(&mut burst);
        self.burst = burst;
    }
    fn received(&mut self, calls: u64) {
        self.single.received(calls);
    }
    fn lose(&mut self, reason: Reason, calls: u64) {
        self.single.lose(reason, calls);
    }
    fn state(&self) -> State {
        self.single.state()
    }
    fn discard(&mut self, reason: Reason) -> bool {
        self.single.discard(reason)
    }
    fn ring(&mut self) -> bool {
        self.single.ring()
    }
    fn has_freed(&self) -> bool {
        self.single.has_freed()
    }
    fn is_perishable(&self) -> bool {
        self.single.is_perishable()
    }
    fn header(taken: &TensorMut, _: Lead) -> &Header {
        taken.header()
    }
    fn each_origin(taken: &TensorMut, _: u16, see: &mut dyn FnMut(Origin)) {
        taken.0.each_origin(see);
    }
    fn left(self) -> Vec<Left> {
        self.single.left()
    }
}

impl Inputs for TensorMut {
    type Taken = TensorMut;
    type Intake = Mutable;
    const COUNT: Option<usize> = Some(1);
    const WRITES: bool = true;
    fn types(_: usize) -> Vec<PortType> {
        vec![PortType::of::<Tensor>()]
    }
}
