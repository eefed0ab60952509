//! The counts of one histogram, only for values that were recorded: a graph of thousands of nodes
//! and a log of an hour have a hundred thousand histograms, and a full one takes 200 KiB.

/// The largest value and the largest sum of counts: other implementations have signed numbers.
const MAX: u64 = i64::MAX as u64;
/// The most bits of a histogram's unit and of the sub-buckets in it.
const MAX_BITS: u32 = 61;

/// How values are rounded: to cells whose width is a fraction of the value, and at least one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cells {
    /// Significant decimal digits.
    digits: u8,
    /// The unit is two to this power.
    unit_bits: u32,
}

impl Cells {
    /// The power of two of the number of sub-buckets.
    fn bits(self) -> u32 {
        (2 * 10u64.pow(self.digits.into())).next_power_of_two().trailing_zeros()
    }

    /// The power of two of the width of a value's cell.
    fn shift(self, value: u64) -> u32 {
        let bits = u64::BITS - value.leading_zeros();
        bits.saturating_sub(self.bits()).max(self.unit_bits)
    }

    /// The highest value in the cell of a value.
    fn top(self, value: u64) -> u64 {
        value | ((1u64 << self.shift(value)) - 1)
    }

    /// The highest value in the cell with an index of HdrHistogram's arrays; `None` beyond the
    /// largest value.
    fn top_at(self, index: u64) -> Option<u64> {
        let half = self.bits() - 1;
        let (bucket, within) = match index >> half {
            0 | 1 => (0, index),
            n => (n - 1, (index & ((1 << half) - 1)) + (1 << half)),
        };
        let shift = u32::try_from(bucket).ok()?.checked_add(self.unit_bits)?;
        if shift >= u64::BITS || within.leading_zeros() < shift {
            return None;
        }
        Some(self.top(within << shift)).filter(|top| *top <= MAX)
    }
}

/// The counts of one histogram, in the cells of HdrHistogram: whole numbers, rounded to a number of
/// significant digits. Takes memory only for cells that have a count.
///
/// ```
/// use limen::report::Counts;
///
/// let mut counts = Counts::new(2);
/// counts.record(1000, 3);
/// counts.record(5, 1);
/// assert_eq!((counts.len(), counts.quantile(0.5)), (4, Some(1003)));
/// assert_eq!(counts.iter().collect::<Vec<_>>(), [(5, 1), (1003, 3)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    cells: Cells,
    /// The highest value of a cell and its count, by value.
    counts: Vec<(u64, u64)>,
    /// Their sum.
    total: u64,
}

impl Counts {
    /// The most significant digits.
    pub const MAX_DIGITS: u8 = 5;

    /// Returns counts of nothing yet, with this many significant digits, at most 5.
    pub fn new(digits: u8) -> Self {
        Counts { cells: Cells { digits: digits.min(Self::MAX_DIGITS), unit_bits: 0 }, counts: Vec::new(), total: 0 }
    }

    /// Returns counts of nothing yet in the cells of a histogram whose lowest value is `low`;
    /// `None` if there is no such histogram.
    pub fn with_lowest(digits: u8, low: u64) -> Option<Self> {
        let cells = Cells { digits, unit_bits: low.checked_ilog2()? };
        let is_possible = digits <= Self::MAX_DIGITS && cells.bits() + cells.unit_bits <= MAX_BITS;
        is_possible.then_some(Counts { cells, counts: Vec::new(), total: 0 })
    }

    /// Returns its significant decimal digits.
    pub fn digits(&self) -> u8 {
        self.cells.digits
    }

    /// Counts a value, which is rounded up to the highest of its cell, `count` times. Values and
    /// the sum of counts end at 2⁶³ - 1.
    pub fn record(&mut self, value: u64, count: u64) {
        let count = count.min(MAX - self.total);
        if count == 0 {
            return;
        }
        self.total += count;
        let top = self.cells.top(value.min(MAX));
        // Values come in order, or nearly.
        match self.counts.last_mut() {
            Some((last, n)) if *last == top => *n += count,
            Some((last, _)) if *last > top => match self.counts.binary_search_by_key(&top, |(value, _)| *value) {
                Ok(at) => self.counts[at].1 += count,
                Err(at) => self.counts.insert(at, (top, count)),
            },
            _ => self.counts.push((top, count)),
        }
    }

