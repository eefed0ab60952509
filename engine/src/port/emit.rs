//! The emitter passed to a node: its ports, the time of the turn, and the headers of a source's
//! messages.

use crate::base::policy::{ClockOffset, NodePolicy, Qos};
use crate::host::clock::{Clock, Time};
use crate::message::origins::Trace;
use crate::message::payload::Header;
use crate::message::tensor::{Tensor, TensorMut};
use crate::port::error::NodeError;
use crate::port::intake::Lead;
use crate::port::output::{Outputs, Port, PortParts, PortSet};
use crate::port::{Inputs, Taken};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

/// The outputs of a node, passed to each call. It dereferences to the node's port, the tuple of its
/// ports, or their list: `out.send(..)`, `out.1.send(..)`, `out[2].send(..)`.
///
/// ```
/// use limen::node::prelude::*;
/// # struct Sum;
/// # impl Sum {
/// fn apply(
///     &mut self,
///     input: Message<Tensor>,
///     out: &mut Emit<(Tensor, Tensor)>,
/// ) -> Result<(), NodeError> {
///     let mut sum = out.0.loan(input.header())?;
///     sum.as_mut_slice::<f32>()?[0] = input.body.as_slice::<f32>()?.iter().sum();
///     out.0.send(sum);
///     if out.1.is_connected() {
///         out.1.send(input);
///     }
///     Ok(())
/// }
/// # }
/// ```
// What a single message needs comes first.
#[repr(C)]
pub struct Emit<O: Outputs> {
    pub(crate) now: Time,
    pub(crate) wake: Time,
    pub(crate) seq: u64,
    pub(crate) ports: O::Ports,
    pub(crate) clock: Clock,
    offset: ClockOffset,
    /// The header fields common to all of a source's messages.
    begun: Header,
    estimate: ClockEstimate,
    /// The origins of the node's calls, if tracked.
    pub(crate) trace: Option<Rc<RefCell<Trace>>>,
    /// Which message of a call represents it.
    pub(crate) lead: Lead,
}

/// Header values common to all messages of a source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begin {
    /// Its source number.
    pub(crate) source: u16,
    pub(crate) qos: Qos,
    pub(crate) offset: ClockOffset,
}

impl Begin {
    /// The values for a source.
    pub(crate) fn new(source: u16, policy: &NodePolicy) -> Self {
        Begin { source, qos: policy.qos.unwrap_or_default(), offset: policy.clock }
    }
}

/// The estimated clock offset of a source's device.
#[derive(Debug)]
struct ClockEstimate {
    /// When the current estimation window began, and the smallest offset from the run's clock in
    /// this window and in the previous one, ns.
    since: Cell<u64>,
    least: Cell<i64>,
    before: Cell<i64>,
}

/// Length of an estimation window, ns. A sample older than two windows is outdated, because clocks
/// drift.
const ESTIMATE_NS: u64 = 10_000_000_000;

impl ClockEstimate {
    fn new() -> Self {
        ClockEstimate { since: Cell::new(0), least: Cell::new(i64::MAX), before: Cell::new(i64::MAX) }
    }

    /// An origin by the run's clock.
    #[inline]
    fn origin(&self, offset: ClockOffset, origin: Time, clock: &Clock) -> Time {
        if offset == ClockOffset::None { origin } else { self.map(offset, origin, clock) }
    }

    #[cold]
    fn map(&self, offset: ClockOffset, time: Time, clock: &Clock) -> Time {
        // A sentinel passes through unchanged.
        if time == Time::ZERO || time == Time::NEVER {
            return time;
        }
        let by = match offset {
            ClockOffset::None => 0,
            ClockOffset::By(ns) => ns,
            ClockOffset::Auto => self.offset_of(time, clock.now().0),
        };
        Time(time.0.saturating_add_signed(by))
    }

