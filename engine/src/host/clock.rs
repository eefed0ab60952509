//! The only module that reads time.
//!
//! All stamps are nanoseconds of `CLOCK_MONOTONIC`, so that they compare between threads and
//! processes of one machine and never step. A simulated clock replaces it where a graph is turned
//! by hand.

use crate::host::instructions::ticks;
use crate::host::sync::{Arc, AtomicU64, Ordering};
use std::fmt;
use std::hint::cold_path;
use std::ops::{Add, Sub};

/// A point in time: nanoseconds of the run's clock.
///
/// ```
/// use limen::Time;
/// let begin = Time(1_000);
/// assert_eq!((begin + 500).since(begin), 500);
/// assert_eq!(begin.since(begin + 500), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than every other time: no deadline, no wake-up.
    pub const NEVER: Time = Time(u64::MAX);
    /// Earlier than every other time.
    pub const ZERO: Time = Time(0);

    /// Returns the nanoseconds since `earlier`; zero if it is not earlier.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;
    /// Adds nanoseconds, saturating at [`Time::NEVER`].
    #[inline]
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Time {
    type Output = Time;
    /// Subtracts nanoseconds, saturating at zero.
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

/// The clock of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Clock {
    /// The machine's `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// A clock that moves only on request.
    Simulated(SimulatedClock),
}

impl Clock {
    /// Returns the current time. Takes about 20 ns on the monotonic clock.
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            Clock::Monotonic => monotonic(),
            Clock::Simulated(clock) => clock.now(),
        }
    }

    /// Converts a wall-clock time since 1970, such as a stamp of the kernel, to this clock, using
    /// the current difference between both clocks. Returns the current time for a stamp in the
    /// future or before `earliest`, which means that the wall clock was set in between, and for
    /// every stamp if the clock is simulated. Takes about 80 ns.
    pub fn of_wall(&self, wall: std::time::Duration, earliest: Time) -> Time {
        match self {
            Clock::Monotonic => {
                let (now, shown) = both();
                of_wall(now, shown, u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX), earliest)
            }
            Clock::Simulated(clock) => clock.now(),
        }
    }

    /// Returns the nanoseconds to add to a time of this clock for the wall clock's time since 1970,
    /// by the current difference between both clocks; 0 if the clock is simulated. Takes about 80
    /// ns.
    pub(crate) fn wall_offset(&self) -> u64 {
        match self {
            Clock::Monotonic => {
                let (now, shown) = both();
                shown.saturating_sub(now.0)
            }
            Clock::Simulated(_) => 0,
        }
    }

    /// Sleeps, or advances the simulated clock.
    pub(crate) fn sleep(&self, ns: u64) {
        match self {
            Clock::Monotonic => std::thread::sleep(std::time::Duration::from_nanos(ns)),
            Clock::Simulated(clock) => clock.advance(ns),
        }
    }

    /// Never returns.
    pub(crate) fn hang(&self) -> ! {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
}

#[inline]
fn monotonic() -> Time {
    // Cannot fail: the clock id is a constant that every Linux supports.
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) {
        Ok(t) => Time((t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64)),
        Err(_) => Time::ZERO,
    }
}

fn of_wall(now: Time, shown: u64, wall: u64, earliest: Time) -> Time {
    match shown.checked_sub(wall).map(|age| now.0.checked_sub(age)) {
        Some(Some(then)) if then >= earliest.0 => Time(then),
        _ => now,
    }
}

/// Reads this clock and the wall clock at the same moment, ns.
fn both() -> (Time, u64) {
    let wall = || match nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME) {
        Ok(t) => (t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64),
        Err(_) => 0,
    };
    let mut before = monotonic();
    let mut shown = wall();
    for _ in 1..TRIES {
        let after = monotonic();
        if after.since(before) <= SIMULTANEOUS_NS {
            break;
        }
        // The thread was preempted between the two readings.
        (before, shown) = (after, wall());
    }
    (before, shown)
}

/// The largest distance between two readings of one clock, ns, that brackets a reading of the other
/// as simultaneous.
const SIMULTANEOUS_NS: u64 = 2_000;

/// A worker's clock. If the kernel keeps `CLOCK_MONOTONIC` by the processor's time stamp counter,
/// the counter is read directly, at less than half the cost of `clock_gettime`, and calibrated
/// against the clock at least once a second.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    counter: Option<CycleCounter>,
}

