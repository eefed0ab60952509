//! Injected faults: `fault:` injects failures into a node's calls, so that a graph's response can
//! be tested.
//!
//! All random choices come from the node's seed, so a run with faults is reproducible.

use crate::base::policy::FaultSpec;
use crate::host::clock::Clock;
use crate::port::error::NodeError;

/// The injected faults of one node.
#[derive(Debug)]
pub(crate) struct InjectedFaults {
    spec: FaultSpec,
    rng: fastrand::Rng,
    clock: Clock,
    calls: u64,
}

impl InjectedFaults {
    pub(crate) fn new(spec: FaultSpec, clock: Clock) -> Self {
        InjectedFaults { rng: fastrand::Rng::with_seed(spec.seed), spec, clock, calls: 0 }
    }

    /// Applies the faults due at the next call: delays it, hangs, panics or fails it.
    ///
    /// # Errors
    /// If the call is to fail.
    ///
    /// # Panics
    /// If the call is to panic.
    pub(crate) fn apply(&mut self) -> Result<(), NodeError> {
        self.calls += 1;
        let call = self.calls;
        if let Some(delay) = self.spec.delay {
            let (from, to) = (delay.as_nanos(), self.spec.delay_to.unwrap_or(delay).as_nanos());
            self.clock.sleep(if to > from { self.rng.u64(from..=to) } else { from });
        }
        if self.spec.hang_at == Some(call) {
            self.clock.hang();
        }
        assert!(self.spec.panic_at != Some(call), "injected by `fault`");
        if self.spec.error_at == Some(call) || self.spec.error_every.is_some_and(|n| call.is_multiple_of(n)) {
            return Err(NodeError::input("fault", "injected"));
        }
        Ok(())
    }

    /// Whether the next message is dropped.
    pub(crate) fn drops(&mut self) -> bool {
        self.spec.drop > 0.0 && self.rng.f64() < self.spec.drop
    }

    /// Whether the call's output is sent twice.
    pub(crate) fn duplicates(&mut self) -> bool {
        self.spec.duplicate > 0.0 && self.rng.f64() < self.spec.duplicate
    }
}
