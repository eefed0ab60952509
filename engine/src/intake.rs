//! Intakes: how a stage gets what its node takes.
//!
//! One input hands over bursts as they come. Several inputs are zipped by sequence: an edge keeps order, so a head
//! whose partner's edge is already past it can never be matched and is counted lost. `TensorMut` moves the buffer, or
//! copies it where the plan found that others may hold it too.

use crate::edge::{Reason, Remains, Rx, State, rx};
use crate::meter::{Run, push_run};
use crate::node::{Inputs, MAX_PORTS, Many, PortType, Set};
use crate::payload::{Header, Message, Payload};
use crate::pool::Pool;
use crate::stage::BURST;
use crate::tensor::{Tensor, TensorMut};
use std::any::Any;
use std::collections::VecDeque;
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
    /// Unmatched messages one input may pile up while a partner is missing.
    pub(crate) patience: Option<usize>,
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
    fn build(parts: IntakeParts) -> Self;
    /// An empty burst that never has to grow.
    fn burst(&self) -> Burst<Self::Taken>;
    /// The burst was emptied: its buffer may be used again.
    fn recycle(&mut self, burst: &mut Burst<Self::Taken>) {
        let _ = burst;
    }
    /// How many calls' worth there is, at most `limit`.
    fn ready(&mut self, limit: usize) -> usize;
    /// Takes the only message there is, where that is cheaper than a burst of one.
    fn take_only(&mut self) -> Option<(Self::Taken, Run)> {
        None
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
    fn is_perishable(&self) -> bool;
    /// The header whose origin the outputs inherit.
    fn header(taken: &Self::Taken) -> &Header;
    /// The header of each input's message.
    fn each_header(taken: &Self::Taken, see: &mut dyn FnMut(usize, &Header)) {
        see(0, Self::header(taken));
    }
    fn left(self) -> Vec<Left>;
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
    #[inline]
    fn take_only(&mut self) -> Option<(Message<T>, Run)> {
        self.rx.take_only()
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
    fn is_perishable(&self) -> bool {
        self.rx.is_perishable()
    }
    #[inline]
    fn header(taken: &Message<T>) -> &Header {
        taken.header()
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
            Some(pool) => {
                let mut copy = pool.take().ok()?;
                *copy.header_mut() = *message.header();
                for (dim, length) in message.body.shape().iter().enumerate() {
                    copy.set_len(dim, *length).ok()?;
                }
                copy.bytes_mut().copy_from_slice(message.body.bytes());
                Some(copy)
            }
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
    fn is_perishable(&self) -> bool {
        self.single.is_perishable()
    }
    fn header(taken: &TensorMut) -> &Header {
        taken.header()
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

/// One side of a join: an edge and what was taken from it and not yet matched.
struct Side<T: Payload> {
    rx: Rx<T>,
    queue: VecDeque<(Message<T>, Run)>,
    items: Vec<Message<T>>,
    runs: Vec<Run>,
}

/// What matching needs of a side, whatever its payload.
trait AnySide {
    /// Sequence and part of the oldest message, looking at the edge if need be.
    fn head(&mut self) -> Option<(u64, u32)>;
    fn lose_head(&mut self, reason: Reason);
    fn waiting(&self) -> usize;
    /// Whether the producer waits for room that only this side can make.
    fn is_full(&self) -> bool;
    fn is_open(&self) -> bool;
}

impl<T: Payload> Side<T> {
    fn new(end: Box<dyn Any>) -> Self {
        let rx: Rx<T> = rx(end);
        let buffer = rx.buffer();
        Side { queue: VecDeque::with_capacity(buffer), items: rx.list(), runs: Vec::with_capacity(buffer + 1), rx }
    }

    fn pop(&mut self) -> (Message<T>, Run) {
        self.queue.pop_front().expect("a match has a head on every side")
    }

    fn discard(&mut self, reason: Reason) -> bool {
        let queued = self.queue.len() as u64;
        self.queue.clear();
        self.rx.lose(reason, queued);
        self.rx.discard(reason) + queued > 0
    }

    fn left(self) -> Left {
        left_of(self.rx, self.queue.len() as u64)
    }
}

impl<T: Payload> AnySide for Side<T> {
    fn head(&mut self) -> Option<(u64, u32)> {
        if self.queue.is_empty() {
            // What is taken early can no longer be replaced by something fresher.
            let n = if self.rx.is_perishable() { 1 } else { BURST };
            self.rx.fill(n, &mut self.items, &mut self.runs);
            let mut items = self.items.drain(..);
            for run in self.runs.drain(..) {
                self.queue.extend(items.by_ref().take(run.n as usize).map(|m| (m, Run { n: 1, ..run })));
            }
            drop(items);
            self.rx.recycle(&mut self.items);
        }
        self.queue.front().map(|(message, _)| (message.header().seq, message.header().part))
    }
    fn lose_head(&mut self, reason: Reason) {
        if self.queue.pop_front().is_some() {
            self.rx.lose(reason, 1);
        }
    }
    fn waiting(&self) -> usize {
        self.queue.len() + self.rx.len()
    }
    fn is_full(&self) -> bool {
        self.rx.is_full()
    }
    fn is_open(&self) -> bool {
        !self.queue.is_empty() || self.rx.state() == State::Open
    }
}

/// Brings every side to the same sequence, losing what cannot be matched. True when there is a match.
fn align(sides: &mut [&mut dyn AnySide], patience: Option<usize>) -> bool {
    loop {
        let mut newest = None;
        let mut complete = true;
        for side in sides.iter_mut() {
            let head = side.head();
            complete &= head.is_some();
            newest = newest.max(head);
        }
        let Some(newest) = newest else { return false };
        let mut lost = false;
        for side in sides.iter_mut() {
            while side.head().is_some_and(|head| head < newest) {
                side.lose_head(Reason::Unmatched);
                lost = true;
            }
        }
        if lost {
            continue;
        }
        if complete {
            return true;
        }
        // A partner that has ended sends no more; one that is merely late is waited for, but not for ever: until patience
        // is used up, or the edges hold no more, which may be what keeps the partner from coming.
        let ended = sides.iter_mut().any(|side| side.head().is_none() && !side.is_open());
        let longest = sides.iter().map(|s| s.waiting()).max().unwrap_or(0);
        if ended || patience.is_some_and(|p| longest > p || sides.iter().any(|s| s.is_full())) {
            for side in sides.iter_mut().filter(|s| s.waiting() > 0) {
                side.lose_head(Reason::Unmatched);
            }
            continue;
        }
        return false;
    }
}

/// The ledger of a set: that of its oldest message, which waited for the newest.
fn combine<'a>(parts: impl Iterator<Item = (&'a Header, Run)>) -> Run {
    let mut oldest: Option<(u64, Run)> = None;
    let mut complete = 0;
    let mut recorded = true;
    for (header, run) in parts {
        recorded &= run.is_recorded();
        complete = complete.max(run.sent);
        if oldest.is_none_or(|(origin, _)| header.origin.0 < origin) {
            oldest = Some((header.origin.0, run));
        }
    }
    let run = oldest.map_or(Run::default(), |(_, run)| run);
    if !recorded {
        return Run { n: 1, ..Run::default() };
    }
    Run { hold: complete.saturating_sub(run.sent), n: 1, ..run }
}

fn joined_state(open: bool, states: impl Iterator<Item = State>) -> State {
    if open {
        State::Open
    } else if states.into_iter().any(|s| s == State::Failed) {
        State::Failed
    } else {
        State::Finished
    }
}

macro_rules! tuple_inputs {
    ($name:ident: $($t:ident $s:ident $i:tt),+) => {
        /// Several inputs of different payloads, zipped.
        #[doc(hidden)]
        pub struct $name<$($t: Payload),+> {
            $($s: Side<$t>,)+
            sets: Vec<(($(Message<$t>,)+), Run)>,
            patience: Option<usize>,
        }

        impl<$($t: Payload),+> fmt::Debug for $name<$($t),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        #[allow(private_interfaces)]
        impl<$($t: Payload),+> Intake for $name<$($t),+> {
            type Taken = ($(Message<$t>,)+);
            fn build(parts: IntakeParts) -> Self {
                let mut edges = parts.edges.into_iter();
                $name {
                    $($s: Side::new(edges.next().expect("an edge for each input")),)+
                    sets: Vec::with_capacity(BURST),
                    patience: parts.patience,
                }
            }
            fn burst(&self) -> Burst<Self::Taken> {
                Burst::new(Vec::with_capacity(BURST), BURST + 1)
            }
            fn ready(&mut self, limit: usize) -> usize {
                while self.sets.len() < limit && align(&mut [$(&mut self.$s),+], self.patience) {
                    $(let $s = self.$s.pop();)+
                    let run = combine([$(($s.0.header(), $s.1)),+].into_iter());
                    self.sets.push((($($s.0,)+), run));
                }
                self.sets.len().min(limit)
            }
            fn fill(&mut self, n: usize, into: &mut Burst<Self::Taken>) {
                for (set, run) in self.sets.drain(..n) {
                    into.items.push(set);
                    push_run(&mut into.runs, run);
                }
            }
            fn received(&mut self, calls: u64) {
                $(self.$s.rx.received(calls);)+
            }
            fn lose(&mut self, reason: Reason, calls: u64) {
                $(self.$s.rx.lose(reason, calls);)+
            }
            fn state(&self) -> State {
                let open = !self.sets.is_empty() || [$(self.$s.is_open()),+] == [true; [$($i),+].len()];
                joined_state(open, [$(self.$s.rx.state()),+].into_iter())
            }
            fn is_drained(&self) -> bool {
                self.sets.is_empty() $(&& !self.$s.is_open())+
            }
            fn discard(&mut self, reason: Reason) -> bool {
                let sets = self.sets.len() as u64;
                self.lose(reason, sets);
                self.sets.clear();
                let found = [$(self.$s.discard(reason)),+];
                sets > 0 || found.contains(&true)
            }
            fn ring(&mut self) -> bool {
                [$(self.$s.rx.ring()),+].contains(&true)
            }
            fn is_perishable(&self) -> bool {
                false
            }
            fn header(taken: &Self::Taken) -> &Header {
                let mut oldest = taken.0.header();
                $(if taken.$i.header().origin < oldest.origin {
                    oldest = taken.$i.header();
                })+
                oldest
            }
            fn each_header(taken: &Self::Taken, see: &mut dyn FnMut(usize, &Header)) {
                $(see($i, taken.$i.header());)+
            }
            fn left(self) -> Vec<Left> {
                let sets = self.sets.len() as u64;
                vec![$({
                    let mut left = self.$s.left();
                    left.counted += sets;
                    left
                }),+]
            }
        }

        impl<$($t: Payload),+> Inputs for ($($t,)+) {
            type Taken = ($(Message<$t>,)+);
            type Intake = $name<$($t),+>;
            const COUNT: Option<usize> = Some([$($i),+].len());
            fn types(_: usize) -> Vec<PortType> {
                vec![$(PortType::of::<$t>()),+]
            }
        }
    };
}
tuple_inputs!(Zip2: A a 0, B b 1);
tuple_inputs!(Zip3: A a 0, B b 1, C c 2);
tuple_inputs!(Zip4: A a 0, B b 1, C c 2, D d 3);

/// Any number of inputs of one payload, zipped.
#[doc(hidden)]
pub struct ZipMany<T: Payload> {
    sides: Vec<Side<T>>,
    sets: VecDeque<(Set<T>, Run)>,
    patience: Option<usize>,
}

impl<T: Payload> fmt::Debug for ZipMany<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZipMany")
    }
}