impl Watch {
    pub(crate) fn new(clock: Clock) -> Self {
        let counter = (matches!(clock, Clock::Monotonic) && kernel_uses_counter()).then(CycleCounter::default);
        Watch { clock, counter }
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        match &mut self.counter {
            Some(counter) => counter.now(),
            None => {
                cold_path();
                self.clock.now().0
            }
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The shortest time over which the counter's rate is measured, ns.
const FIRST_LOOK_NS: u64 = 20_000_000;
/// The maximum number of ticks between two readings of the counter that bracket a reading of the
/// clock: 2 to 4 µs, where 50 ns is usual.
const MAX_BRACKET_TICKS: u64 = 8_192;
const TRIES: usize = 4;
/// The longest time between two calibrations, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// The processor's counter, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
struct CycleCounter {
    /// Counter and clock at the last calibration.
    ticks: u64,
    ns: u64,
    /// Nanoseconds per tick, with 32 fractional bits; 0 before the rate is known.
    rate: u64,
    /// Ticks until the next calibration.
    valid: u64,
    /// The last reading: time never goes back.
    last: u64,
}

impl CycleCounter {
    #[inline]
    fn now(&mut self) -> u64 {
        let passed = ticks().wrapping_sub(self.ticks);
        if passed >= self.valid {
            return self.look();
        }
        // At most a second with 32 fractional bits: fewer than 64 bits.
        let ns = self.ns + (passed.wrapping_mul(self.rate) >> 32);
        self.last = self.last.max(ns);
        self.last
    }

    /// Calibrates against the kernel's clock. The rate is measured over the time since the last
    /// calibration, which doubles up to a second, so that the error of a reading at most doubles
    /// until the next.
    #[cold]
    fn look(&mut self) -> u64 {
        self.calibrate(|| {
            let before = ticks();
            let ns = monotonic().0;
            (before, ns, ticks())
        })
    }

    /// Takes readings of the counter, the clock, and the counter again. If the thread was preempted
    /// between them, the pair is off by that time. Such a pair is discarded, and after a few in a
    /// row the next call tries again.
    fn calibrate(&mut self, mut readings: impl FnMut() -> (u64, u64, u64)) -> u64 {
        let mut ns = 0;
        let pair = (0..TRIES).find_map(|_| {
            let (before, at, after) = readings();
            ns = at;
            let between = after.wrapping_sub(before);
            (between <= MAX_BRACKET_TICKS).then(|| (before.wrapping_add(between / 2), at))
        });
        if let Some((ticks, ns)) = pair {
            self.take(ticks, ns);
        }
        self.last = self.last.max(ns);
        self.last
    }

    fn take(&mut self, ticks: u64, ns: u64) {
        let (ticks_passed, ns_passed) = (ticks.wrapping_sub(self.ticks), ns.saturating_sub(self.ns));
        if self.ns == 0 || ticks_passed > u64::MAX / 2 {
            // The first calibration, or the counter was reset.
            *self = CycleCounter { ticks, ns, last: self.last, ..CycleCounter::default() };
        } else if ns_passed >= FIRST_LOOK_NS {
            let per_tick = (u128::from(ns_passed) << 32) / u128::from(ticks_passed.max(1));
            self.rate = u64::try_from(per_tick).unwrap_or(u64::MAX);
            let next = (2 * ns_passed).min(LOOK_NS);
            self.valid = (u128::from(ticks_passed) * u128::from(next) / u128::from(ns_passed)) as u64;
            (self.ticks, self.ns) = (ticks, ns);
        }
    }
}

/// Returns whether the kernel keeps time by the counter, because it is constant, runs in all sleep
/// states and agrees on all cores.
fn kernel_uses_counter() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        let source =
            crate::host::files::system_text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        cfg!(target_arch = "x86_64") && source.is_ok_and(|name| name.trim() == "tsc")
    })
}

/// Returns the wall-clock time, only for the head of a report and for events.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Detects steps of the wall clock. Only the head of a report and the times shown to users depend
/// on it.
#[derive(Debug, Default)]
pub(crate) struct WallWatch {
    /// The wall clock's lead over the time since boot, ns, and when it was last measured.
    lead: Option<(i128, u64)>,
}

/// Smaller differences are drift and the time between two readings, ns; drift grows with the time
/// between two calls.
const STEP_NS: i128 = 100_000_000;
/// Limit of drift: a clock that is being slewed gains or loses at most one part in this many.
const SLEW: i128 = 1_000;

/// Returns the time since boot, including sleep of the machine, as the wall clock counts it.
pub(crate) fn since_boot() -> Time {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME) {
        Ok(t) => Time((t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64)),
        Err(_) => monotonic(),
    }
}

impl WallWatch {
    /// Returns by how much the wall clock was set since the last call, ns; 0 if it was not.
    pub(crate) fn look(&mut self, wall: std::time::SystemTime, now: Time) -> i128 {
        let wall = match wall.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        let lead = wall - i128::from(now.0);
        let (before, at) = self.lead.replace((lead, now.0)).unwrap_or((lead, now.0));
        let step = lead - before;
        if step.abs() < STEP_NS + i128::from(now.0.saturating_sub(at)) / SLEW { 0 } else { step }
    }
}

/// A clock for tests and simulation; clones share one time.
///
/// ```
/// use limen::{Clock, SimulatedClock, Time};
/// let time = SimulatedClock::new(Time::ZERO);
/// let clock = Clock::Simulated(time.clone());
/// time.advance(1_000_000);
/// assert_eq!(clock.now(), Time(1_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SimulatedClock(Arc<AtomicU64>);

