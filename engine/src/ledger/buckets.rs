//! The counts of a histogram, and the limit beyond which a value is an outlier.

use crate::ledger::outlier::LONG_CALL_NS;
use crate::ledger::{Counts, Term};

/// Values saturate here, ns.
const MAX_NS: u64 = 60_000_000_000;

/// Bytes of a histogram with 2 or 3 digits, for the plan's memory total.
pub(crate) fn histogram_bytes(digits: u8) -> usize {
    counts_of(digits) * size_of::<u64>()
}

/// The number of counts of a histogram with 2 or 3 digits: to the end of the bucket of the highest
/// value.
pub(super) fn counts_of(digits: u8) -> usize {
    let (bucket, _) = place_of(magnitude(digits), MAX_NS);
    (bucket as usize + 2) << magnitude(digits)
}

/// The bucket of a value, and the place of its count.
#[inline]
fn place_of(magnitude: u8, value: u64) -> (u32, u64) {
    // Values up to the mask are in the first bucket.
    let (magnitude, mask) = (u32::from(magnitude), (2 << magnitude) - 1);
    let bucket = (63 - magnitude) - (value | mask).leading_zeros();
    (bucket, (u64::from(bucket) << magnitude) + (value >> bucket))
}

/// The counts of a histogram, in the layout of HdrHistogram: converted to [`Counts`] at the end,
/// they equal what the library would have recorded, at a fifth of the instructions.
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
    pub(super) part: PathPart,
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

/// What a value is of a message's way through the graph: decides which of a histogram's values are
/// outliers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPart {
    /// A call of a node.
    Call,
    /// Another part of a latency.
    Wait,
    /// The whole latency.
    Path,
    /// None; it has no outliers.
    Other,
}

impl PathPart {
    pub(crate) fn of(term: Term) -> PathPart {
        match term {
            Term::Compute => PathPart::Call,
            Term::Source | Term::Queue | Term::Wait | Term::BatchWait | Term::Blocked | Term::Emit => PathPart::Wait,
            Term::EndToEnd => PathPart::Path,
            Term::Residual | Term::Batch | Term::Age | Term::Skew | Term::Upload | Term::Kernel | Term::Download => {
                PathPart::Other
            }
        }
    }
}

/// The least value that needs a closer look.
fn alert(limit: u64, part: PathPart) -> u64 {
    let beyond = limit.saturating_add(1);
    if part == PathPart::Call { beyond.min(LONG_CALL_NS) } else { beyond }
}

/// Before this many counts, every value is an outlier: nothing is known to be usual.
const FIRST_COUNTS: u64 = 16;
/// A latency is an outlier if so many at most are as long, until it is beyond the 99.9th
/// percentile.
const SLOWEST: f64 = 10.0;
/// A shorter call or wait is never an outlier, ns.
const LEAST_OUTLIER_NS: u64 = 500;

impl Buckets {
    pub(super) fn new(digits: u8, part: PathPart) -> Self {
        // Zeros that are never written take no memory.
        Buckets { counts: vec![0; counts_of(digits)], ..Buckets::empty(digits, part) }
    }

    /// Without room for counts.
    fn empty(digits: u8, part: PathPart) -> Self {
        let limit = match part {
            PathPart::Other => u64::MAX,
            PathPart::Path => 0,
            PathPart::Call | PathPart::Wait => LEAST_OUTLIER_NS,
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
            next_total: if part == PathPart::Other { u64::MAX } else { FIRST_COUNTS },
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
    /// A latency is an outlier beyond the 99.9th percentile, or among the slowest ten while there
    /// are fewer than 10,000. A part of one may explain it if it is among the largest 10 %, and
    /// closer to its own 99.9th percentile than to its median.
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
            PathPart::Path => slowest,
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

    /// Records `n` messages with the same value, of what ended at `at`. Returns whether it needs a
    /// closer look ([`Buckets::review`]).
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
        let (_, at) = place_of(self.magnitude, value.min(MAX_NS));
        if let Some(count) = self.counts.get_mut(at as usize) {
            *count = count.wrapping_add(n);
        }
    }

    /// The counts, or none if nothing was recorded.
    pub(super) fn counts_in_use(&self) -> &[u64] {
        if self.total == 0 { &[] } else { &self.counts }
    }

    pub(super) fn histogram(&self) -> Counts {
        let mut recorded = Counts::new(self.digits);
        // Most blocks have no counts: comparing them as a whole takes a fraction of the time.
        for (at, block) in self.counts_in_use().chunks(BLOCK).enumerate().filter(|(_, block)| **block != [0; BLOCK]) {
            record_block(&mut recorded, at, block.iter().copied());
        }
        recorded
    }
}

/// A bucket of a histogram has 2 to this power steps of one width: as in the library, half the
/// least power of two of steps that resolves `digits` decimal digits.
const fn magnitude(digits: u8) -> u8 {
    if digits <= 2 { 7 } else { 10 }
}

/// Counts of a block. The counts of a histogram are a multiple of it.
pub(super) const BLOCK: usize = 64;

/// Records the counts of a block, which follows those recorded before.
pub(super) fn record_block(to: &mut Counts, block: usize, counts: impl Iterator<Item = u64>) {
    for (at, n) in counts.enumerate().filter(|(_, n)| *n > 0) {
        to.record_at((block * BLOCK + at) as u64, n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    fn histogram(digits: u8) -> Histogram<u64> {
        Histogram::new_with_bounds(1, MAX_NS, digits).unwrap()
    }

    #[test]
    fn buckets_are_the_librarys_own() {
        for digits in [2, 3] {
            let (mut buckets, mut expected) = (Buckets::new(digits, PathPart::Other), histogram(digits));
            assert_eq!(buckets.counts.len(), expected.distinct_values(), "{digits} digits");
            let values =
                (0..5000).chain((0..62).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (3 << bit) / 4]));
            for value in values.chain([MAX_NS - 1, MAX_NS, MAX_NS + 1, u64::MAX]) {
                buckets.record(value, value % 7 + 1, 1);
                expected.saturating_record_n(value.min(MAX_NS), value % 7 + 1);
            }
            let found = buckets.histogram();
            let recorded = expected.iter_recorded().map(|cell| (cell.value_iterated_to(), cell.count_at_value()));
            // Not `assert_eq`, which would print thousands of counts.
            assert!(found.iter().eq(recorded) && found.len() == expected.len(), "{digits} digits");
        }
    }
}