impl<T: Payload> ZipMany<T> {
    fn align(&mut self) -> bool {
        // At most `MAX_PORTS` sides, so the list of borrows needs no allocation.
        let mut sides: arrayvec::ArrayVec<&mut dyn AnySide, MAX_PORTS> =
            self.sides.iter_mut().map(|s| s as &mut dyn AnySide).collect();
        align(&mut sides, self.patience)
    }
}

#[allow(private_interfaces)]
impl<T: Payload> Intake for ZipMany<T> {
    type Taken = Set<T>;
    fn build(parts: IntakeParts) -> Self {
        ZipMany {
            sides: parts.edges.into_iter().map(Side::new).collect(),
            sets: VecDeque::with_capacity(BURST),
            patience: parts.patience,
        }
    }
    fn burst(&self) -> Burst<Set<T>> {
        Burst::new(Vec::with_capacity(BURST), BURST + 1)
    }
    fn ready(&mut self, limit: usize) -> usize {
        while self.sets.len() < limit && self.align() {
            let mut set = Set::new();
            let mut runs = arrayvec::ArrayVec::<Run, MAX_PORTS>::new();
            for side in &mut self.sides {
                let (message, run) = side.pop();
                set.push(message);
                runs.push(run);
            }
            let run = combine(set.iter().map(Message::header).zip(runs));
            self.sets.push_back((set, run));
        }
        self.sets.len().min(limit)
    }
    fn fill(&mut self, n: usize, into: &mut Burst<Set<T>>) {
        for (set, run) in self.sets.drain(..n) {
            into.items.push(set);
            push_run(&mut into.runs, run);
        }
    }
    fn received(&mut self, calls: u64) {
        self.sides.iter().for_each(|s| s.rx.received(calls));
    }
    fn lose(&mut self, reason: Reason, calls: u64) {
        self.sides.iter().for_each(|s| s.rx.lose(reason, calls));
    }
    fn state(&self) -> State {
        let open = !self.sets.is_empty() || self.sides.iter().all(AnySide::is_open);
        joined_state(open, self.sides.iter().map(|s| s.rx.state()))
    }
    fn is_drained(&self) -> bool {
        self.sets.is_empty() && !self.sides.iter().any(AnySide::is_open)
    }
    fn discard(&mut self, reason: Reason) -> bool {
        let sets = self.sets.len() as u64;
        self.lose(reason, sets);
        self.sets.clear();
        self.sides.iter_mut().fold(sets > 0, |found, side| side.discard(reason) | found)
    }
    fn ring(&mut self) -> bool {
        self.sides.iter_mut().fold(false, |freed, side| side.rx.ring() | freed)
    }
    fn is_perishable(&self) -> bool {
        // A single perishable input is taken late; a join has to take to match.
        self.sides.len() == 1 && self.sides[0].rx.is_perishable()
    }
    fn header(taken: &Set<T>) -> &Header {
        let mut oldest = taken[0].header();
        for message in &taken[1..] {
            if message.header().origin < oldest.origin {
                oldest = message.header();
            }
        }
        oldest
    }
    fn each_header(taken: &Set<T>, see: &mut dyn FnMut(usize, &Header)) {
        taken.iter().enumerate().for_each(|(input, message)| see(input, message.header()));
    }
    fn left(self) -> Vec<Left> {
        let sets = self.sets.len() as u64;
        let add = |mut left: Left| {
            left.counted += sets;
            left
        };
        self.sides.into_iter().map(|side| add(side.left())).collect()
    }
}

impl<T: Payload> Inputs for Many<T> {
    type Taken = Set<T>;
    type Intake = ZipMany<T>;
    const COUNT: Option<usize> = None;
    fn types(ports: usize) -> Vec<PortType> {
        vec![PortType::of::<T>(); ports.min(MAX_PORTS)]
    }
}
