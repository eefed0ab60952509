//! The bootstrap: how much a figure of some runs would differ if they were run again.
//!
//! The change between two sides is the ratio of the medians of their runs, which a reader can check
//! against the medians shown. Its interval comes from resampling on two levels, because intervals
//! of one run are more alike than runs are (Kalibera and Jones, *Rigorous Benchmarking in
//! Reasonable Time*, ISMM 2013). Each draw takes runs with replacement, and within each run
//! circular blocks of neighbouring intervals (Politis and Romano 1992). The percentile interval is
//! widened for few runs as in Hesterberg, *What Teachers Should Know About the Bootstrap* (The
//! American Statistician 69, 2015).

use super::{ProfileInterval, sum};
use fastrand::Rng;
use limen::report::Counts;

/// The probability that the interval of a change contains the true one.
pub(super) const CONFIDENCE: f64 = 0.99;
/// The fewest intervals of a single run.
pub(super) const FEWEST_INTERVALS: usize = 8;
/// Groups of neighbouring intervals that a run is divided into, at most.
const GROUPS: usize = 60;
/// Draws from the intervals of a run.
const WITHIN: usize = 300;
/// Draws of runs.
const DRAWS: usize = 2000;
/// The most runs of a side.
pub(super) const MOST_RUNS: usize = 100;

/// A figure of a histogram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stat {
    /// The value below which this fraction of the values lies.
    Quantile(f64),
    /// The arithmetic mean of all values.
    Mean,
}

/// A figure of one run, and of its intervals drawn anew. In logarithms.
#[derive(Clone, Debug)]
pub(super) struct RunFigure {
    pub(super) value: f64,
    drawn: Vec<f64>,
    /// The width of the histogram's cell, relative to the value.
    width: f64,
    groups: usize,
}

/// The figures of one histogram of a run, in the order of `stats`. `None` if too few values lie
/// beyond.
pub(super) fn figures(intervals: &[ProfileInterval], stats: &[Stat], rng: &mut Rng) -> Vec<Option<RunFigure>> {
    let all = sum(intervals);
    let size = intervals.len().div_ceil(GROUPS).max(1);
    let groups: Vec<Counts> = intervals.chunks(size).map(sum).collect();
    let table = GroupTable::new(&all, &groups);
    let mut drawn = vec![Vec::new(); stats.len()];
    if groups.len() > 1 {
        for _ in 0..WITHIN {
            let sums = table.drawn(&blocks(groups.len(), rng));
            let total = sums.iter().sum();
            stats.iter().zip(&mut drawn).for_each(|(stat, drawn)| drawn.push(log(table.figure(&sums, total, *stat))));
        }
    }
    let one = |(stat, drawn): (&Stat, Vec<f64>)| {
        let is_known = match stat {
            Stat::Quantile(q) => all.shows(*q),
            Stat::Mean => !all.is_empty(),
        };
        let value = match stat {
            Stat::Quantile(q) => all.quantile(*q)? as f64,
            Stat::Mean => all.mean(),
        };
        let width = if *stat == Stat::Mean { 0.0 } else { all.width(value as u64) as f64 / value.max(1.0) };
        is_known.then_some(RunFigure { value: log(value), drawn, width, groups: groups.len() })
    };
    stats.iter().zip(drawn).map(one).collect()
}

/// Times of 0 ns exist.
fn log(value: f64) -> f64 {
    value.max(1.0).ln()
}

/// How often each group is drawn: blocks of neighbours, around the end, until there are as many as
/// before.
fn blocks(n: usize, rng: &mut Rng) -> Vec<u64> {
    // The length that keeps bias and variance in balance.
    let length = (n as f64).cbrt().round().max(1.0) as usize;
    let mut times = vec![0; n];
    let mut left = n;
    while left > 0 {
        let begin = rng.usize(..n);
        (0..length.min(left)).for_each(|at| times[(begin + at) % n] += 1);
        left = left.saturating_sub(length);
    }
    times
}

/// The counts of all groups, by value.
struct GroupTable {
    /// The value of a cell and its middle.
    values: Vec<(f64, f64)>,
    /// Of each group: cells with their counts.
    groups: Vec<Vec<(usize, f64)>>,
}

