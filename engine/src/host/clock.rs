//! The one place that reads time.
//!
//! All stamps are nanoseconds of `CLOCK_MONOTONIC`, so that they compare between threads and processes of one machine
//! and never step. A simulated clock stands in for it where a graph is driven by hand.

use crate::host::sync::{Arc, AtomicU64, Ordering};
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

    /// When the machine's wall clock showed `wall`, a time since 1970, by this clock: for stamps of the kernel's. It is reckoned
    /// from what both clocks show now. A stamp in the future or before `earliest` says nothing, because the wall clock was set
    /// in between, and gives now; so does every stamp where the clock is simulated. About 80 ns.
    pub fn of_wall(&self, wall: std::time::Duration, earliest: Time) -> Time {
        match self {
            Clock::Monotonic => {
                let (now, shown) = both();
                of_wall(now, shown, u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX), earliest)
            }
            Clock::Simulated(clock) => clock.now(),
        }
    }

    /// Lets time pass: sleeps, or moves the simulated clock.
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
    // The call cannot fail: the clock id is a constant that every Linux has.
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

/// What the clock and the wall clock show at one moment, ns.
fn both() -> (Time, u64) {
    let wall = || match nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME) {
        Ok(t) => (t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64),
        Err(_) => 0,
    };
    let mut before = monotonic();
    let mut shown = wall();
    for _ in 1..TRIES {
        let after = monotonic();
        if after.since(before) <= ONE_MOMENT_NS {
            break;
        }
        // The thread was put aside between the two.
        (before, shown) = (after, wall());
    }
    (before, shown)
}

/// Readings of two clocks that lie between two of one so far apart, ns, are of one moment.
const ONE_MOMENT_NS: u64 = 2_000;

/// A worker's reading of the clock. Where the kernel itself keeps `CLOCK_MONOTONIC` by the processor's time stamp counter,
/// the counter is read directly, at less than half the price of asking, and held against the clock at least once a second.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    counter: Option<Counter>,
}

