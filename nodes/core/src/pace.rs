//! When sources send: at a rate, or as it was recorded.

use limen::Time;
use limen::node::{Next, Ports};
use limen::unit::Rate;
use schemars::JsonSchema;
use serde::Deserialize;

/// When the messages of a source are due: at a rate, or, without one, whenever the engine asks.
///
/// A source calls [`Pace::begin`] before a message and [`Pace::then`] after it:
///
/// ```
/// use limen::Time;
/// use limen::node::Next;
/// use limen_nodes_core::pace::Pace;
/// let rate = serde_json::from_str("\"100Hz\"").unwrap();
/// let mut pace = Pace::new(Some(rate)).at_most(Some(2));
/// let (start, period) = (Time(5), Time(10_000_005));
/// assert_eq!(pace.begin(start, || start).ok(), Some(start));
/// assert!(matches!(pace.then(start), Next::At(due) if due == period));
/// // Late by 1 ms, a message keeps the time at which it was due.
/// assert_eq!(pace.begin(Time(11_000_005), || start).ok(), Some(period));
/// assert!(matches!(pace.then(start), Next::Done));
/// ```
#[derive(Debug)]
pub struct Pace {
    period_ns: Option<f64>,
    start: Option<Time>,
    /// Periods that have begun: messages, or what long ones last.
    begun: u64,
    max_count: u64,
}

impl Pace {
    /// Creates the schedule of a source with a rate, or without one.
    pub fn new(rate: Option<Rate>) -> Self {
        Pace { period_ns: rate.map(Rate::period_ns), start: None, begun: 0, max_count: u64::MAX }
    }

    /// Declares the rate of a source whose config has it as `rate`, or that it has none.
    pub fn declare(rate: Option<Rate>, ports: Ports) -> Ports {
        match rate {
            Some(rate) => ports.rate(rate),
            None => ports.unpaced("rate: 30Hz"),
        }
    }

    /// Ends the schedule after `count` messages.
    #[must_use]
    pub fn at_most(mut self, count: Option<u64>) -> Self {
        self.max_count = count.unwrap_or(u64::MAX);
        self
    }

    /// Begins the next message and returns its origin, or what to tell the engine if the message is
    /// not due yet. `now` may be as old as the turn; `clock` reads the current time and is called
    /// only if `now` is too early.
    ///
    /// # Errors
    /// What `next` returns instead of a message: [`Next::At`] with the time at which it is due, or
    /// [`Next::Done`].
    #[inline]
    pub fn begin(&mut self, now: Time, clock: impl FnOnce() -> Time) -> Result<Time, Next> {
        self.begin_long(1, now, clock)
    }

    /// Begins a message that lasts `periods`: the next one is due that much later.
    #[inline]
    pub fn begin_long(&mut self, periods: u64, now: Time, clock: impl FnOnce() -> Time) -> Result<Time, Next> {
        if self.begun == self.max_count {
            return Err(Next::Done);
        }
        let Some(period) = self.period_ns else {
            self.begun += periods;
            return Ok(now);
        };
        let start = *self.start.get_or_insert(now);
        let due = self.due(start, period);
        // After a skipped error the engine calls again at once, which may be before the requested
        // time.
        if due > now && due > clock() {
            return Err(Next::At(due));
        }
        self.begun += periods;
        Ok(due)
    }

    /// Returns how many messages may be sent at once, without their own due times; none of a source
    /// with a rate.
    pub(crate) fn at_once(&self) -> u64 {
        if self.period_ns.is_some() { 0 } else { self.max_count.saturating_sub(self.begun) }
    }

    /// Begins a message of those that may be sent [at once](Pace::at_once).
    #[inline]
    pub(crate) fn begin_at_once(&mut self) {
        self.begun += 1;
    }

    /// Returns what to tell the engine after a message was sent.
    #[inline]
    pub fn then(&self, now: Time) -> Next {
        match (self.period_ns, self.start) {
            _ if self.begun == self.max_count => Next::Done,
            (Some(period), Some(start)) => {
                let due = self.due(start, period);
                if due <= now { Next::More } else { Next::At(due) }
            }
            _ => Next::More,
        }
    }

    /// Computed from the count instead of by adding periods, so that rounding errors do not
    /// accumulate.
    fn due(&self, start: Time, period: f64) -> Time {
        start + (self.begun as f64 * period) as u64
    }
}

/// Returns a sample rate as a whole number of frames per second, as files and devices of sound
/// store it.
///
/// # Errors
/// Why it cannot be one.
pub fn frames_per_second(Rate(rate): Rate) -> Result<u32, String> {
    if rate.fract() != 0.0 || !(1.0..=1e7).contains(&rate) {
        return Err(format!("the rate must be a whole number of frames per second from 1 to 10 million, got {rate}"));
    }
    Ok(rate as u32)
}

