//! The schedule of an open-loop source.

use limen::Time;
use limen::node::Next;
use limen::unit::Rate;

/// Decides when each message is due. Without a rate, a message is due whenever the engine asks.
#[derive(Debug)]
pub(crate) struct Pace {
    period_ns: Option<f64>,
    start: Option<Time>,
    /// Periods that have begun: messages, or what long ones last.
    begun: u64,
    max_count: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Pace { period_ns: rate.map(Rate::period_ns), start: None, begun: 0, max_count: u64::MAX }
    }

    /// Ends the schedule after `count` messages.
    pub(crate) fn at_most(mut self, count: Option<u64>) -> Self {
        self.max_count = count.unwrap_or(u64::MAX);
        self
    }

    /// Begins the next message and returns its origin, or what to tell the engine if the message is not due yet.
    /// `now` may be as old as the turn; `clock` reads the current time and is called only if `now` is too early.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time, clock: impl FnOnce() -> Time) -> Result<Time, Next> {
        self.begin_long(1, now, clock)
    }

    /// Begins a message that lasts `periods`: the next one is due that much later.
    #[inline]
    pub(crate) fn begin_long(&mut self, periods: u64, now: Time, clock: impl FnOnce() -> Time) -> Result<Time, Next> {
        if self.begun == self.max_count {
            return Err(Next::Done);
        }
        let Some(period) = self.period_ns else {
            self.begun += periods;
            return Ok(now);
        };
        let start = *self.start.get_or_insert(now);
        let due = self.due(start, period);
        // After a skipped error the engine calls again at once, which may be before the requested time.
        if due > now && due > clock() {
            return Err(Next::At(due));
        }
        self.begun += periods;
        Ok(due)
    }

    /// Returns what to tell the engine after a message was sent.
    #[inline]
    pub(crate) fn then(&self, now: Time) -> Next {
        match (self.period_ns, self.start) {
            _ if self.begun == self.max_count => Next::Done,
            (Some(period), Some(start)) => {
                let due = self.due(start, period);
                if due <= now { Next::More } else { Next::At(due) }
            }
            _ => Next::More,
        }
    }

    /// Computed from the count instead of by adding periods, so that rounding errors do not accumulate.
    fn due(&self, start: Time, period: f64) -> Time {
        start + (self.begun as f64 * period) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
