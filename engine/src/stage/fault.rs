//! Planted faults: what `fault:` makes of a node's calls, so that a graph's failures can be rehearsed before they happen.
//!
//! Everything that is drawn is drawn from the node's seed: a rehearsal can be repeated.

use crate::clock::Clock;
use crate::error::NodeError;
use crate::unit::Span;
use serde::Deserialize;

/// `fault:` of a node. Calls count from 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct FaultSpec {
    /// This call panics.
    pub(crate) panic_at: Option<u64>,
    /// This call returns an error.
    pub(crate) error_at: Option<u64>,
    /// Every so-many-th call returns an error.
    pub(crate) error_every: Option<u64>,
    /// This call never returns.
    pub(crate) hang_at: Option<u64>,
    /// Every call takes so much longer.
    pub(crate) delay: Option<Span>,
    /// With `delay`: every call takes longer by a time drawn from between them.
    pub(crate) delay_to: Option<Span>,
    /// The part of messages that is lost before the node gets them, 0 to 1.
    #[serde(default)]
    pub(crate) drop: f64,
    /// The part of calls whose messages are sent twice, 0 to 1.
    #[serde(default)]
    pub(crate) duplicate: f64,
    /// What is drawn is drawn from it.
    #[serde(default)]
    pub(crate) seed: u64,
}

impl FaultSpec {
    /// What is wrong with it, if anything, and what would be right.
    pub(crate) fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let calls = [self.panic_at, self.error_at, self.error_every, self.hang_at];
        let is_part = |p: f64| (0.0..=1.0).contains(&p);
        if calls.contains(&Some(0)) {
            Some(("calls count from 1, there is none numbered 0", "write 1 for the first call"))
        } else if !is_part(self.drop) || !is_part(self.duplicate) {
            Some(("`drop` and `duplicate` are parts of the whole, from 0 to 1", "write `0.05` for one in twenty"))
        } else if self.delay_to.is_some_and(|to| self.delay.is_none_or(|from| to.0 < from.0)) {
            Some(("`delay_to` without a shorter `delay`", "write `delay: 1ms, delay_to: 5ms`"))
        } else {
            None
        }
    }
}

/// The faults of one node, at work.
#[derive(Debug)]
pub(crate) struct Fault {
    spec: FaultSpec,
    rng: fastrand::Rng,
    clock: Clock,
    calls: u64,
}

impl Fault {
    pub(crate) fn new(spec: FaultSpec, clock: Clock) -> Self {
        Fault { rng: fastrand::Rng::with_seed(spec.seed), spec, clock, calls: 0 }
    }

    /// What happens instead of the next call, or before it.
    ///
    /// # Errors
    /// Where the call is to fail.
    ///
    /// # Panics
    /// Where the call is to panic.
    pub(crate) fn strike(&mut self) -> Result<(), NodeError> {
        self.calls += 1;
        let call = self.calls;
        if let Some(delay) = self.spec.delay {
            let (from, to) = (delay.as_nanos(), self.spec.delay_to.unwrap_or(delay).as_nanos());
            self.clock.sleep(if to > from { self.rng.u64(from..=to) } else { from });
        }
        if self.spec.hang_at == Some(call) {
            self.clock.hang();
        }
        assert!(self.spec.panic_at != Some(call), "planted by `fault`");
        if self.spec.error_at == Some(call) || self.spec.error_every.is_some_and(|n| call.is_multiple_of(n)) {
            return Err(NodeError::input("fault", "planted"));
        }
        Ok(())
    }

    /// Whether the next message is lost.
    pub(crate) fn drops(&mut self) -> bool {
        self.spec.drop > 0.0 && self.rng.f64() < self.spec.drop
    }

    /// Whether what the call sent is sent twice.
    pub(crate) fn duplicates(&mut self) -> bool {
        self.spec.duplicate > 0.0 && self.rng.f64() < self.spec.duplicate
    }
}