    fn offset_of(&self, time: Time, now: u64) -> i64 {
        let distance = now.wrapping_sub(time.0) as i64;
        let age = now.saturating_sub(self.since.get());
        if age > ESTIMATE_NS {
            self.since.set(now);
            let least = self.least.replace(i64::MAX);
            // After a long silence, earlier samples are too old.
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
        Emit {
            ports,
            now: Time::ZERO,
            seq: 0,
            wake: Time::NEVER,
            clock,
            offset,
            begun,
            estimate: ClockEstimate::new(),
            trace,
            lead: Lead::default(),
        }
    }

    /// Returns the time at which this turn began, by the run's clock. Reads no clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Reads the run's clock. Takes about 20 ns.
    pub fn clock(&self) -> Time {
        self.clock.now()
    }

    /// Returns the header for the output of this call of a source: its sequence number, and
    /// `origin` by the clock of the source's device, converted as the graph's `clock` says.
    pub fn header(&self, origin: Time) -> Header {
        self.header_here(self.estimate.origin(self.offset, origin, &self.clock))
    }

    /// Returns the header for what a call makes of its messages: with `join`, that of the `trigger`
    /// or the `anchor`. Without these it is the header of the message that began first or, with
    /// `policy: sample`, of the message that began last.
    ///
    /// ```
    /// use limen::Tensor;
    /// use limen::node::{Emit, Many, MessageSet, NodeError};
    /// fn apply(set: MessageSet<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    ///     let header = out.header_of::<Many<Tensor>>(&set);
    ///     let sum = out.loan(header)?;
    ///     out.send(sum);
    ///     Ok(())
    /// }
    /// ```
    pub fn header_of<'a, I: Inputs>(&self, taken: &'a Taken<I>) -> &'a Header {
        self.lead.header_of::<I>(taken)
    }

    /// As [`Emit::header`], with an origin by the run's own clock.
    pub(crate) fn header_here(&self, origin: Time) -> Header {
        // Copied whole, which takes a third of the stores of a field-by-field copy.
        let mut header = self.begun;
        header.seq = self.seq;
        header.origin = origin;
        header.trace |= self.seq;
        header
    }

    /// Ends a call of a source, and returns whether it has sent anything: only then it uses a
    /// sequence number.
    #[inline(always)]
    pub(crate) fn end_call(&mut self) -> Result<bool, NodeError> {
        let has_emitted = self.ports.has_emitted();
        self.ports.commit()?;
        self.seq += u64::from(has_emitted);
        Ok(has_emitted)
    }

    /// Makes up to `most` calls of a source that send a tensor of a port each. Returns how many
    /// were made.
    ///
    /// # Errors
    /// That of `fill`, whose call is not made.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        port: impl FnOnce(&mut O::Ports) -> &mut Port<Tensor>,
        most: u64,
        origin: Time,
        fill: impl FnMut(&mut TensorMut, u64) -> Result<(), NodeError>,
    ) -> Result<u64, NodeError> {
        let Emit { ports, seq, begun, offset, estimate, clock, .. } = self;
        port(ports).fill(begun, || estimate.origin(*offset, origin, clock), seq, most, fill)
    }

    /// Begins a new segment: later messages of this source do not continue the earlier ones. A
    /// source that reads a file again begins one; the engine does when it rebuilds a source.
    pub fn begin_segment(&mut self) {
        self.begun.segment = self.begun.segment.wrapping_add(1);
    }

    /// Requests a call of [`Transform::wake`](crate::node::Transform::wake) at a time of the run's
    /// clock. A later request replaces an earlier one.
    ///
    /// ```
    /// use limen::node::prelude::*;
    /// # struct Delay;
    /// # impl Delay {
    /// fn apply(&mut self, _: Message<Tensor>, out: &mut Emit<Tensor>) -> Result<(), NodeError> {
    ///     out.wake_at(out.now() + 5_000_000); // in 5 ms
    ///     Ok(())
    /// }
    /// # }
    /// ```
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