impl GroupTable {
    fn new(all: &Counts, groups: &[Counts]) -> Self {
        let tops: Vec<u64> = all.iter().map(|(top, _)| top).collect();
        // A group may have finer cells than the sum of all.
        let at = |value: u64| tops.partition_point(|top| *top < value).min(tops.len().saturating_sub(1));
        let group = |counts: &Counts| counts.iter().map(|(value, count)| (at(value), count as f64)).collect();
        GroupTable {
            values: tops.iter().map(|top| (*top as f64, all.middle(*top))).collect(),
            groups: groups.iter().map(group).collect(),
        }
    }

    /// The counts of cells when each group is taken a number of times.
    fn drawn(&self, times: &[u64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.values.len()];
        for (group, times) in self.groups.iter().zip(times).filter(|(_, times)| **times > 0) {
            group.iter().for_each(|(at, count)| sums[*at] += count * *times as f64);
        }
        sums
    }

    fn figure(&self, sums: &[f64], total: f64, stat: Stat) -> f64 {
        match stat {
            Stat::Mean => self.values.iter().zip(sums).map(|((_, middle), n)| middle * n).sum::<f64>() / total.max(1.0),
            Stat::Quantile(q) => {
                let (rank, mut below) = ((q * total).ceil().max(1.0), 0.0);
                let at = sums.iter().position(|n| {
                    below += n;
                    below >= rank
                });
                self.values.get(at.unwrap_or(self.values.len().saturating_sub(1))).map_or(0.0, |(value, _)| *value)
            }
        }
    }
}

/// The change from one side to the other, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) base: f64,
    pub(super) new: f64,
    pub(super) change: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Estimates the change between the figures of two sides' runs; `None` if nothing tells how much
/// they vary.
pub(super) fn estimate(base: &[RunFigure], new: &[RunFigure], rng: &mut Rng) -> Option<Estimate> {
    let is_varied = |runs: &[RunFigure]| runs.len() > 1 || runs.iter().all(|run| run.groups >= FEWEST_INTERVALS);
    if base.is_empty() || new.is_empty() || !is_varied(base) || !is_varied(new) {
        return None;
    }
    let values = |runs: &[RunFigure]| runs.iter().map(|run| run.value).collect::<Vec<_>>();
    let (from, to) = (median(values(base)), median(values(new)));
    let draw = |runs: &[RunFigure], rng: &mut Rng| -> Vec<f64> {
        let one = |_| {
            let run = &runs[rng.usize(..runs.len())];
            if run.drawn.is_empty() { run.value } else { run.drawn[rng.usize(..run.drawn.len())] }
        };
        (0..runs.len()).map(one).collect()
    };
    let mut changes: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let from = median(draw(base, rng));
            median(draw(new, rng)) - from
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    let at = |fraction: f64| changes[(fraction * (DRAWS - 1) as f64).round() as usize];
    let beyond = (1.0 - CONFIDENCE) / 2.0;
    let change = to - from;
    // Few runs vary less among themselves than runs do, and an interval cannot be narrower than a
    // cell.
    let wider = widening(base.len(), new.len());
    let width = |runs: &[RunFigure]| runs.iter().map(|run| run.width).fold(0.0, f64::max);
    let cell = (1.0 + width(base).max(width(new))).ln();
    let low = change - (change - at(beyond)).max(0.0) * wider - cell;
    let high = change + (at(1.0 - beyond) - change).max(0.0) * wider + cell;
    let fraction = |log: f64| log.exp() - 1.0;
    Some(Estimate {
        base: from.exp(),
        new: to.exp(),
        change: fraction(change),
        low: fraction(low),
        high: fraction(high),
    })
}