impl SimulatedClock {
    /// Creates a clock that shows `start`.
    pub fn new(start: Time) -> Self {
        SimulatedClock(Arc::new(AtomicU64::new(start.0)))
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }

    /// Advances the time by `ns`.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }

    /// Advances to `time`; does nothing if that has passed.
    pub fn advance_to(&self, time: Time) {
        self.0.fetch_max(time.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// On any machine, a watch never goes back and stays within its calibration error of the clock.
    #[test]
    fn a_watch_keeps_the_clocks_time() {
        let mut watch = Watch::new(Clock::Monotonic);
        let begin = watch.now();
        let (mut last, mut readings) = (begin, 0u64);
        while last < begin + 3 * FIRST_LOOK_NS {
            let (before, now, after) = (monotonic().0, watch.now(), monotonic().0);
            assert!(now >= last, "{now} after {last}");
            assert!(now + 20_000 > before && now < after + 20_000, "{before} {now} {after}");
            (last, readings) = (now, readings + 1);
        }
        assert!(readings > 100);
    }

    /// A preemption of 30 ms between readings does not disturb the time.
    #[test]
    fn readings_interrupted_by_preemption_are_discarded() {
        const AWAY: u64 = 30_000_000;
        let mut counter = CycleCounter::default();
        let begin = 1_000_000_000u64;
        for (after, torn) in [(0, 1), (25_000_000, TRIES), (80_000_000, TRIES - 1)] {
            let mut left = torn;
            let mut now = begin + after;
            let returned = counter.calibrate(|| {
                let before = now;
                now += if left > 0 { AWAY } else { 100 };
                left = left.saturating_sub(1);
                (before, now, now)
            });
            assert_eq!(returned, now, "the reading of the clock is returned");
        }
        // A tick is a nanosecond here, and the counter is as far as the clock.
        assert!(counter.rate.abs_diff(1 << 32) < 100, "{}", counter.rate);
        assert!(counter.ns.abs_diff(counter.ticks) <= 100, "{} {}", counter.ns, counter.ticks);
    }

    /// Promise (time): The wall clock does not affect the times of a run; the report notes each
    /// step of the wall clock once.
    ///
    /// Steps by an hour and back, by a leap second, and to before 1970 are each noticed once; drift
    /// is not.
    #[test]
    fn steps_of_the_wall_clock_are_noticed_once() {
        use std::time::{Duration, UNIX_EPOCH};
        let (hour, second) = (3_600_000_000_000i128, 1_000_000_000);
        let start = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let mut watch = WallWatch::default();
        assert_eq!(watch.look(start, Time(0)), 0);
        let mut lead = 0i128;
        for (n, step) in (1u64..).zip([hour, -hour, -second, second, -1_800_000_000 * second]) {
            lead += step;
            let at = |ms: u64| {
                let ahead = lead + i128::from(n * 1_000 + ms) * 1_000_000;
                let shift = Duration::from_nanos(ahead.unsigned_abs() as u64);
                if ahead < 0 { start - shift } else { start + shift }
            };
            assert_eq!(watch.look(at(0), Time(n * 1_000_000_000)), step);
            // Half a second later the clock runs on, with a millisecond of drift.
            assert_eq!(watch.look(at(501), Time(n * 1_000_000_000 + 500_000_000)), 0);
            assert_eq!(watch.look(at(500), Time(n * 1_000_000_000 + 500_000_000)), 0);
        }
    }

    /// Promise (time): A kernel timestamp is mapped to the clock of the run; an invalid one counts
    /// as now.
    #[test]
    fn stamps_of_the_wall_clock_are_mapped() {
        let (now, shown, opened) = (Time(50_000_000), 1_700_000_000_000_000_000, Time(40_000_000));
        for (wall, expected) in [
            (shown - 7_000_000, 43_000_000),
            (shown, 50_000_000),
            (shown - 10_000_000, 40_000_000),
            (shown - 10_000_001, 50_000_000),
            (shown + 1, 50_000_000),
            (0, 50_000_000),
            (u64::MAX, 50_000_000),
        ] {
            assert_eq!(of_wall(now, shown, wall, opened), Time(expected), "{wall}");
        }
        let clock = Clock::Monotonic;
        let before = clock.now();
        let stamp = wall().duration_since(std::time::UNIX_EPOCH).unwrap();
        let mapped = clock.of_wall(stamp, Time::ZERO);
        assert!(mapped + 20_000 > before && mapped <= clock.now(), "{before:?} {mapped:?}");
        let simulated = Clock::Simulated(SimulatedClock::new(Time(5)));
        assert_eq!(simulated.of_wall(stamp, Time::ZERO), Time(5));
    }

    #[test]
    fn a_simulated_clock_is_read_as_it_stands() {
        let clock = SimulatedClock::new(Time(5));
        let mut watch = Watch::new(Clock::Simulated(clock.clone()));
        assert_eq!(watch.now(), 5);
        clock.advance(7);
        assert_eq!(watch.now(), 12);
    }
}
