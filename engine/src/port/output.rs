//! Output ports: the path of a node's messages to its edges.
//!
//! A call's messages are staged. They are kept if the call succeeds and discarded if it fails, so
//! that nothing of a failed call is ever published. When the turn ends, the staged messages of
//! every port go to its edges: shared into all but the last, moved into the last.

mod sets;

pub use sets::PortList;

use crate::base::policy::Qos;
use crate::edge::{Local, Tx, tx};
use crate::host::clock::Time;
use crate::ledger::{Run, push_run};
use crate::message::origins::{Origins, Trace};
use crate::message::payload::{Header, Message, Payload};
use crate::message::pool::Pool;
use crate::message::tensor::{Tensor, TensorMut};
use crate::port::PortType;
use crate::port::error::{NodeError, NodeErrorKind};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hint::cold_path;
use std::rc::Rc;

/// The outputs of a node: a payload, a tuple of payloads, or [`Many`](crate::port::Many). Sealed:
/// the engine has ports for each.
pub trait Outputs: SealedOutputs {}

impl<O: SealedOutputs> Outputs for O {}

/// The properties of a type of outputs.
pub trait SealedOutputs: 'static {
    /// One [`Port`], a tuple of them, or a list.
    type Ports: PortSet;
    fn types(ports: usize) -> Vec<PortType>;
    /// Number of outputs; `None` if the node names them while planning.
    const COUNT: Option<usize>;
}

/// The parts an output port is built from on its thread.
pub struct PortParts {
    pub(crate) name: String,
    pub(crate) emits: usize,
    /// Messages that share a slot of the pool.
    pub(crate) rows: usize,
    /// Whether it forwards input messages.
    pub(crate) forwards: bool,
    pub(crate) edges: Vec<Box<dyn Any>>,
    pub(crate) pool: Option<Pool>,
    /// The origins of the node's calls, if tracked.
    pub(crate) trace: Option<Rc<RefCell<Trace>>>,
}

impl fmt::Debug for PortParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortParts").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The ports of one node.
pub trait PortSet: Sized + 'static {
    fn build(parts: Vec<PortParts>) -> Self;
    /// Runs a step on every port.
    fn each(&mut self, step: &mut dyn FnMut(&mut dyn AnyPort));
    /// Returns how many calls every blocking edge and every pool have room for, at most `calls`.
    fn room(&mut self, calls: usize, now: &mut impl FnMut() -> u64) -> usize;
    /// Whether there is room and a slot for the messages of one call: there are edges, all of them
    /// empty and within this worker.
    fn is_clear(&mut self) -> bool;
    /// Wakes the workers of consumers that have been sent messages.
    fn ring(&mut self);
    /// Whether the call has sent anything.
    fn has_emitted(&self) -> bool;
    /// The origin of the only staged message of the first port that has any.
    fn single_origin(&self) -> Option<Time>;
    /// Discards messages staged since the last successful call.
    fn rollback(&mut self);
    /// Ends a successful call: checks it against the declared bounds.
    ///
    /// # Errors
    /// `EmitsBound`.
    fn commit(&mut self) -> Result<(), NodeError>;
    /// Ends a segment: the messages staged since the last one share this ledger.
    fn segment(&mut self, accounted: u64, weight: u32);
    /// Checks that every edge that fails its producer has room for the staged messages of one call.
    /// If not, discards all of them.
    ///
    /// # Errors
    /// `EdgeFull`.
    #[cold]
    fn admit(&mut self) -> Result<(), NodeError> {
        let mut full = None;
        self.each(&mut |port| full = full.take().or_else(|| port.refused_by()));
        let Some(edge) = full else { return Ok(()) };
        self.each(&mut |port| port.take_back());
        Err(NodeErrorKind::EdgeFull { edge }.into())
    }
    /// Stages a second copy of everything staged.
    fn double(&mut self);
    /// Publishes the staged messages.
    ///
    /// # Errors
    /// `EdgeFull` with `when_full: fail`.
    fn publish(&mut self, sent: u64, emit: u64) -> Result<(), NodeError>;
    /// [`PortSet::segment`] and [`PortSet::publish`] for all calls of a turn at once.
    ///
    /// # Errors
    /// As [`PortSet::publish`].
    fn publish_all(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError>;
}