/// How much wider an interval from few runs has to be: Student's t instead of the normal
/// distribution, and the variance of a sample instead of its own. 1 for single runs, of which
/// nothing is known.
fn widening(base: usize, new: usize) -> f64 {
    let fewer = base.min(new);
    if fewer < 2 {
        return 1.0;
    }
    let degrees = base + new - 2;
    /// 0.995 quantiles of Student's t with 2, 3, .. degrees of freedom, over that of the normal
    /// distribution.
    const T: [f64; 12] = [3.853, 2.268, 1.787, 1.565, 1.439, 1.359, 1.303, 1.262, 1.230, 1.206, 1.186, 1.169];
    // An approximation with an error below 0.3 % there.
    let t = T.get(degrees - 2).copied().unwrap_or(1.0 + 1.909 / degrees as f64 + 3.7 / (degrees * degrees) as f64);
    t * (fewer as f64 / (fewer - 1) as f64).sqrt()
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    let half = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (lower, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let below = lower.iter().copied().max_by(f64::total_cmp);
    below.filter(|_| !is_odd).map_or(*middle, |below| f64::midpoint(below, *middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;

    /// A run of intervals whose values are around `centre`, and drift together by `drift`.
    fn run(centre: f64, drift: f64, seconds: usize, rng: &mut Rng) -> Vec<ProfileInterval> {
        let centre = centre * (1.0 + drift * (rng.f64() - 0.5));
        let interval = |at: usize| {
            let values = (0..200).map(|_| ((centre * (1.0 + 0.1 * rng.f64() * rng.f64())) as u64, 1));
            ProfileInterval { begin: at as f64, length: 1.0, counts: Counts::of(3, values.collect()) }
        };
        (0..seconds).map(interval).collect()
    }

    fn compared(base: f64, new: f64, drift: f64, runs: usize, seed: u64) -> Estimate {
        let mut rng = Rng::with_seed(seed);
        let mut side = |centre: f64| -> Vec<RunFigure> {
            (0..runs)
                .map(|_| {
                    let intervals = run(centre, drift, 20, &mut rng);
                    figures(&intervals, &[Stat::Quantile(0.99)], &mut rng)[0].clone().unwrap()
                })
                .collect()
        };
        let (base, new) = (side(base), side(new));
        estimate(&base, &new, &mut rng).unwrap()
    }

    /// Of 20 comparisons of equal sides at 99 %, hardly one finds a change; runs that drift need
    /// several a side.
    #[test]
    fn equal_sides_rarely_differ() {
        for (drift, runs, most) in [(0.0, 1, 2), (0.05, 3, 2), (0.2, 5, 2)] {
            let found =
                (0..20).map(|seed| compared(1e6, 1e6, drift, runs, seed)).filter(|e| e.low > 0.0 || e.high < 0.0);
            let found = found.count();
            assert!(found <= most, "{found} with {runs} runs and drift {drift}");
        }
    }

    #[test]
    fn a_change_is_found_with_its_size() {
        for (drift, runs) in [(0.0, 1), (0.02, 3), (0.04, 5)] {
            for seed in 0..4 {
                let slower = compared(1e6, 1.1e6, drift, runs, seed);
                assert!(slower.low > 0.0 && (slower.change - 0.1).abs() < 0.05, "{slower:?}");
                assert!(slower.low <= slower.change && slower.change <= slower.high);
                assert!(compared(1.1e6, 1e6, drift, runs, seed).high < 0.0);
            }
        }
    }

    #[test]
    fn nothing_is_said_about_one_short_run() {
        let mut rng = Rng::with_seed(1);
        let mut figure =
            |seconds| figures(&run(1e6, 0.0, seconds, &mut rng.clone()), &[Stat::Mean], &mut rng)[0].clone().unwrap();
        let (short, long) = (figure(FEWEST_INTERVALS - 1), figure(FEWEST_INTERVALS));
        let mut rng = Rng::with_seed(1);
        assert!(estimate(from_ref(&short), from_ref(&long), &mut rng).is_none());
        assert!(estimate(from_ref(&long), from_ref(&long), &mut rng).is_some());
        assert!(estimate(&[short.clone(), short.clone()], &[long], &mut rng).is_some());
        assert!(estimate(&[], &[short], &mut rng).is_none());
    }

    #[test]
    fn a_quantile_without_values_beyond_it_is_not_known() {
        let mut rng = Rng::with_seed(1);
        let intervals = run(1e6, 0.0, 4, &mut rng);
        let stats = [Stat::Quantile(0.98), Stat::Quantile(0.99), Stat::Mean];
        let found: Vec<bool> = figures(&intervals, &stats, &mut rng).iter().map(Option::is_some).collect();
        assert_eq!(found, [true, false, true]);
        assert!(figures(&[], &stats, &mut rng).iter().all(Option::is_none));
    }

    #[test]
    fn blocks_draw_as_many_as_there_were() {
        let mut rng = Rng::with_seed(1);
        for n in 1..70 {
            assert_eq!(blocks(n, &mut rng).iter().sum::<u64>(), n as u64);
        }
    }

    #[test]
    fn few_runs_widen_an_interval() {
        assert!((widening(1, 9) - 1.0).abs() < 1e-9);
        assert!(widening(2, 2) > widening(3, 3) && widening(3, 3) > widening(5, 5) && widening(100, 100) < 1.03);
        // Between the table and the approximation there is no step.
        assert!((widening(7, 8) / widening(8, 8) - 1.0).abs() < 0.03);
    }
}