/// Speed at which recorded messages are sent: `original`, `max`, or a factor from 0.001 to 1000000.
/// `max` sends messages as fast as the graph accepts them.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenPace")]
pub struct RecordedPace(Option<f64>);

impl RecordedPace {
    /// Returns how many times as fast as recorded messages are sent, or `None` for as fast as the
    /// graph accepts them.
    pub fn factor(self) -> Option<f64> {
        self.0
    }

    /// Declares a source of this pace: it is live, or its messages may begin later than now.
    pub fn declare(self, ports: Ports) -> Ports {
        match self.0 {
            None => ports.ahead(),
            Some(1.0) => ports.live(),
            Some(factor) => ports.live().notice(format!(
                "has `pace: {factor}`: 1 s of `within`, `throttle` or `expect_every` covers {factor} s of the recording"
            )),
        }
    }
}

/// A pace as it is written: a name or a factor.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum WrittenPace {
    Factor(f64),
    Name(String),
}

impl Default for RecordedPace {
    fn default() -> Self {
        RecordedPace(Some(1.0))
    }
}

impl TryFrom<WrittenPace> for RecordedPace {
    type Error = String;

    fn try_from(written: WrittenPace) -> Result<Self, String> {
        match written {
            WrittenPace::Factor(factor) if (1e-3..=1e6).contains(&factor) => Ok(RecordedPace(Some(factor))),
            WrittenPace::Name(name) if name == "original" => Ok(RecordedPace::default()),
            WrittenPace::Name(name) if name == "max" => Ok(RecordedPace(None)),
            WrittenPace::Factor(factor) => {
                Err(format!("expected `original`, `max`, or a factor from 0.001 to 1000000, found {factor}"))
            }
            WrittenPace::Name(name) => {
                Err(format!("expected `original`, `max`, or a factor such as `2.0`, found `{name}`"))
            }
        }
    }
}

/// Where recorded times go back by more than this, ns, the clock that gave them was set back. Less
/// is disorder.
pub const STEP_BACK: u64 = 1_000_000_000;

/// When messages are due that have stamps of another time. A stamp that goes back is due with the
/// one before.
#[derive(Debug)]
pub struct Timeline {
    pace: RecordedPace,
    /// A longer silence is shortened to this, ns.
    max_gap: u64,
    start: Option<Time>,
    /// The latest stamp of the pass, and the distance to the one before it.
    latest: Option<u64>,
    distance: u64,
    /// From the first message to the latest, ns, at the recorded pace.
    elapsed: u64,
    /// How often time went on by more than `max_gap`.
    pub gaps: u64,
    /// By how much the clock was set back before the latest message, if it was.
    pub step: Option<u64>,
}

impl Timeline {
    /// Creates the times of a recording. A silence longer than `max_gap`, in ns, is shortened to
    /// it.
    pub fn new(pace: RecordedPace, max_gap: u64) -> Self {
        Timeline { pace, max_gap, start: None, latest: None, distance: 0, elapsed: 0, gaps: 0, step: None }
    }

    /// Returns the origin of a message with a stamp in ns, or when it is due if that is later.
    /// `now` may be as old as the turn; `clock` reads the current time and is called only if `now`
    /// is too early.
    pub fn begin(&mut self, stamp: u64, now: Time, clock: impl FnOnce() -> Time) -> Result<Time, Next> {
        let start = *self.start.get_or_insert(now);
        let latest = self.latest.unwrap_or(stamp);
        let step = Some(latest.saturating_sub(stamp)).filter(|by| *by > STEP_BACK);
        let on = stamp.saturating_sub(latest);
        // A clock that was set back goes on at the usual distance.
        let distance = if step.is_some() { self.distance } else { on.min(self.max_gap) };
        let elapsed = self.elapsed.saturating_add(distance);
        let due = match self.pace.factor() {
            Some(factor) if factor != 1.0 => (elapsed as f64 / factor) as u64,
            _ => elapsed,
        };
        // No time of the run is that late.
        let origin = start + due.min(u64::MAX / 2);
        if self.pace.factor().is_some() && origin > now && origin > clock() {
            return Err(Next::At(origin));
        }
        self.latest = Some(if step.is_some() { stamp } else { stamp.max(latest) });
        (self.elapsed, self.distance, self.step) = (elapsed, distance, step);
        self.gaps += u64::from(on > self.max_gap);
        Ok(origin)
    }

