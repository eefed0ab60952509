//! The clock of a device, as the run's clock sees it.

use limen::Time;
use limen::node::Metrics;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Clock that determines the origin of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StampClock {
    /// The timestamp of the device or its driver, converted to run time.
    #[default]
    Device,
    /// The time when the node reads the message.
    Run,
}

/// The stamp of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stamp {
    /// A time of the run's clock, by the kernel.
    Run(Time),
    /// A time that is said to be of the run's clock: one that is far off is of another.
    Claimed(Time),
    /// A time of a clock that is not the run's.
    Foreign(Duration),
}

/// A stamp of the run's clock that is older than this is of another clock, ns.
const STALE: u64 = 10_000_000_000;
/// Within this time the least delay is looked for, ns: long enough to find a message that did not
/// wait, short enough to follow a clock that drifts by 50 millionths to within 0.4 ms.
const WINDOW: u64 = 4_000_000_000;
/// A foreign clock that is off by more than this was set, ns.
const STEP: i128 = 1_000_000_000;
/// Over less time no drift is reported, ns.
const LONG_ENOUGH: u64 = 10_000_000_000;
/// Buckets for an octave of delays.
const BUCKETS: usize = 8;

/// The offset between two clocks: the least difference within the last windows, because a message
/// may wait before it is read, but is never read before it began.
#[derive(Debug, Default)]
pub(crate) struct Offset {
    /// The least difference of the window, and of the one before it.
    least: Option<(i128, Option<i128>)>,
    since: Time,
    /// When the first window ended with which difference, and the last.
    first: Option<(Time, i128)>,
    last: Option<(Time, i128)>,
    steps: u64,
}

impl Offset {
    /// Takes a stamp, and the time at which it was read; returns what has to be added to stamps.
    pub(crate) fn observe(&mut self, stamp: Duration, read: Time) -> i128 {
        let difference = i128::from(read.0) - i128::try_from(stamp.as_nanos()).unwrap_or(i128::MAX / 2);
        let Some((least, before)) = &mut self.least else {
            (self.least, self.since) = (Some((difference, None)), read);
            return difference;
        };
        let offset = before.map_or(*least, |before| before.min(*least));
        // No message is read before it began. That all of a window are late, by more than any
        // before, is no delay either.
        let is_over = read.since(self.since) >= WINDOW;
        if difference < offset - STEP || is_over && *least > before.unwrap_or(i128::MAX - STEP) + STEP {
            (self.least, self.since, self.first, self.last) = (Some((difference, None)), read, None, None);
            self.steps += 1;
            return difference;
        }
        *least = difference.min(*least);
        if is_over {
            self.last = Some((read, *least));
            self.first = self.first.or(self.last);
            (self.least, self.since) = (Some((difference, Some(*least))), read);
        }
        offset.min(difference)
    }

    /// Begins anew, with a device that was opened again.
    pub(crate) fn restart(&mut self) {
        (self.least, self.first, self.last) = (None, None, None);
    }

    /// Returns how much faster the device's clock is than the run's, in millionths; `None` if it
    /// was not watched for long enough.
    pub(crate) fn drift(&self) -> Option<f64> {
        let ((first, then), (last, now)) = (self.first?, self.last?);
        let time = last.since(first);
        (time >= LONG_ENOUGH).then(|| (then - now) as f64 / time as f64 * 1e6)
    }

    fn current(&self) -> Option<i128> {
        self.least.map(|(least, before)| before.map_or(least, |before| before.min(least)))
    }
}

/// Delays in buckets, eight for an octave.
#[derive(Debug)]
struct Delays {
    counts: [u32; 64 * BUCKETS],
    least: u64,
}

impl Delays {
    fn add(&mut self, delay: u64) {
        self.least = self.least.min(delay);
        let count = &mut self.counts[Delays::bucket(delay)];
        *count = count.saturating_add(1);
    }

    fn bucket(delay: u64) -> usize {
        let octave = delay.max(1).ilog2() as usize;
        // The bits behind the first one.
        let part = if octave >= 3 { (delay >> (octave - 3)) as usize & 7 } else { 0 };
        octave * BUCKETS + part
    }

    /// Returns the delay that so many of a hundred do not exceed, to within an eighth; at least the
    /// least delay.
    fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let mut left = (all * percent).div_ceil(100);
        for (at, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if count >= left {
                let (octave, part) = (at / BUCKETS, (at % BUCKETS) as u64);
                let low = if octave >= 3 { (8 + part) << (octave - 3) } else { 1 << octave };
                return low.max(self.least);
            }
            left -= count;
        }
        self.least
    }
}

