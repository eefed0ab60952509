//! Planted faults: what `fault:` makes of a node's calls, so that a graph's failures can be rehearsed before they happen.
//!
//! Everything that is drawn is drawn from the node's seed: a rehearsal can be repeated.

use crate::base::policy::FaultSpec;
use crate::host::clock::Clock;
use crate::node::error::NodeError;

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