/// The operations of a port that are independent of its payload.
pub trait AnyPort {
    fn close(&mut self, failed: bool);
    fn is_settling(&self) -> bool;
    /// Registers the node as waiting for room. True if it must check once more before sleeping.
    fn request_room(&mut self) -> bool;
    fn origins(&self, into: &mut Vec<(u64, u32)>);
    fn pool_is_empty(&mut self) -> bool;
    /// Whether an edge is at its soft mark, or full.
    fn is_pressed(&self) -> bool;
    /// The edge that fails its producer because it has no room for the staged messages.
    fn refused_by(&self) -> Option<String>;
    /// Discards the staged messages.
    fn take_back(&mut self);
}

/// One output port.
// What a single message needs comes first.
#[repr(C)]
pub struct Port<T: Payload> {
    staged: Staged<T>,
    pool: Option<Pool>,
    edges: Vec<Tx<T>>,
    runs: Vec<Run>,
    emits: usize,
    /// Number of pool slots one call takes.
    slots: usize,
    /// Whether it forwards input messages.
    forwards: bool,
    name: String,
    trace: Option<Rc<RefCell<Trace>>>,
}

/// The messages sent by the calls of this turn. The fields that every call needs share a cache
/// line.
#[repr(C, align(64))]
struct Staged<T: Payload> {
    /// The only edge, if it is within this worker and a call sends one message.
    direct: Option<Rc<Local<T>>>,
    /// Whether there are edges, all of them within this worker, and a call sends one message.
    is_local: bool,
    has_pool: bool,
    items: Vec<Message<T>>,
    /// One more than the number of messages of successful calls: up to this count, a call needs no
    /// check.
    unchecked: usize,
    /// Messages that already belong to a run.
    in_runs: usize,
}

impl<T: Payload> Port<T> {
    fn new(parts: PortParts) -> Self {
        let edges: Vec<Tx<T>> = parts.edges.into_iter().map(tx).collect();
        let mut staged = Vec::new();
        match edges.last() {
            // `room` lends a buffer for each turn.
            Some(last) if last.takes_buffer() => {}
            Some(last) => last.lend(&mut staged),
            None => staged.reserve_exact(parts.emits * crate::edge::BURST),
        }
        let direct = match &edges[..] {
            [edge] if parts.emits == 1 => edge.local(),
            _ => None,
        };
        let is_local = parts.emits == 1 && !edges.is_empty() && edges.iter().all(|edge| edge.local().is_some());
        let has_pool = parts.pool.is_some();
        let staged = Staged { direct, is_local, has_pool, items: staged, unchecked: 1, in_runs: 0 };
        Port {
            name: parts.name,
            emits: parts.emits,
            forwards: parts.forwards,
            slots: parts.emits.div_ceil(parts.rows.max(1)),
            staged,
            runs: Vec::with_capacity(crate::edge::BURST.max(parts.emits) + 1),
            edges,
            pool: parts.pool,
            trace: parts.trace,
        }
    }

    /// Returns the port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the port is connected. Messages sent to an unconnected port are dropped, and
    /// need not be computed.
    pub fn is_connected(&self) -> bool {
        !self.edges.is_empty()
    }

    /// The edge that would fail its producer because it has no room for all messages of these
    /// classes and sizes.
    #[cold]
    pub(crate) fn refusing(&self, coming: impl ExactSizeIterator<Item = (Qos, u64)> + Clone) -> Option<String> {
        let edge = self.edges.iter().find(|edge| edge.refuses(coming.clone()))?;
        Some(edge.name().to_string())
    }

    /// Sends a message, which is published if the call succeeds.
    #[inline]
    pub fn send(&mut self, message: impl Into<Message<T>>) {
        let message = message.into();
        if self.staged.items.len() == self.staged.items.capacity() {
            cold_path();
            return self.send_beyond(message);
        }
        self.staged.items.push(message);
    }

    /// Sends messages of as many calls, one for each. The list is empty afterwards. The last call
    /// may still fail.
    ///
    /// # Errors
    /// As [`PortSet::commit`], about the call before.
    #[inline]
    pub(crate) fn send_all(&mut self, messages: &mut Vec<Message<T>>) -> Result<(), NodeError> {
        self.check()?;
        let staged = &mut self.staged.items;
        // Lists of other sizes stay at their ends: each is as large as its edge needs.
        if staged.is_empty() && staged.capacity() == messages.capacity() {
            std::mem::swap(staged, messages);
        } else {
            staged.append(messages);
        }
        self.staged.unchecked = self.staged.items.len().max(1);
        Ok(())
    }