/// The clock of a device: maps its stamps to the run's clock, and reports how far apart the two
/// are.
#[derive(Debug)]
pub(crate) struct DeviceClock {
    of: StampClock,
    stamped: u64,
    unstamped: u64,
    is_foreign: bool,
    offset: Offset,
    delays: Delays,
    /// The last origin: origins never go back.
    last: Time,
}

impl DeviceClock {
    pub(crate) fn new(of: StampClock) -> Self {
        let delays = Delays { counts: [0; 64 * BUCKETS], least: u64::MAX };
        let offset = Offset::default();
        DeviceClock { of, stamped: 0, unstamped: 0, is_foreign: false, offset, delays, last: Time::ZERO }
    }

    /// Returns when a message began that was read at `read`.
    pub(crate) fn origin(&mut self, stamp: Option<Stamp>, read: Time) -> Time {
        let origin = match stamp.filter(|_| self.of == StampClock::Device) {
            // A driver may stamp the end of what it has yet to reach.
            Some(Stamp::Run(stamp)) if stamp <= read => Some(stamp),
            Some(Stamp::Claimed(stamp)) if stamp <= read && read.since(stamp) < STALE => Some(stamp),
            Some(Stamp::Foreign(stamp)) => {
                self.is_foreign = true;
                let offset = self.offset.observe(stamp, read);
                let nanos = i128::try_from(stamp.as_nanos()).unwrap_or(i128::MAX / 2) + offset;
                Some(Time(u64::try_from(nanos).unwrap_or(0)).min(read))
            }
            _ => None,
        };
        match origin {
            Some(origin) => {
                self.stamped += 1;
                self.delays.add(read.since(origin));
            }
            None => self.unstamped += u64::from(self.of == StampClock::Device),
        }
        self.last = origin.unwrap_or(read).max(self.last).min(read);
        self.last
    }

    /// Begins anew, with a device that was opened again.
    pub(crate) fn restart(&mut self) {
        self.offset.restart();
    }

