//! The one place that reads time.
//!
//! All stamps are nanoseconds of `CLOCK_MONOTONIC`, so that they compare between threads and processes of one machine
//! and never step. A simulated clock stands in for it where a graph is driven by hand.

use crate::sync::{Arc, AtomicU64, Ordering};
use std::fmt;
use std::ops::{Add, Sub};

/// A point in time: nanoseconds of the run's clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than everything: no deadline, no wake wanted.
    pub const NEVER: Time = Time(u64::MAX);
    /// Before everything.
    pub const ZERO: Time = Time(0);

    /// Nanoseconds since an earlier time; zero if it is not earlier.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;
    /// Nanoseconds later, saturating at [`Time::NEVER`].
    #[inline]
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Time {
    type Output = Time;
    /// Nanoseconds earlier, saturating at zero.
    #[inline]
    fn sub(self, ns: u64) -> Time {
        Time(self.0.saturating_sub(ns))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Time::NEVER { f.write_str("never") } else { write!(f, "{} ns", self.0) }
    }
}

/// Where a run takes its time from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// A clock that moves only when told to.
    Simulated(SimulatedClock),
}

impl Clock {
    /// Now. About 20 ns on the monotonic clock.
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::Monotonic => monotonic(),
            Clock::Simulated(clock) => clock.now(),
        }
    }
}

#[inline]
fn monotonic() -> Time {
    // The call cannot fail: the clock id is a constant that every Linux has.
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) {
        Ok(t) => Time((t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64)),
        Err(_) => Time::ZERO,
    }
}

/// The wall clock, for the head of a report and nothing else.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// A clock for tests and simulation; clones share one time.
#[derive(Clone, Debug, Default)]
pub struct SimulatedClock(Arc<AtomicU64>);

impl SimulatedClock {
    /// A clock that stands at `start`.
    pub fn new(start: Time) -> Self {
        SimulatedClock(Arc::new(AtomicU64::new(start.0)))
    }

    /// The time it shows.
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// Moves it forward.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    /// Moves it forward to a time; a time that has passed changes nothing.
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}