    /// Either the buffer was handed over with messages published mid-turn, or the call sent more
    /// than declared, which is reported when it ends. Out of line and by value, so that the usual
    /// case keeps the message in registers.
    #[cold]
    #[inline(never)]
    fn send_beyond(&mut self, message: Message<T>) {
        self.borrow_buffer();
        self.staged.items.push(message);
    }

    #[inline(never)]
    fn borrow_buffer(&mut self) {
        if let (0, Some(last)) = (self.staged.items.capacity(), self.edges.last()) {
            last.lend(&mut self.staged.items);
        }
    }

    #[inline(always)]
    fn room(&mut self, calls: usize, now: &mut impl FnMut() -> u64) -> usize {
        let mut room = calls;
        // The usual case, one edge and one message per call, needs no loop and no division.
        if let ([edge], 1) = (&mut self.edges[..], self.emits) {
            room = room.min(edge.room(1, &mut *now));
        } else {
            for edge in &mut self.edges {
                room = room.min(edge.room(self.emits, &mut *now) / self.emits.max(1));
            }
        }
        if self.staged.items.capacity() == 0 {
            self.borrow_buffer();
        }
        if room > 0
            && let Some(pool) = &mut self.pool
        {
            // Fewer calls are made if the pool has no slots for a whole burst.
            while room > 0 && !pool.has_free(room.saturating_mul(self.slots)) {
                room /= 2;
            }
        }
        room
    }

    #[inline]
    fn check(&mut self) -> Result<(), NodeError> {
        if self.staged.items.len() <= self.staged.unchecked { Ok(()) } else { self.check_many() }
    }

    #[inline]
    fn settle(&mut self) {
        self.staged.unchecked = self.staged.items.len() + 1;
    }

    #[cold]
    fn check_many(&mut self) -> Result<(), NodeError> {
        let good = self.staged.unchecked - 1;
        let emitted = self.staged.items.len() - good;
        if emitted > self.emits {
            return Err(NodeErrorKind::EmitsBound { port: self.name.clone(), bound: self.emits }.into());
        }
        // Messages derived from one message are its parts; messages held back and sent together are
        // not.
        let sent = &mut self.staged.items[good..];
        let parent = |message: &Message<T>| (message.header().source, message.header().seq);
        let first = parent(&sent[0]);
        if !self.forwards && sent.iter().all(|message| parent(message) == first) {
            for (part, message) in sent.iter_mut().enumerate() {
                T::set_part(message, part as u32, emitted as u32);
            }
        }
        Ok(())
    }

    #[inline]
    fn segment(&mut self, accounted: u64, weight: u32) {
        self.segment_of(self.staged.items.len() - self.staged.in_runs, accounted, weight);
    }

    #[inline]
    fn segment_of(&mut self, n: usize, accounted: u64, weight: u32) {
        let n = n.min(self.staged.items.len() - self.staged.in_runs) as u32;
        if n > 0 {
            self.staged.in_runs += n as usize;
            // `sent` is set on publishing; until then it only marks whether the run is recorded.
            push_run(&mut self.runs, Run { sent: u64::from(weight > 0), accounted, wait: 0, n, weight });
        }
    }

    #[inline(never)]
    fn edges_are_empty(&self) -> bool {
        self.edges.iter().all(Tx::is_empty)
    }

    /// As [`PortSet::is_clear`], for one of several ports, which may be unconnected.
    #[inline]
    fn is_clear_or_unused(&mut self) -> bool {
        if self.edges.is_empty() {
            self.pool.as_mut().is_none_or(|pool| pool.has_free(self.slots))
        } else {
            self.is_clear()
        }
    }