impl Watch {
    pub(crate) fn new(clock: Clock) -> Self {
        let counter = (matches!(clock, Clock::Monotonic) && counts_as_the_kernel_does()).then(Counter::default);
        Watch { clock, counter }
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        match &mut self.counter {
            Some(counter) => counter.now(),
            None => self.clock.now().0,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// The shortest time from which the counter's rate is taken, ns.
const FIRST_LOOK_NS: u64 = 20_000_000;
/// The most ticks between two readings of the counter that have one of the clock between them: 2 to 4 µs, where it takes
/// 50 ns as a rule.
const TOGETHER: u64 = 8_192;
const TRIES: usize = 4;
/// The longest time between two looks at the clock, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// The processor's counter, in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
struct Counter {
    /// Counter and clock when they were last held against each other.
    ticks: u64,
    ns: u64,
    /// Ns a tick, with 32 fractional bits; 0 before the rate is known.
    rate: u64,
    /// Ticks until the next look.
    valid: u64,
    /// The last reading: time never goes back.
    last: u64,
}

impl Counter {
    #[inline]
    fn now(&mut self) -> u64 {
        let passed = ticks().wrapping_sub(self.ticks);
        if passed >= self.valid {
            return self.look();
        }
        let ns = self.ns + ((u128::from(passed) * u128::from(self.rate)) >> 32) as u64;
        self.last = self.last.max(ns);
        self.last
    }

    /// Asks the kernel. The rate is that of the time since the last look, which doubles each time up to a second, so that
    /// an error of a reading grows to no more than twice its size until the next.
    #[cold]
    fn look(&mut self) -> u64 {
        self.hold_against(|| {
            let before = ticks();
            let ns = monotonic().0;
            (before, ns, ticks())
        })
    }

    /// Takes readings of the counter, the clock, and the counter again. A thread that is put aside between them has a pair
    /// that does not belong together: its times would be off by as long as it was away. Such a pair is not taken, and where
    /// a few in a row are like that, the next reading looks again.
    fn hold_against(&mut self, mut readings: impl FnMut() -> (u64, u64, u64)) -> u64 {
        let mut ns = 0;
        let pair = (0..TRIES).find_map(|_| {
            let (before, at, after) = readings();
            ns = at;
            let between = after.wrapping_sub(before);
            (between <= TOGETHER).then(|| (before.wrapping_add(between / 2), at))
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
            // The first look, or the counter was set back.
            *self = Counter { ticks, ns, last: self.last, ..Counter::default() };
        } else if ns_passed >= FIRST_LOOK_NS {
            let per_tick = (u128::from(ns_passed) << 32) / u128::from(ticks_passed.max(1));
            self.rate = u64::try_from(per_tick).unwrap_or(u64::MAX);
            let next = (2 * ns_passed).min(LOOK_NS);
            self.valid = (u128::from(ticks_passed) * u128::from(next) / u128::from(ns_passed)) as u64;
            (self.ticks, self.ns) = (ticks, ns);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "reading the counter has no requirement, the function is only not marked safe")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches nothing but registers. Where a process has forbidden it to
    // itself (`PR_SET_TSC`), the kernel ends the process by a signal.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// Whether the kernel found the counter fit to keep time by: constant, running in all sleep states, the same on all cores.
fn counts_as_the_kernel_does() -> bool {
    static ANSWER: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| {
        let source =
            crate::host::files::system_text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        cfg!(target_arch = "x86_64") && source.is_ok_and(|name| name.trim() == "tsc")
    })
}

/// The wall clock, for the head of a report and nothing else.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub(crate) fn wall() -> std::time::SystemTime {
    std::time::SystemTime::now()
}

/// Notices that somebody has set the wall clock. Nothing is reckoned by it but the head of a report, and the times that users
/// compare with it.
#[derive(Debug, Default)]
pub(crate) struct WallWatch {
    /// The wall clock's lead on the time since the machine was started, ns, and when it was last looked at.
    lead: Option<(i128, u64)>,
}

/// What is less is drift and the time between two readings, ns; drift grows with the time between two looks.
const STEP_NS: i128 = 100_000_000;
/// A clock that is being corrected gains or loses no more than one part in so many.
const SLEW: i128 = 1_000;

/// The time since the machine was started, also while it slept, as the wall clock goes on then.
pub(crate) fn since_boot() -> Time {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME) {
        Ok(t) => Time((t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64)),
        Err(_) => monotonic(),
    }
}

impl WallWatch {
    /// By how much the wall clock was set since the last look, ns; 0 if it was not.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Wherever this runs, a watch never goes back and never leaves the clock by more than its last error.
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

    /// A thread that was put aside for 30 ms between its readings keeps the time all the same.
    #[test]
    fn readings_that_were_torn_apart_are_not_taken() {
        const AWAY: u64 = 30_000_000;
        let mut counter = Counter::default();
        let begin = 1_000_000_000u64;
        for (after, torn) in [(0, 1), (25_000_000, TRIES), (80_000_000, TRIES - 1)] {
            let mut left = torn;
            let mut now = begin + after;
            let said = counter.hold_against(|| {
                let before = now;
                now += if left > 0 { AWAY } else { 100 };
                left = left.saturating_sub(1);
                (before, now, now)
            });
            assert_eq!(said, now, "it says what the clock said");
        }
        // A tick is a nanosecond here, and the counter is as far as the clock.
        assert!(counter.rate.abs_diff(1 << 32) < 100, "{}", counter.rate);
        assert!(counter.ns.abs_diff(counter.ticks) <= 100, "{} {}", counter.ns, counter.ticks);
    }

    /// \[T1\] Set by an hour and back, by a leap second, and to before 1970: each is noticed once, and drift is not.
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
            // Half a second later it goes on as before, but for a millisecond of drift.
            assert_eq!(watch.look(at(501), Time(n * 1_000_000_000 + 500_000_000)), 0);
            assert_eq!(watch.look(at(500), Time(n * 1_000_000_000 + 500_000_000)), 0);
        }
    }

    /// What the kernel stamped 7 ms ago began then, whatever the wall clock shows; a stamp that cannot be right began now.
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
