//! The counts of a histogram, and the limit beyond which a value is an outlier.

use crate::ledger::outlier::LONG_CALL_NS;
use crate::ledger::{Recorded, Term};
use hdrhistogram::Histogram;

/// Values saturate here, ns.
const MAX_NS: u64 = 60_000_000_000;

/// Bytes of a histogram with 2 or 3 digits, for the plan's memory total.
pub(crate) fn histogram_bytes(digits: u8) -> usize {
    histogram(digits).distinct_values() * size_of::<u64>()
}

fn histogram(digits: u8) -> Histogram<u64> {
    // Bounds and digits are constants that the library accepts.
    Histogram::new_with_bounds(1, MAX_NS, digits).expect("bounds within the library's limits")
}

/// The counts of a histogram, in the library's own layout: converted to a [`Histogram`] at the end, they equal what the
/// library would have recorded, at a fifth of the instructions.
// What every value needs comes first, in one cache line.
#[repr(C, align(64))]
pub(crate) struct Buckets {
    pub(super) counts: Vec<u64>,
    /// A value this large needs a closer look: it is an outlier, or a long call.
    alert: u64,
    /// Counts so far, and how many there are when the limit is set anew.
    total: u64,
    next_total: u64,
    /// When the last value was recorded.
    pub(super) last: u64,
    /// A bucket has 2 to this power steps of one width; the next bucket's are twice as wide.
    magnitude: u8,
    pub(super) digits: u8,
    pub(super) part: Part,
    /// A larger value is an outlier.
    limit: u64,
    /// How many of the counts are not measured but estimated by weighted samples.
    pub(super) stood_for: u64,
    /// The median when the limit was set.
    pub(super) usual: u64,
    /// When the limit was set first, and the counts at that time.
    first: u64,
    first_total: u64,
}

/// What a value is of a message's way through the graph: decides which of a histogram's values are outliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A call of a node.
    Call,
    /// Another part of a latency.
    Wait,
    /// The whole latency.
    Path,
    /// None; it has no outliers.
    Other,
}

impl Part {
    pub(crate) fn of(term: Term) -> Part {
        match term {
            Term::Compute => Part::Call,
            Term::Source | Term::Queue | Term::Hold | Term::BatchWait | Term::Blocked | Term::Emit => Part::Wait,
            Term::EndToEnd => Part::Path,
            Term::Closure | Term::Batch | Term::Age | Term::Skew | Term::Upload | Term::Kernel | Term::Download => {
                Part::Other
            }
        }
    }
}

/// The least value that needs a closer look.
fn alert(limit: u64, part: Part) -> u64 {
    let beyond = limit.saturating_add(1);
    if part == Part::Call { beyond.min(LONG_CALL_NS) } else { beyond }
}

/// Before this many counts, every value is an outlier: nothing is known to be usual.
const FIRST_COUNTS: u64 = 16;
/// A latency is an outlier if so many at most are as long, until it is beyond the 99.9th percentile.
const SLOWEST: f64 = 10.0;
/// A shorter call or wait is never an outlier, ns.
const LEAST_OUTLIER_NS: u64 = 500;

impl Buckets {
    pub(super) fn new(digits: u8, part: Part) -> Self {
        Buckets { counts: vec![0; histogram(digits).distinct_values()], ..Buckets::empty(digits, part) }
    }

    /// Without room for counts.
    fn empty(digits: u8, part: Part) -> Self {
        let limit = match part {
            Part::Other => u64::MAX,
            Part::Path => 0,
            Part::Call | Part::Wait => LEAST_OUTLIER_NS,
        };
        Buckets {
            counts: Vec::new(),
            stood_for: 0,
            magnitude: magnitude(digits),
            digits,
            part,
            limit,
            alert: alert(limit, part),
            usual: 0,
            total: 0,
            last: 0,
            first: 0,
            first_total: 0,
            next_total: if part == Part::Other { u64::MAX } else { FIRST_COUNTS },
        }
    }

    /// Forgets everything recorded.
    pub(super) fn clear(&mut self) {
        let mut counts = std::mem::take(&mut self.counts);
        counts.fill(0);
        *self = Buckets { counts, ..Buckets::empty(self.digits, self.part) };
    }