    /// Reports the clock: `clock_delay_ms`, the least time from a stamp until the message was read;
    /// `clock_jitter_ms`, how much longer 99 of 100 took at most; of a foreign clock
    /// `clock_offset_ms`, what was added to its stamps, and `clock_drift_ppm`.
    pub(crate) fn metrics(&self, to: &mut Metrics) {
        if self.of == StampClock::Run {
            return;
        }
        let ms = |ns: f64| ns / 1e6;
        if self.unstamped > 0 {
            to.set("unstamped", self.unstamped as f64);
        }
        if self.stamped == 0 {
            if self.unstamped > 0 {
                to.note("clock: the origin of a message is the time of reading, because the device has no usable timestamps");
            }
            return;
        }
        let (least, jitter) = (self.delays.least, self.delays.percentile(99) - self.delays.least);
        to.set("clock_jitter_ms", ms(jitter as f64));
        let mut note = String::from("clock: ");
        if let Some(offset) = self.offset.current().filter(|_| self.is_foreign) {
            to.set("clock_offset_ms", ms(offset as f64));
            note += &format!("device clock, mapped by the least delay, offset {:.3} ms", ms(offset as f64));
            if let Some(drift) = self.offset.drift() {
                to.set("clock_drift_ppm", drift);
                note += &format!(", drift {drift:+.1} ppm");
            }
            if self.offset.steps > 0 {
                to.set("clock_steps", self.offset.steps as f64);
                note += &format!(", steps: {}", self.offset.steps);
            }
        } else {
            to.set("clock_delay_ms", ms(least as f64));
            note += &format!("kernel timestamps, read at least {:.3} ms later", ms(least as f64));
        }
        to.note(format!("{note}, jitter {:.3} ms (p99)", ms(jitter as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A foreign clock that is off and drifts, with messages that wait before they are read:
    /// origins are off by no more than the least delay and what the clock drifts within two
    /// windows, and never go back.
    #[test]
    fn a_foreign_clock_is_followed() {
        for (off, ppm) in [(0i64, 0.0), (5_000_000_000, 50.0), (-3_000_000_000, -50.0), (86_400_000_000_000, 20.0)] {
            let mut random = fastrand::Rng::with_seed(7);
            let mut clock = DeviceClock::new(StampClock::Device);
            let (mut last, mut worst, mut ends) = (Time::ZERO, 0, (0, 0));
            for n in 0..6_000u64 {
                let began = 100 * SECOND + n * SECOND / 100;
                let stamp = (began as f64 * (1.0 + ppm / 1e6)) as i64 + off;
                let delay = 200_000 + random.u64(0..3_000_000);
                let origin =
                    clock.origin(Some(Stamp::Foreign(Duration::from_nanos(stamp as u64))), Time(began + delay));
                assert!(origin >= last && origin.0 <= began + delay);
                (last, ends) = (origin, (stamp, began));
                if n >= 100 {
                    worst = worst.max(origin.0.abs_diff(began));
                }
            }
            assert!(worst < 200_000 + 450_000, "{off} {ppm}: {worst} ns");
            let drift = clock.offset.drift().unwrap();
            assert!((drift - ppm).abs() < 2.0, "{drift} of {ppm}");
            let mut metrics = Metrics::default();
            clock.metrics(&mut metrics);
            let figure = |name: &str| metrics.iter().find(|(found, _)| *found == name).map(|(_, value)| value);
            let offset = figure("clock_offset_ms").unwrap();
            // What is added to the last stamps, which the drift has moved.
            let (stamp, began) = ends;
            assert!((offset - (began as f64 - stamp as f64) / 1e6).abs() < 1.0, "{offset} ms");
            assert!((figure("clock_drift_ppm").unwrap() - ppm).abs() < 2.0);
            let jitter = clock.delays.percentile(99) - clock.delays.least;
            assert!((2_500_000..3_500_000).contains(&jitter), "{jitter}");
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed_anew() {
        for (by, until) in [(3600, 100), (-3600, 185)] {
            let mut clock = DeviceClock::new(StampClock::Device);
            for n in 0..300u64 {
                let read = Time((100_000 + n) * SECOND / 10);
                let stamp = read.0.saturating_add_signed(if n < 100 { 0 } else { by * SECOND as i64 });
                let origin = clock.origin(Some(Stamp::Foreign(Duration::from_nanos(stamp))), read);
                // One that is set back looks like a delay at first, which two windows tell apart.
                assert!(origin == read || (100..until).contains(&n), "{by} {n}");
            }
            assert_eq!(clock.offset.steps, 1, "{by}");
        }
    }

    /// Frames that wait in a driver behind a blocked graph are old, and the clock was not set.
    #[test]
    fn a_backlog_is_no_clock_that_was_set() {
        let mut clock = DeviceClock::new(StampClock::Device);
        for n in 0..300u64 {
            let began = (1_000 + n) * SECOND / 10;
            // For 3 s nothing is read.
            let read = if (100..130).contains(&n) { (1_000 + 130) * SECOND / 10 } else { began };
            let origin = clock.origin(Some(Stamp::Foreign(Duration::from_nanos(began))), Time(read));
            assert_eq!(origin, Time(began), "{n}");
        }
        assert_eq!(clock.offset.steps, 0);
    }

    #[test]
    fn stamps_that_cannot_be_are_not_used() {
        let read = Time(100 * SECOND);
        for (of, stamp, origin, unstamped) in [
            (StampClock::Device, Some(Stamp::Run(Time(read.0 - 5))), read.0 - 5, 0),
            (StampClock::Device, Some(Stamp::Run(Time(read.0 + 5))), read.0, 1),
            (StampClock::Device, Some(Stamp::Run(Time(1))), 1, 0),
            (StampClock::Device, Some(Stamp::Claimed(Time(1))), read.0, 1),
            (StampClock::Device, Some(Stamp::Claimed(Time(read.0 - 5))), read.0 - 5, 0),
            (StampClock::Device, Some(Stamp::Foreign(Duration::MAX)), read.0, 0),
            (StampClock::Device, None, read.0, 1),
            (StampClock::Run, Some(Stamp::Run(Time(read.0 - 5))), read.0, 0),
        ] {
            let mut clock = DeviceClock::new(of);
            assert_eq!((clock.origin(stamp, read).0, clock.unstamped), (origin, unstamped), "{of:?} {stamp:?}");
        }
    }

    #[test]
    fn percentiles_are_within_an_eighth() {
        for scale in [1u64, 10, 1_000, 1_000_000] {
            let mut delays = Delays { counts: [0; 64 * BUCKETS], least: u64::MAX };
            (1..=1000u64).for_each(|n| delays.add(n * scale));
            for percent in [50, 90, 99] {
                let (found, exact) = (delays.percentile(percent), percent * 10 * scale);
                assert!(found <= exact && found * 8 >= exact * 7, "{percent} at {scale}: {found} of {exact}");
            }
        }
    }
}