    /// Begins another pass, `gap` ns after the latest message, or as long as that came after the
    /// one before it.
    pub fn rewind(&mut self, gap: Option<u64>) {
        self.elapsed = self.elapsed.saturating_add(gap.unwrap_or(self.distance));
        (self.latest, self.distance) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_messages_keep_their_distances() {
        for (factor, times) in [
            (Some(1.0), [0, 500, 500, 1_500, 1_600, 2_100, 3_100, 4_100, 4_200]),
            (Some(0.5), [0, 1_000, 1_000, 3_000, 3_200, 4_200, 6_200, 8_200, 8_400]),
            (None, [0, 500, 500, 1_500, 1_600, 2_100, 3_100, 4_100, 4_200]),
        ] {
            let mut timeline = Timeline::new(RecordedPace(factor), 1_000);
            let begin = Time(10_000);
            // The second pass has a clock that is set, and set back.
            let stamps = [7_000, 7_500, 7_400, 8_500, 7_000, 7_500, u64::MAX, 12, 112];
            for (at, (stamp, due)) in stamps.into_iter().zip(times).enumerate() {
                if at == 4 {
                    timeline.rewind(Some(100));
                }
                let due = begin + due;
                if factor.is_some() && due > begin {
                    let early = Time(due.0 - 1);
                    let found = timeline.begin(stamp, begin, || early);
                    assert_eq!(found, Err(Next::At(due)), "{factor:?} {stamp}");
                }
                let now = if factor.is_some() { due } else { begin };
                assert_eq!(timeline.begin(stamp, now, || due), Ok(due), "{factor:?} {stamp}");
                assert_eq!(timeline.step, (stamp == 12).then_some(u64::MAX - 12), "{factor:?} {stamp}");
            }
            assert_eq!((timeline.gaps, timeline.step), (1, None));
            timeline.rewind(None);
            assert_eq!(timeline.begin(5, Time(1 << 40), || Time(1 << 40)), Ok(begin + times[8] + times[8] - times[7]));
        }
        let mut timeline = Timeline::new(RecordedPace(None), u64::MAX);
        for stamp in [0, u64::MAX, u64::MAX] {
            assert!(timeline.begin(stamp, Time(5), || Time(5)).is_ok());
            timeline.rewind(Some(u64::MAX));
        }
    }

    fn pace(hz: f64) -> Pace {
        Pace::new(Some(Rate(hz)))
    }

    #[test]
    fn messages_are_due_at_whole_periods_from_the_first() {
        let mut pace = pace(3.0);
        let mut now = Time(1_000);
        for n in 0..10u64 {
            let expected = Time(1_000 + (n as f64 * 1e9 / 3.0) as u64);
            assert_eq!(pace.begin(now, || now), Ok(expected));
            let Next::At(next) = pace.then(now) else { panic!("not behind") };
            now = next;
        }
    }

    #[test]
    fn a_message_may_last_several_periods() {
        let mut pace = pace(1e6);
        for (periods, due) in [(10, 0), (10, 10_000), (5, 20_000), (10, 25_000)] {
            assert_eq!(pace.begin_long(periods, Time(due), || Time(due)), Ok(Time(due)));
        }
        assert_eq!(pace.then(Time(30_000)), Next::At(Time(35_000)));
    }

    #[test]
    fn a_late_source_sends_at_once_and_keeps_the_intended_times() {
        let mut pace = pace(1e6);
        assert_eq!(pace.begin(Time(0), || Time(0)), Ok(Time(0)));
        let late = Time(2_500);
        for intended in [1_000, 2_000] {
            assert_eq!(pace.then(late), Next::More);
            assert_eq!(pace.begin(late, || late), Ok(Time(intended)));
        }
        assert_eq!(pace.then(late), Next::At(Time(3_000)));
    }

    #[test]
    fn a_call_before_its_time_sends_nothing() {
        let mut pace = pace(1e6);
        assert_eq!(pace.begin(Time(0), || Time(0)), Ok(Time(0)));
        assert_eq!(pace.begin(Time(10), || Time(20)), Err(Next::At(Time(1_000))));
        // The turn may have begun long ago.
        assert_eq!(pace.begin(Time(10), || Time(1_200)), Ok(Time(1_000)));
    }

    #[test]
    fn without_a_rate_every_call_sends() {
        let mut pace = Pace::new(None);
        for t in [5, 5, 7] {
            assert_eq!(pace.begin(Time(t), || panic!("the clock is not needed")), Ok(Time(t)));
            assert_eq!(pace.then(Time(t)), Next::More);
        }
    }

    #[test]
    fn the_schedule_ends_after_count_messages() {
        for mut pace in [pace(1e6).at_most(Some(2)), Pace::new(None).at_most(Some(2))] {
            assert!(pace.begin(Time(5), || Time(5)).is_ok());
            assert_ne!(pace.then(Time(5)), Next::Done);
            assert!(pace.begin(Time(2_000), || Time(2_000)).is_ok());
            assert_eq!(pace.then(Time(2_000)), Next::Done);
            assert_eq!(pace.begin(Time(9_000), || Time(9_000)), Err(Next::Done));
        }
    }
}