    /// Counts at an index of HdrHistogram's arrays, in ascending order; returns `false` beyond the
    /// largest value or sum.
    pub fn record_at(&mut self, index: u64, count: u64) -> bool {
        let total = self.total.checked_add(count).filter(|total| *total <= MAX);
        let (Some(top), Some(total)) = (self.cells.top_at(index), total) else { return false };
        self.counts.push((top, count));
        self.total = total;
        true
    }

    /// Returns counts of values in any order. Unlike [`Counts::record`], takes no longer for values
    /// out of order.
    pub fn of(digits: u8, mut values: Vec<(u64, u64)>) -> Self {
        values.sort_unstable();
        let mut counts = Counts::new(digits);
        values.into_iter().for_each(|(value, count)| counts.record(value, count));
        counts
    }

    /// Returns what these counts have beyond earlier ones, which were recorded in the same cells.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let (mut rest, mut known) =
            (Counts { cells: self.cells, counts: Vec::new(), total: 0 }, earlier.iter().peekable());
        for (value, count) in self.iter() {
            let known = known.next_if(|(its, _)| *its == value).map_or(0, |(_, count)| count);
            rest.record(value, count.saturating_sub(known));
        }
        rest
    }

    /// Returns the highest value of each cell with its count, by value.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().copied()
    }

    /// Returns the number of cells with a count.
    pub fn cells(&self) -> usize {
        self.counts.len()
    }

    /// Returns how many values were recorded.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Returns whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the highest value of the last cell; 0 without any.
    pub fn max(&self) -> u64 {
        self.counts.last().map_or(0, |(value, _)| *value)
    }

    /// Returns the lowest value of the first cell; 0 without any.
    pub fn min(&self) -> u64 {
        self.counts.first().map_or(0, |(value, _)| value - (self.width(*value) - 1))
    }

    /// Returns the width of the cell of a value.
    pub fn width(&self, value: u64) -> u64 {
        1 << self.cells.shift(value)
    }

    /// Returns the mean, as HdrHistogram computes it: of the middles of cells.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.counts.iter().map(|(top, count)| self.middle(*top) * *count as f64).sum();
        if self.is_empty() { 0.0 } else { sum / self.total as f64 }
    }

    /// Returns the middle of the cell with this highest value.
    pub fn middle(&self, top: u64) -> f64 {
        (top - (self.width(top) - 1) + self.width(top) / 2) as f64
    }

    /// Returns the value below which a fraction of the values lies, as HdrHistogram's
    /// `value_at_quantile`; `None` without values.
    pub fn quantile(&self, fraction: f64) -> Option<u64> {
        self.quantiles([fraction]).next()
    }

    /// Returns the values at ascending fractions, in one pass; nothing without values.
    pub fn quantiles(&self, ascending: impl IntoIterator<Item = f64>) -> impl Iterator<Item = u64> {
        let (mut cells, mut at, mut below) = (self.counts.iter(), 0, 0);
        let fractions = ascending.into_iter().take_while(|_| !self.is_empty());
        fractions.map(move |fraction| {
            let rank = (fraction.clamp(0.0, 1.0) * self.total as f64).ceil().max(1.0) as u64;
            // The rank may be rounded above the total.
            while below < rank
                && let Some((value, count)) = cells.next()
            {
                (at, below) = (*value, below + count);
            }
            at
        })
    }

    /// Whether at least ten values lie beyond a quantile: with fewer it says little.
    pub fn shows(&self, fraction: f64) -> bool {
        // 0.1 is not exactly a tenth.
        self.total as f64 * (1.0 - fraction) > 10.0 - 1e-6
    }

    /// Adds other counts; the result has the fewer digits of both.
    pub fn add(&mut self, other: &Counts) {
        let cells = Cells {
            digits: self.cells.digits.min(other.cells.digits),
            unit_bits: self.cells.unit_bits.max(other.cells.unit_bits),
        };
        let mut sum = Counts { cells, counts: Vec::with_capacity(self.counts.len().max(other.counts.len())), total: 0 };
        let (mut left, mut right) = (self.counts.iter().peekable(), other.counts.iter().peekable());
        while let Some(next) = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.0 <= b.0 => left.next(),
            (_, Some(_)) => right.next(),
            (Some(_), None) => left.next(),
            (None, None) => None,
        } {
            sum.record(next.0, next.1);
        }
        *self = sum;
    }

    /// Returns the same counts of values that are `factor` times as large.
    pub fn scaled(&self, factor: f64) -> Self {
        let cells = Cells { unit_bits: 0, ..self.cells };
        let mut scaled = Counts { cells, counts: Vec::with_capacity(self.counts.len()), total: 0 };
        self.iter().for_each(|(value, count)| scaled.record((value as f64 * factor).round() as u64, count));
        scaled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    /// Values of every size, twice each.
    fn values() -> impl Iterator<Item = u64> {
        (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3, (1u64 << bit) - 1]).filter(|v| *v < 1 << 60)
    }

    #[test]
    fn values_are_rounded_as_by_the_histogram() {
        for (digits, low) in [(0, 1), (1, 1), (2, 1), (3, 1), (3, 1000), (4, 1 << 10), (5, 1)] {
            let mut counts = Counts::with_lowest(digits, low).unwrap();
            let mut histogram = Histogram::<u64>::new_with_bounds(low, 1 << 61, digits).unwrap();
            for value in values() {
                counts.record(value, 2);
                histogram.record_n(value, 2).unwrap();
            }
            let expected: Vec<(u64, u64)> =
                histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
            assert_eq!(counts.iter().collect::<Vec<_>>(), expected, "{digits} {low}");
            for fraction in [0.001, 0.1, 0.5, 0.9, 0.99, 1.0] {
                assert_eq!(
                    counts.quantile(fraction),
                    Some(histogram.value_at_quantile(fraction)),
                    "{digits} {fraction}"
                );
            }
            assert_eq!((counts.min(), counts.max()), (histogram.min(), histogram.max()));
            assert_eq!(counts.len(), histogram.len());
            let (mean, its) = (counts.mean(), histogram.mean());
            assert!((mean - its).abs() <= its * 1e-9, "{mean} {its}");
        }
    }

    #[test]
    fn indices_are_those_of_the_histogram() {
        for (digits, low) in [(1, 1), (2, 1), (3, 16), (5, 1)] {
            let histogram = Histogram::<u64>::new_with_bounds(low, 1 << 40, digits).unwrap();
            let all: Vec<u64> = histogram.iter_all().map(|v| v.value_iterated_to()).collect();
            let counts = Counts::with_lowest(digits, low).unwrap();
            for (index, value) in all.iter().enumerate() {
                assert_eq!(counts.cells.top_at(index as u64), Some(*value), "{digits} {index}");
            }
            assert_eq!(counts.cells.top_at(u64::MAX), None);
            assert_eq!(counts.cells.top_at(1 << 40), None);
        }
    }

    #[test]
    fn a_sum_has_the_fewer_digits() {
        let (mut fine, mut coarse) = (Counts::new(3), Counts::new(1));
        for value in values() {
            fine.record(value, 3);
            coarse.record(value, 4);
        }
        let mut expected = Counts::new(1);
        values().for_each(|value| expected.record(value, 7));
        let mut sum = fine.clone();
        sum.add(&coarse);
        assert_eq!(sum, expected);
        coarse.add(&fine);
        assert_eq!(coarse, expected);
    }

    #[test]
    fn the_rest_is_what_came_later() {
        for digits in [2, 3] {
            let (mut whole, mut known) = (Counts::new(digits), Counts::new(digits));
            for (at, value) in values().enumerate() {
                whole.record(value, 3);
                if at % 2 == 0 {
                    known.record(value, 3);
                }
            }
            let rest = whole.since(&known);
            assert!(rest.len() + known.len() == whole.len(), "{digits} digits");
            known.add(&rest);
            assert!(known == whole && whole.since(&known).is_empty(), "{digits} digits");
        }
    }

    #[test]
    fn nothing_was_recorded() {
        let counts = Counts::new(3);
        assert_eq!((counts.quantile(0.5), counts.max(), counts.min(), counts.len()), (None, 0, 0, 0));
        assert!(counts.is_empty() && counts.mean() == 0.0);
    }

    #[test]
    fn counts_saturate() {
        let mut counts = Counts::new(2);
        counts.record(u64::MAX, u64::MAX);
        counts.record(u64::MAX, u64::MAX);
        assert_eq!((counts.len(), counts.quantile(1.0)), (MAX, Some(MAX)));
        assert_eq!(counts.scaled(1e6).max(), MAX);
        assert!(Counts::with_lowest(5, 0).is_none() && Counts::with_lowest(5, 1 << 50).is_none());
    }
}
