//! Intakes: how a stage takes its node's input messages.
//!
//! A single input passes bursts on unchanged. `TensorMut` moves the buffer, or copies it if the
//! plan found that it may be shared. Several inputs are combined by [`join`] and [`merge`].

mod join;
mod merge;

pub use join::Lead;
pub(crate) use join::{JoinRule, ZipMany};
pub use merge::{OneOf, Picked};

use crate::edge::{EdgeState, Reason, Remains, Rx, rx};
use crate::ledger::Run;
use crate::message::origins::{Origin, Trace};
use crate::message::payload::{Header, Message, Payload};
use crate::message::pool::Pool;
use crate::message::tensor::{Tensor, TensorMut};
use crate::port::PortType;
use std::any::Any;
use std::fmt;

/// Items taken together, and the runs they were published in.
#[derive(Debug)]
pub struct TakenBurst<T> {
    pub(crate) items: Vec<T>,
    pub(crate) runs: Vec<Run>,
}

impl<T> TakenBurst<T> {
    pub(crate) fn new(items: Vec<T>, most_runs: usize) -> Self {
        TakenBurst { items, runs: Vec::with_capacity(most_runs) }
    }
}

/// The properties of a type of inputs.
pub trait SealedInputs: 'static {
    /// The input of one call.
    type Taken;
    type Intake: Intake<Taken = Self::Taken>;
    fn types(ports: usize) -> Vec<PortType>;
    /// Number of inputs; `None` if the graph file names them.
    const COUNT: Option<usize>;
    /// Whether the node writes into its input in place.
    const WRITES: bool = false;
    /// Whether a call gets one message of any input, instead of one of each.
    const MERGES: bool = false;
}

/// The parts an intake is built from on its thread.
pub struct IntakeParts {
    pub(crate) edges: Vec<Box<dyn Any>>,
    /// The pool for a mutating node's copies, if it needs any.
    pub(crate) copies: Option<Pool>,
    /// By input: the pool for interpolated messages, if it has any.
    pub(crate) blends: Vec<Option<(Pool, Option<usize>)>>,
    /// How messages are joined, and how long partners are waited for.
    pub(crate) rule: JoinRule,
}

impl fmt::Debug for IntakeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntakeParts").field("edges", &self.edges.len()).finish_non_exhaustive()
    }
}

/// Messages left on an edge when its consumer has ended: already counted, or to be counted when all
/// threads have ended.
pub struct Left {
    pub(crate) edge: usize,
    pub(crate) counted: u64,
    pub(crate) remains: Option<Box<dyn Remains>>,
    /// In a join by time: how far the nearest message was from a moment for which it was not near
    /// enough, ns.
    pub(crate) nearest: Option<u64>,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("edge", &self.edge).field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// The inputs of one stage.
#[allow(private_interfaces)]
pub trait Intake: Sized + 'static {
    type Taken;
    /// Whether a call may be given messages of several inputs.
    const JOINS: bool = false;
    fn build(parts: IntakeParts) -> Self;
    /// Creates an empty burst that never has to grow.
    fn burst(&self) -> TakenBurst<Self::Taken>;
    /// Takes back the buffer of an emptied burst for reuse.
    fn recycle(&mut self, burst: &mut TakenBurst<Self::Taken>) {
        let _ = burst;
    }
    /// Returns for how many calls messages are ready, at most `limit`.
    fn ready(&mut self, limit: usize) -> usize;
    /// Shows the header of the next message, if it can be read without taking it.
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        let _ = see;
    }
    /// Whether exactly one message is waiting, sent alone within the worker, so that
    /// [`Intake::take_only`] returns it.
    fn has_only(&self) -> bool {
        false
    }
    /// Takes the only waiting message, if [`Intake::has_only`], and returns when it was sent; 0 if
    /// it is not recorded.
    fn take_only(&mut self) -> Option<(Self::Taken, u64)> {
        None
    }
    /// Takes everything waiting, if it was published together within the worker, is enough for at
    /// most `most` calls, and needs no closer look. `into` must be empty.
    fn take_burst(&mut self, most: usize, into: &mut Vec<Self::Taken>) -> bool {
        let _ = (most, into);
        false
    }
    /// The run of the `n` messages that [`Intake::take_only`] or [`Intake::take_burst`] took last.
    fn last_run(&self, n: usize) -> Run {
        let _ = n;
        Run::default()
    }
    /// Moves the messages of `n` calls into an empty burst.
    fn fill(&mut self, n: usize, into: &mut TakenBurst<Self::Taken>);
    /// Returns for how many of `calls` there are slots for copies.
    fn room(&mut self, calls: usize) -> usize {
        calls
    }
    /// Counts the messages of `calls` calls as received.
    fn received(&mut self, calls: u64);
    /// Counts the messages of `calls` calls, taken but never passed to the node, as lost.
    fn lose(&mut self, reason: Reason, calls: u64);
    /// Counts the messages of one call as lost, `before` calls after the first not yet counted.
    fn lose_at(&mut self, before: usize, reason: Reason) {
        let _ = before;
        self.lose(reason, 1);
    }
    /// When to check again although no message arrives; never, by default.
    fn due(&self) -> u64 {
        u64::MAX
    }
    /// Whether more calls are possible. Those of a join end when one of its inputs ends, whatever
    /// arrives on the others.
    fn state(&self) -> EdgeState;
    /// Whether every input has ended and is empty.
    fn is_drained(&self) -> bool {
        self.state() != EdgeState::Open
    }
    /// Empties the inputs of a node that is gone. Returns whether there was anything.
    fn discard(&mut self, reason: Reason) -> bool;
    /// Wakes producers for which room was freed. Returns whether any was freed since the last call.
    fn ring(&mut self) -> bool;
    /// Whether [`Intake::ring`] would return true.
    fn has_freed(&self) -> bool;
    fn is_perishable(&self) -> bool;
    /// The header whose origin the outputs inherit.
    fn header(taken: &Self::Taken, lead: Lead) -> &Header;
    /// The header of each input's message.
    fn each_header(taken: &Self::Taken, see: &mut dyn FnMut(usize, &Header)) {
        see(0, Self::header(taken, Lead::Oldest));
    }
    /// Visits the origin of each source upstream of a call's messages. `fresh` has a bit set for
    /// each input whose message was in no earlier call.
    fn each_origin(taken: &Self::Taken, fresh: u16, see: &mut dyn FnMut(Origin));
    /// Which messages were in no earlier call, for the call `at` places after the first not yet
    /// counted.
    fn fresh_at(&self, at: usize) -> u16 {
        let _ = at;
        u16::MAX
    }
    fn left(self) -> Vec<Left>;
}