    /// As [`PortSet::publish_all`], for one of several ports, which may have sent nothing.
    #[inline]
    fn publish_any(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError> {
        if self.staged.items.is_empty() { Ok(()) } else { self.publish_all(accounted, weight, sent, emit) }
    }

    /// Out of line: what a single message within a worker does not need stays apart from what it
    /// needs.
    #[inline(never)]
    fn publish_listed(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError> {
        self.segment(accounted, weight);
        self.publish(sent, emit)
    }

    #[inline]
    fn publish(&mut self, sent: u64, emit: u64) -> Result<(), NodeError> {
        if self.staged.items.is_empty() {
            return Ok(());
        }
        for run in &mut self.runs {
            if run.is_recorded() {
                (run.sent, run.accounted) = (sent, run.accounted + emit);
            }
        }
        let mut full = None;
        match self.edges.split_last_mut() {
            Some((only, [])) => {
                if only.publish(&mut self.staged.items, &self.runs).is_err() {
                    full = Some(only.name().to_string());
                }
            }
            Some((last, others)) => {
                for edge in others {
                    if edge.publish_shared(&self.staged.items, &self.runs).is_err() {
                        full = Some(edge.name().to_string());
                    }
                }
                if last.publish(&mut self.staged.items, &self.runs).is_err() {
                    full = Some(last.name().to_string());
                }
            }
            None => self.staged.items.clear(),
        }
        self.runs.clear();
        (self.staged.unchecked, self.staged.in_runs) = (1, 0);
        full.map_or(Ok(()), |edge| Err(NodeErrorKind::EdgeFull { edge }.into()))
    }
}

impl Port<Tensor> {
    /// Returns a free slot of this port's pool, to be written and sent. Its header is that of the
    /// message it derives from.
    ///
    /// # Errors
    /// If the call takes more slots than it declared messages.
    #[inline(always)]
    pub fn loan(&mut self, header: &Header) -> Result<TensorMut, NodeError> {
        match self.pool.as_mut().and_then(Pool::take_slot) {
            Some(mut tensor) => {
                tensor.set_header(header);
                Ok(tensor)
            }
            None => self.loan_closely(header),
        }
    }

    /// The case of a pool that keeps origins, or without a free slot.
    #[cold]
    #[inline(never)]
    fn loan_closely(&mut self, header: &Header) -> Result<TensorMut, NodeError> {
        let origins = match &self.trace {
            Some(trace) => trace.borrow().of(header.source, header.seq),
            None => Origins::default(),
        };
        let mut tensor =
            self.pool.as_mut().and_then(|pool| pool.take_closely(&origins)).ok_or_else(|| self.no_slot())?;
        *tensor.header_mut() = *header;
        Ok(tensor)
    }

    /// Makes up to `most` calls of a source, from number `seq` on, for which the edges have room:
    /// each sends a tensor that `fill` has written, with the header `begun`, the origin that
    /// `origin` returns, and its number. It ends where the pool's next slot is not free or does not
    /// follow the last. Returns how many calls were made.
    ///
    /// # Errors
    /// That of `fill`, whose call is not made.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        begun: &Header,
        origin: impl FnOnce() -> Time,
        seq: &mut u64,
        most: u64,
        mut fill: impl FnMut(&mut TensorMut, u64) -> Result<(), NodeError>,
    ) -> Result<u64, NodeError> {
        let Port { staged, pool: Some(pool), emits: 1.., .. } = self else { return Ok(0) };
        let (first, room) = (*seq, staged.items.capacity() - staged.items.len());
        let slots = pool.take_run(room.min(most as usize));
        if slots.is_empty() {
            return Ok(0);
        }
        let origin = origin();
        for mut tensor in slots {
            let header = tensor.header_mut();
            *header = *begun;
            (header.seq, header.origin, header.trace) = (*seq, origin, begun.trace | *seq);
            fill(&mut tensor, *seq)?;
            staged.items.push(tensor.into());
            staged.unchecked = staged.items.len() + 1;
            *seq += 1;
        }
        Ok(*seq - first)
    }

    fn no_slot(&self) -> NodeError {
        match &self.pool {
            Some(pool) => pool.is_empty_error().into(),
            None => NodeError::input(&*self.name, "this output forwards its input and has no pool"),
        }
    }

    /// The pool, for taking a whole batch slot.
    pub(crate) fn pool(&mut self) -> Option<&mut Pool> {
        self.pool.as_mut()
    }
}

impl<T: Payload> fmt::Debug for Port<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("name", &self.name)
            .field("staged", &self.staged.items.len())
            .finish_non_exhaustive()
    }
}

