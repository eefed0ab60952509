//! Continuous times of a recording whose clocks were set back.

use limen_nodes_core::pace::STEP_BACK;
use std::collections::BTreeMap;

const STEP: i128 = STEP_BACK as i128;

/// Makes the times that a clock gave to several streams continuous: a clock that was set back goes
/// on as before.
///
/// Each stream is compared with its own times. A stream that is always recorded late is therefore
/// not taken for a step of the clock.
#[derive(Debug, Default)]
pub(crate) struct RecordedClock {
    streams: BTreeMap<u16, StreamClock>,
    /// What the latest step adds to the times after it, ns.
    pub(crate) shift: i128,
}

#[derive(Clone, Copy, Debug)]
struct StreamClock {
    shift: i128,
    /// The latest time, continuous.
    latest: i128,
    /// How far the last time was behind its reference.
    lag: i128,
}

/// A continuous time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Continuous {
    pub(crate) time: i128,
    /// By how much the clock was set back, if that begins here, ns.
    pub(crate) step: Option<u64>,
}

impl RecordedClock {
    /// Places a time of a stream. `reference` is about the continuous time at which it is expected:
    /// streams keep their distance from it. `other` is the shift of another clock, which may have
    /// been set back together with this one.
    ///
    /// A time that goes back by more than [`STEP_BACK`] and away from the reference begins a step.
    /// One that returns to the reference ends an error, and stays as it is.
    pub(crate) fn place(&mut self, stream: u16, time: u64, reference: Option<i128>, other: Option<i128>) -> Continuous {
        let time = i128::from(time);
        let lag_with = |shift: i128| reference.map_or(0, |reference| reference - (time + shift));
        let new = StreamClock { shift: self.shift, latest: i128::MIN, lag: lag_with(self.shift) };
        let seen = self.streams.entry(stream).or_insert(new);
        // A step that other streams have met concerns this one if it then keeps its distance.
        let known = [Some(seen.shift), Some(self.shift), other].into_iter().flatten();
        seen.shift = known.min_by_key(|shift| lag_with(*shift).abs_diff(seen.lag)).unwrap_or(seen.shift);
        let (placed, lag) = (time + seen.shift, lag_with(seen.shift));
        let back = seen.latest.saturating_sub(placed);
        let step = (back > STEP && lag > seen.lag.max(0) + STEP).then(|| u64::try_from(back).unwrap_or(u64::MAX));
        if step.is_some() {
            seen.shift += lag - seen.lag;
            self.shift = seen.shift;
        } else {
            // A silence before a step does not hide the step.
            seen.lag = lag.max(-STEP);
        }
        let time = time + seen.shift;
        seen.latest = seen.latest.max(time);
        Continuous { time, step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places `(stream, time)`, both in ms, with the latest time as the reference. Returns the
    /// continuous times and the steps.
    fn place(times: &[(u16, i64)]) -> (Vec<i64>, Vec<u64>) {
        let (mut clock, mut latest, mut steps) = (RecordedClock::default(), None, Vec::new());
        let placed = times.iter().map(|(stream, ms)| {
            let found = clock.place(*stream, (ms + 1_000_000) as u64 * 1_000_000, latest, None);
            latest = latest.max(Some(found.time));
            steps.extend(found.step.map(|by| by / 1_000_000));
            (found.time / 1_000_000) as i64 - 1_000_000
        });
        (placed.collect(), steps)
    }

    #[test]
    fn a_clock_that_is_set_back_goes_on_and_late_streams_stay_late() {
        for (case, times, expected, steps) in [
            (
                "two streams, set back by 5 s",
                vec![(0, 0), (1, 3), (0, 100), (1, 103), (0, -4_800), (1, -4_797), (0, -4_700)],
                vec![0, 3, 100, 103, 200, 203, 300],
                vec![4_900],
            ),
            ("disorder below a second", vec![(0, 0), (0, 900), (0, 0), (0, 1_000)], vec![0, 900, 0, 1_000], vec![]),
            (
                "a stream 1.5 s late",
                vec![(0, 2_000), (1, 500), (0, 2_100), (1, 600), (0, 2_200), (1, 700)],
                vec![2_000, 500, 2_100, 600, 2_200, 700],
                vec![],
            ),
            (
                "a stream 1.5 s late, which meets the step later",
                vec![(0, 0), (1, -1_500), (0, 100), (1, -1_400), (0, -4_800), (1, -1_300), (0, -4_700), (1, -6_200)],
                vec![0, -1_500, 100, -1_400, 200, -1_300, 300, -1_200],
                vec![4_900],
            ),
            (
                "a slow stream, whose own times do not go back",
                vec![(1, 0), (0, 0), (0, 9_800), (0, 9_900), (0, 5_000), (1, 5_010), (0, 5_100)],
                vec![0, 0, 9_800, 9_900, 10_000, 10_010, 10_100],
                vec![4_900],
            ),
            (
                "twice",
                vec![(0, 0), (0, 100), (0, -2_000), (0, -1_900), (0, -9_000), (0, -8_900)],
                vec![0, 100, 200, 300, 400, 500],
                vec![2_100, 7_100],
            ),
        ] {
            assert_eq!(place(&times), (expected, steps), "{case}");
        }
    }

    #[test]
    fn stamps_are_set_back_with_the_log_by_themselves_or_not_at_all() {
        let s = |ms: i64| (ms + 100_000) * 1_000_000;
        // `set_back`: by how much the log is set back before the third message.
        for (case, set_back, stamps, expected, steps) in [
            ("with the log", 5_000, [-7, 93, -4_803, -4_710], [-7, 93, 197, 290], [false; 4]),
            ("not at all", 5_000, [-7, 93, 193, 290], [-7, 93, 193, 290], [false; 4]),
            ("alone", 0, [-7, 93, -2_803, -2_703], [-7, 93, 193, 293], [false, false, true, false]),
            ("one is too late", 0, [-7, 9_093, 193, 293], [-7, 9_093, 193, 293], [false; 4]),
            ("an error ends", 0, [9_000, 9_100, 193, 293], [9_000, 9_100, 193, 293], [false; 4]),
        ] {
            let mut clock = RecordedClock::default();
            for n in 0..4 {
                let log = s(100 * n as i64);
                let log_shift = if n < 2 { 0 } else { i128::from(s(set_back) - s(0)) };
                let found = clock.place(0, s(stamps[n]) as u64, Some(log.into()), Some(log_shift));
                let placed = (found.time - i128::from(s(0))) / 1_000_000;
                assert_eq!((placed as i64, found.step.is_some()), (expected[n], steps[n]), "{case}, {n}");
            }
        }
    }
}