/// Traces the start of a call that takes these messages.
pub(crate) fn trace_call<I: Intake>(trace: &mut Trace, taken: &I::Taken, fresh: u16) {
    trace.begin();
    I::each_header(taken, &mut |_, header| trace.takes(header.source, header.seq));
    I::each_origin(taken, fresh, &mut |origin| trace.now.add(origin));
    trace.keep();
}

/// How far apart in time the messages of one call originated, ns.
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
        Ok(remains) => Left { edge, counted: queued, remains: Some(remains), nearest: None },
        Err(n) => Left { edge, counted: queued + n, remains: None, nearest: None },
    }
}

/// One input.
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
    fn burst(&self) -> TakenBurst<Message<T>> {
        TakenBurst::new(self.rx.list(), self.rx.buffer() + 1)
    }
    #[inline]
    fn recycle(&mut self, burst: &mut TakenBurst<Message<T>>) {
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
    fn fill(&mut self, n: usize, into: &mut TakenBurst<Message<T>>) {
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
    fn state(&self) -> EdgeState {
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

impl<T: Payload> SealedInputs for T {
    type Taken = Message<T>;
    type Intake = Single<T>;
    const COUNT: Option<usize> = Some(1);
    fn types(_: usize) -> Vec<PortType> {
        vec![PortType::of::<T>()]
    }
}

/// One input of tensors that the node writes in place.
#[derive(Debug)]
pub struct Mutable {
    single: Single<Tensor>,
    copies: Option<Pool>,
    burst: TakenBurst<Message<Tensor>>,
}

/// Why [`Mutable::own`] cannot fail: the plan chose between moving and copying, and `room` saw a
/// free slot.
const OWNS: &str = "the plan made the buffer exclusive or gave it a copy's slot";

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
    fn burst(&self) -> TakenBurst<TensorMut> {
        TakenBurst::new(Vec::with_capacity(self.single.rx.buffer()), self.single.rx.buffer() + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        self.single.ready(limit)
    }
    fn peek(&self, see: &mut dyn FnMut(&Header)) {
        self.single.peek(see);
    }
    #[inline]
    fn has_only(&self) -> bool {
        self.copies.is_none() && self.single.has_only()
    }
    #[inline]
    fn take_only(&mut self) -> Option<(TensorMut, u64)> {
        let (message, sent) = self.single.take_only()?;
        Some((self.own(message).expect(OWNS), sent))
    }
    #[inline]
    fn last_run(&self, n: usize) -> Run {
        self.single.last_run(n)
    }
    fn room(&mut self, calls: usize) -> usize {
        let Some(pool) = &mut self.copies else { return calls };
        let mut room = calls;
        while room > 0 && !pool.has_free(room) {
            room /= 2;
        }
        room
    }
    fn fill(&mut self, n: usize, into: &mut TakenBurst<TensorMut>) {
        let mut burst = std::mem::replace(&mut self.burst, TakenBurst { items: Vec::new(), runs: Vec::new() });
        self.single.fill(n, &mut burst);
        for message in burst.items.drain(..) {
            into.items.push(self.own(message).expect(OWNS));
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
    fn state(&self) -> EdgeState {
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

impl SealedInputs for TensorMut {
    type Taken = TensorMut;
    type Intake = Mutable;
    const COUNT: Option<usize> = Some(1);
    const WRITES: bool = true;
    fn types(_: usize) -> Vec<PortType> {
        vec![PortType::of::<Tensor>()]
    }
}