    /// Sets the limit anew, after a value was recorded.
    ///
    /// A latency is an outlier beyond the 99.9th percentile, or among the slowest ten while there are fewer than 10,000. A part of one may
    /// explain it if it is among the largest 10 %, and closer to its own 99.9th percentile than to its median.
    #[cold]
    #[inline(never)]
    fn watch(&mut self) {
        if self.first == 0 {
            (self.first, self.first_total) = (self.last, self.total);
        }
        let slowest = (1.0 - SLOWEST / self.total as f64).clamp(0.9, 0.999);
        let [usual, p90, slowest, p999] = self.quantiles([0.5, 0.9, slowest, 0.999]);
        self.usual = usual;
        self.limit = match self.part {
            Part::Path => slowest,
            _ => p90.max(usual + p999.saturating_sub(usual) / 2).max(LEAST_OUTLIER_NS),
        };
        self.alert = alert(self.limit, self.part);
        self.next_total = self.total + (self.total / 4).max(FIRST_COUNTS);
    }

    /// The mean time from one value to the next; 0 while it is not known.
    pub(super) fn mean_period(&self) -> u64 {
        let counts = self.total.saturating_sub(self.first_total + 1);
        if self.first == 0 || counts == 0 { 0 } else { self.last.saturating_sub(self.first) / counts }
    }

    /// The largest values that share a bucket with the values at ascending quantiles.
    fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [u64; N] {
        let mut found = [0; N];
        let mut wanted =
            quantiles.map(|quantile| (self.total as f64 * quantile).ceil() as u64).into_iter().zip(&mut found);
        let Some((mut rank, mut place)) = wanted.next() else { return found };
        let (mut sum, steps) = (0, 1 << self.magnitude);
        for (at, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            sum += n;
            while sum >= rank {
                let bucket = (at / steps).saturating_sub(1);
                *place = (((at - bucket * steps) as u64 + 1) << bucket) - 1;
                match wanted.next() {
                    Some(next) => (rank, place) = next,
                    None => return found,
                }
            }
        }
        found
    }

    /// Records `n` messages with the same value, of what ended at `at`. Returns whether it needs a closer look ([`Buckets::review`]).
    #[inline]
    pub(super) fn record(&mut self, value: u64, n: u64, at: u64) -> bool {
        self.count(value, n);
        self.total += n;
        self.last = at;
        value >= self.alert || self.total >= self.next_total
    }

    /// Takes a closer look at the value recorded last. Returns whether it is an outlier.
    pub(super) fn review(&mut self, value: u64) -> bool {
        let is_outlier = value > self.limit;
        if self.total >= self.next_total {
            self.watch();
        }
        is_outlier
    }

    #[inline]
    fn count(&mut self, value: u64, n: u64) {
        let value = value.min(MAX_NS);
        // Values up to the mask are in the first bucket.
        let (magnitude, mask) = (u32::from(self.magnitude), (2 << self.magnitude) - 1);
        let bucket = (63 - magnitude) - (value | mask).leading_zeros();
        let at = (u64::from(bucket) << magnitude) + (value >> bucket);
        if let Some(count) = self.counts.get_mut(at as usize) {
            *count = count.wrapping_add(n);
        }
    }

    /// Returns what was recorded since the previous copy of a histogram's counts, and updates that copy; each ends with the number of
    /// estimated counts. `changed` is a buffer: most counts stay as they are, and cost a comparison.
    pub(crate) fn since(digits: u8, then: &mut [u64], now: &[u64], changed: &mut Vec<(usize, u64)>) -> Recorded {
        changed.clear();
        for (block, (then, now)) in then.chunks_mut(BLOCK).zip(now.chunks(BLOCK)).enumerate() {
            if then != now {
                let passed = now.iter().zip(&*then).enumerate();
                let passed = passed.map(|(at, (now, then))| (block * BLOCK + at, now.saturating_sub(*then)));
                changed.extend(passed.filter(|(_, n)| *n > 0));
                then.copy_from_slice(now);
            }
        }
        let stood_for = changed.pop_if(|(at, _)| *at + 1 == now.len()).map_or(0, |(_, n)| n);
        let histogram = to_histogram(digits, changed.last().map(|(at, _)| *at), changed.iter().copied());
        Recorded { samples: histogram.len().saturating_sub(stood_for), histogram }
    }

