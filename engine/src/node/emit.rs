//! What a node emits through: its ports, the time of the turn, the headers of what a source begins.

use crate::base::policy::{ClockOffset, NodePolicy, Qos};
use crate::host::clock::{Clock, Time};
use crate::message::origins::Trace;
use crate::message::payload::Header;
use crate::node::port::{Outputs, PortParts, PortSet};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// What a call is handed to emit through. It is the node's port, the tuple of its ports, or their list:
/// `out.send(..)`, `out.1.send(..)`, `out[2].send(..)`.
pub struct Emit<O: Outputs> {
    pub(crate) ports: O::Ports,
    pub(crate) now: Time,
    pub(crate) seq: u64,
    pub(crate) wake: Time,
    pub(crate) clock: Clock,
    offset: ClockOffset,
    /// The header of a source's messages but for what is each message's own.
    begun: Header,
    domain: Domain,
    /// Where origins are followed: those of the node's calls.
    pub(crate) trace: Option<Rc<RefCell<Trace>>>,
}

/// What all messages of a source begin with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begin {
    /// Its number among the sources.
    pub(crate) source: u16,
    pub(crate) qos: Qos,
    pub(crate) offset: ClockOffset,
}

impl Begin {
    /// Of the source of a number.
    pub(crate) fn new(source: u16, policy: &NodePolicy) -> Self {
        Begin { source, qos: policy.qos.unwrap_or_default(), offset: policy.clock }
    }
}

/// The clock of a source's device, as far as it is known.
#[derive(Debug)]
struct Domain {
    /// When the time of estimates began, and the least distance to the run's clock in it and in the one before, ns.
    since: Cell<u64>,
    least: Cell<i64>,
    before: Cell<i64>,
}

/// What was seen for longer than twice this is no longer true of a clock that drifts, ns.
const ESTIMATE_NS: u64 = 10_000_000_000;

impl Domain {
    fn new() -> Self {
        Domain { since: Cell::new(0), least: Cell::new(i64::MAX), before: Cell::new(i64::MAX) }
    }

    #[cold]
    fn map(&self, offset: ClockOffset, time: Time, clock: &Clock) -> Time {
        // What is no time stays none.
        if time == Time::ZERO || time == Time::NEVER {
            return time;
        }
        let by = match offset {
            ClockOffset::None => 0,
            ClockOffset::By(ns) => ns,
            ClockOffset::Auto => self.estimate(time, clock.now().0),
        };
        Time(time.0.saturating_add_signed(by))
    }

    fn estimate(&self, time: Time, now: u64) -> i64 {
        let distance = now.wrapping_sub(time.0) as i64;
        let age = now.saturating_sub(self.since.get());
        if age > ESTIMATE_NS {
            self.since.set(now);
            let least = self.least.replace(i64::MAX);
            // After a long silence what was seen before it is too old.
            self.before.set(if age > 2 * ESTIMATE_NS { i64::MAX } else { least });
        }
        self.least.set(self.least.get().min(distance));
        self.least.get().min(self.before.get())
    }
}

impl<O: Outputs> Emit<O> {
    pub(crate) fn new(parts: Vec<PortParts>, begin: Begin, clock: Clock) -> Self {
        let trace = parts.iter().find_map(|part| part.trace.clone());
        let ports = PortSet::build(parts);
        let Begin { source, qos, offset } = begin;
        let begun = Header { trace: u64::from(source) << 48, source, qos, ..Header::new(0, Time::ZERO) };
        Emit { ports, now: Time::ZERO, seq: 0, wake: Time::NEVER, clock, offset, begun, domain: Domain::new(), trace }
    }

    /// When this turn began. Costs nothing; at most one turn old.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The time at this moment; reads the clock.
    pub fn clock(&self) -> Time {
        self.clock.now()
    }

    /// The header for what this call of a source emits: its sequence number, begun at `origin` by the clock of the source's
    /// device, which the graph may say how to read.
    pub fn header(&self, origin: Time) -> Header {
        let offset = self.offset;
        self.header_here(if offset == ClockOffset::None {
            origin
        } else {
            self.domain.map(offset, origin, &self.clock)
        })
    }

    /// As [`Emit::header`], of what began at a time of the run's own clock.
    pub(crate) fn header_here(&self, origin: Time) -> Header {
        // Copied whole, not field by field: that is a third of the stores.
        let mut header = self.begun;
        header.seq = self.seq;
        header.origin = origin;
        header.trace |= self.seq;
        header
    }

    /// Begins another segment: what this source emits from now on does not go on from what it has emitted. A source that
    /// reads a file again begins one, and the engine does when it builds a source again.
    pub fn begin_segment(&mut self) {
        self.begun.segment = self.begun.segment.wrapping_add(1);
    }

    /// Asks for a call of `wake` at a time; the last call counts.
    pub fn wake_at(&mut self, time: Time) {
        self.wake = time;
    }
}

impl<O: Outputs> Deref for Emit<O> {
    type Target = O::Ports;
    #[inline]
    fn deref(&self) -> &O::Ports {
        &self.ports
    }
}

impl<O: Outputs> DerefMut for Emit<O> {
    #[inline]
    fn deref_mut(&mut self) -> &mut O::Ports {
        &mut self.ports
    }
}

impl<O: Outputs> fmt::Debug for Emit<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emit").field("now", &self.now).field("seq", &self.seq).finish_non_exhaustive()
    }
}