impl<T: Payload> AnyPort for Port<T> {
    fn close(&mut self, failed: bool) {
        self.edges.iter_mut().for_each(|e| e.close(failed));
    }
    fn is_settling(&self) -> bool {
        self.edges.iter().any(Tx::is_settling)
    }
    fn request_room(&mut self) -> bool {
        self.edges.iter_mut().fold(false, |is_new, edge| edge.request_room() | is_new)
    }
    fn origins(&self, into: &mut Vec<(u64, u32)>) {
        for message in &self.staged.items {
            push_origin(into, message.header().origin);
        }
    }
    fn pool_is_empty(&mut self) -> bool {
        let slots = self.slots;
        self.pool.as_mut().is_some_and(|p| !p.has_free(slots))
    }
    fn is_pressed(&self) -> bool {
        self.edges.iter().any(Tx::is_pressed)
    }
    fn refused_by(&self) -> Option<String> {
        self.refusing(self.staged.items.iter().map(|message| (message.header().qos, T::bytes(message) as u64)))
    }
    fn take_back(&mut self) {
        self.staged.items.clear();
        self.runs.clear();
        (self.staged.unchecked, self.staged.in_runs) = (1, 0);
    }
}

/// Counts a message's origin, merged with the previous one if equal.
#[inline]
fn push_origin(into: &mut Vec<(u64, u32)>, origin: Time) {
    match into.last_mut() {
        Some((last, n)) if *last == origin.0 => *n += 1,
        _ => into.push((origin.0, 1)),
    }
}

impl<T: Payload> PortSet for Port<T> {
    fn build(mut parts: Vec<PortParts>) -> Self {
        Port::new(parts.remove(0))
    }
    fn each(&mut self, step: &mut dyn FnMut(&mut dyn AnyPort)) {
        step(self);
    }
    #[inline(always)]
    fn room(&mut self, calls: usize, now: &mut impl FnMut() -> u64) -> usize {
        Port::room(self, calls, now)
    }
    #[inline]
    fn is_clear(&mut self) -> bool {
        let are_empty = match &self.staged.direct {
            Some(edge) => edge.is_empty(),
            None => self.staged.is_local && self.edges_are_empty(),
        };
        are_empty && (!self.staged.has_pool || self.pool.as_mut().is_none_or(|pool| pool.has_free(1)))
    }
    #[inline]
    fn ring(&mut self) {
        match &mut self.edges[..] {
            [edge] => edge.ring(),
            edges => edges.iter_mut().for_each(Tx::ring),
        }
    }
    #[inline]
    fn has_emitted(&self) -> bool {
        self.staged.items.len() >= self.staged.unchecked
    }
    #[inline]
    fn single_origin(&self) -> Option<Time> {
        if let [message] = &self.staged.items[..] { Some(message.header().origin) } else { None }
    }
    #[inline]
    fn rollback(&mut self) {
        self.staged.items.truncate(self.staged.unchecked - 1);
    }
    #[inline]
    fn commit(&mut self) -> Result<(), NodeError> {
        self.check()?;
        self.settle();
        Ok(())
    }
    #[inline]
    fn segment(&mut self, accounted: u64, weight: u32) {
        Port::segment(self, accounted, weight);
    }
    fn double(&mut self) {
        for at in 0..self.staged.items.len() {
            let again = self.staged.items[at].share();
            self.staged.items.push(again);
        }
        self.settle();
    }
    #[inline]
    fn publish(&mut self, sent: u64, emit: u64) -> Result<(), NodeError> {
        Port::publish(self, sent, emit)
    }
    #[inline(always)]
    fn publish_all(&mut self, accounted: u64, weight: u32, sent: u64, emit: u64) -> Result<(), NodeError> {
        // The usual case: one consumer, which has taken everything sent before.
        if let Some(edge) = &self.staged.direct
            && edge.takes_all(self.staged.items.len())
        {
            self.staged.unchecked = 1;
            edge.put_all(&mut self.staged.items, if weight > 0 { sent } else { 0 }, accounted + emit, weight);
            return Ok(());
        }
        self.publish_listed(accounted, weight, sent, emit)
    }
}

impl<T: Payload> SealedOutputs for T {
    type Ports = Port<T>;
    const COUNT: Option<usize> = Some(1);
    fn types(_: usize) -> Vec<PortType> {
        vec![PortType::of::<T>()]
    }
}