    pub(super) fn histogram(&self) -> Histogram<u64> {
        let counts = self.counts.iter().copied().enumerate().filter(|(_, n)| *n > 0);
        to_histogram(self.digits, self.counts.iter().rposition(|n| *n > 0), counts)
    }
}

/// Counts that are compared at once.
const BLOCK: usize = 64;

/// A bucket of a histogram has 2 to this power steps of one width: as in the library, half the least power of two of steps that resolves
/// `digits` decimal digits.
const fn magnitude(digits: u8) -> u8 {
    if digits <= 2 { 7 } else { 10 }
}

/// Converts counts with their places, of which `last` is the largest. The histogram has room up to there, and more when it needs it: that
/// for all values would have 230 KB with three digits, which adds up in a graph of thousands of nodes.
fn to_histogram(digits: u8, last: Option<usize>, counts: impl Iterator<Item = (usize, u64)>) -> Histogram<u64> {
    let steps = 1 << magnitude(digits);
    let value = |at: usize| {
        let bucket = (at / steps).saturating_sub(1);
        ((at - bucket * steps) as u64) << bucket
    };
    // The library requires a highest value of 2 at least. Its digits are constants that it accepts.
    let highest = last.map_or(0, value).max(2);
    let mut histogram = Histogram::new_with_bounds(1, highest, digits).expect("bounds within the library's limits");
    histogram.auto(true);
    counts.for_each(|(at, n)| histogram.saturating_record_n(value(at), n));
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_the_librarys_own() {
        for digits in [2, 3] {
            let (mut buckets, mut expected) = (Buckets::new(digits, Part::Other), histogram(digits));
            let values =
                (0..5000).chain((0..62).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (3 << bit) / 4]));
            for value in values.chain([MAX_NS - 1, MAX_NS, MAX_NS + 1, u64::MAX]) {
                buckets.count(value, value % 7 + 1);
                expected.saturating_record_n(value.min(MAX_NS), value % 7 + 1);
            }
            let found = buckets.histogram();
            // Not `assert_eq`, which would print thousands of counts.
            assert!(found == expected, "{digits} digits");
            assert_eq!((found.min(), found.max()), (expected.min(), expected.max()), "{digits} digits");
        }
    }

    #[test]
    fn a_histogram_has_room_for_what_was_recorded_and_no_more() {
        for (digits, largest, most) in [(2, 0, 256), (2, 1_000, 640), (3, 0, 2048), (3, 100_000, 8192)] {
            let mut buckets = Buckets::new(digits, Part::Other);
            buckets.count(largest, 1);
            let (mut found, full) = (buckets.histogram(), histogram(digits).distinct_values());
            assert!(found.distinct_values() <= most && most < full, "{} for {largest}", found.distinct_values());
            // What is larger still has its place.
            let mut other = Buckets::new(digits, Part::Other);
            other.count(MAX_NS, 1);
            found.add(other.histogram()).unwrap();
            assert!(found.len() == 2 && found.max() >= MAX_NS);
        }
    }

    #[test]
    fn what_was_recorded_since_a_copy_is_found_by_its_changes() {
        let mut buckets = Buckets::new(2, Part::Other);
        let copy = |buckets: &Buckets, stood_for| [&buckets.counts[..], &[stood_for]].concat();
        let (mut then, mut changed) = (vec![0; buckets.counts.len() + 1], Vec::new());
        for (values, stood_for, samples) in
            [(&[5, 5, 70_000, MAX_NS][..], 0, 4), (&[], 0, 0), (&[5, 1_000_000], 1, 1), (&[MAX_NS], 1, 1)]
        {
            let mut expected = histogram(2);
            for value in values {
                buckets.count(*value, 1);
                expected.saturating_record(*value);
            }
            let now = copy(&buckets, stood_for);
            let found = Buckets::since(2, &mut then, &now, &mut changed);
            assert!(found.histogram == expected && found.samples == samples, "{values:?}: {}", found.samples);
            assert_eq!(then, now);
            // No more is touched than what was recorded.
            assert!(changed.len() <= values.len(), "{values:?}: {changed:?}");
        }
    }
}
