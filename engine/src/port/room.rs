//! The calls that a source may make at once.

use crate::host::clock::Time;
use crate::message::tensor::{Tensor, TensorMut};
use crate::port::Many;
use crate::port::emit::Emit;
use crate::port::error::NodeError;
use crate::port::output::{Outputs, Port};
use std::fmt;

/// When a source wants its next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Immediately: there is more.
    More,
    /// At a time of the run's clock, whether or not something was emitted.
    At(Time),
    /// When one of its [`Descriptors`](crate::node::Descriptors) is ready, and at this time of the
    /// run's clock at the latest; [`Time::NEVER`] for no time limit. A source returns this once it
    /// has read everything available without blocking. It is always safe: a descriptor with unread
    /// data is still ready.
    WhenReady(Time),
    /// When something outside the graph wakes its worker, as an inlet's program does by sending.
    /// Without that, the source is called again only when its worker wakes for another reason.
    Idle,
    /// Never: the stream has ended.
    Done,
}

/// Room for the messages of a number of calls of a source. Each call that sends something has a
/// sequence number of its own and is done or failed by itself, whether it is made here or by
/// [`Source::next`](crate::node::Source::next).
pub struct Room<'a, O: Outputs> {
    out: &'a mut Emit<O>,
    /// The number of the first call that there is no room for.
    until: u64,
    has_failed: bool,
}

impl<'a, O: Outputs> Room<'a, O> {
    #[inline]
    pub(crate) fn new(out: &'a mut Emit<O>, until: u64) -> Self {
        Room { out, until, has_failed: false }
    }

    /// Returns for how many calls there is room.
    #[inline]
    pub fn calls(&self) -> u64 {
        self.until - self.out.seq
    }

    /// Returns the time at which this turn began, by the run's clock.
    #[inline]
    pub fn now(&self) -> Time {
        self.out.now
    }

    /// Makes calls until there is room for no more, or one returns something other than
    /// [`Next::More`] or sends nothing. Returns what the last one did; [`Next::More`] if there was
    /// no room.
    ///
    /// # Errors
    /// That of the first call that fails, or the engine's if a call sends more than the node
    /// declared: the call counts as failed, those before it are made, and no more can be made.
    #[inline(always)]
    pub fn each(&mut self, mut call: impl FnMut(&mut Emit<O>) -> Result<Next, NodeError>) -> Result<Next, NodeError> {
        self.finish()?;
        let mut next = Next::More;
        while next == Next::More && self.out.seq < self.until {
            let sent = call(self.out).and_then(|then| {
                next = then;
                self.out.end_call()
            });
            match sent {
                Ok(true) => {}
                // A source that sends nothing and returns `More` is polling for something: other
                // stages get a turn first.
                Ok(false) => break,
                Err(error) => {
                    self.has_failed = true;
                    return Err(error);
                }
            }
        }
        Ok(next)
    }

    /// Checks that more calls can be made, or that the node may return as if none had failed.
    ///
    /// # Errors
    /// If a call has failed.
    #[inline]
    pub(crate) fn finish(&self) -> Result<(), NodeError> {
        if self.has_failed { Err(went_on()) } else { Ok(()) }
    }

    #[inline]
    fn fill_at(
        &mut self,
        port: impl FnOnce(&mut O::Ports) -> &mut Port<Tensor>,
        most: u64,
        origin: Time,
        fill: impl FnMut(&mut TensorMut, u64) -> Result<(), NodeError>,
    ) -> Result<u64, NodeError> {
        self.finish()?;
        let most = most.min(self.calls());
        let filled = self.out.fill(port, most, origin, fill);
        self.has_failed = filled.is_err();
        filled
    }
}

impl Room<'_, Tensor> {
    /// Makes calls that send one tensor each: at most `most`, and as many as there are free slots
    /// that follow each other in the pool. Returns how many, which may be none: then make them with
    /// [`Room::each`]. `fill` is given each tensor and the sequence number of its call. All tensors
    /// have the same `origin`, by the clock of the source's device, as for [`Emit::header`].
    ///
    /// # Errors
    /// That of the first call of `fill` that fails: the call counts as failed and its tensor is not
    /// sent, those before it are made, and no more can be made.
    #[inline]
    pub fn fill(
        &mut self,
        most: u64,
        origin: Time,
        fill: impl FnMut(&mut TensorMut, u64) -> Result<(), NodeError>,
    ) -> Result<u64, NodeError> {
        self.fill_at(|port| port, most, origin, fill)
    }
}

impl Room<'_, Many<Tensor>> {
    /// Makes calls that send one tensor each on one of several outputs; see [`Room::fill`] for one
    /// output. `port` is the index of the output.
    ///
    /// # Errors
    /// The error of the first call of `fill` that fails; see [`Room::fill`].
    ///
    /// # Panics
    /// If `port` is not the index of an output.
    #[inline]
    pub fn fill_port(
        &mut self,
        port: usize,
        most: u64,
        origin: Time,
        fill: impl FnMut(&mut TensorMut, u64) -> Result<(), NodeError>,
    ) -> Result<u64, NodeError> {
        self.fill_at(|ports| &mut ports[port], most, origin, fill)
    }
}

/// The error of a source that makes calls after one has failed, or returns as if none had.
#[cold]
fn went_on() -> NodeError {
    NodeError::other("`next_burst` must return the error of a failed call, but continued")
}

impl<O: Outputs> fmt::Debug for Room<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("calls", &self.calls()).finish_non_exhaustive()
    }
}
