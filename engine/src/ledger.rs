//! The ledger of one worker: histograms without atomics, and a log that keeps recording off the messages' path.
//!
//! A stage says how long something took and for how many messages; that goes to a log of fixed size, and is folded into
//! the histograms after publishing or when there is nothing else to do. Stamps travel with runs of messages
//! ([`Run`]), not with messages.

use crate::base::policy::Telemetry;
use hdrhistogram::Histogram;

/// Messages published together: when, and how much of their life is accounted for.
///
/// `accounted` is a clock of its own: it starts at the first publication and is moved forward by every recorded term.
/// At the sink its distance to the real clock is the closure error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// When they were published; 0 where the run is not recorded.
    pub(crate) sent: u64,
    /// The ledger's clock at that moment.
    pub(crate) accounted: u64,
    /// How much of their wait was spent on partners; known once they were joined.
    pub(crate) hold: u64,
    /// How many messages.
    pub(crate) n: u32,
    /// How many runs this one stands for; 1 unless sampled.
    pub(crate) weight: u32,
}

impl Run {
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.sent != 0
    }
}

/// Adds a run to a list, joining runs that are not recorded.
#[inline]
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if !last.is_recorded() && !run.is_recorded() => last.n += run.n,
        _ => runs.push(run),
    }
}

/// What a histogram counts. The term is part of its tag in the dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Term {
    /// Origin to the first publication.
    Source,
    /// Published to taken.
    Queue,
    /// Waiting for partners of a join or a batch.
    Hold,
    /// Ready, but an output or pool had no room.
    Blocked,
    /// Inside the node's call.
    Compute,
    /// Computed to published.
    Emit,
    /// Origin to the end of the sink's call.
    EndToEnd,
    /// What the other terms leave unexplained of an end-to-end latency.
    Closure,
    /// Messages in one call of a model.
    Batch,
    /// Origin to the end of the sink's call, of what was in a message before: how old it is, not how long that took.
    Age,
    /// How far apart the messages that a join took together began.
    Skew,
}

impl Term {
    /// The word used in tags and tables.
    pub fn name(self) -> &'static str {
        match self {
            Term::Source => "source",
            Term::Queue => "queue",
            Term::Hold => "hold",
            Term::Blocked => "blocked",
            Term::Compute => "compute",
            Term::Emit => "emit",
            Term::EndToEnd => "e2e",
            Term::Closure => "closure",
            Term::Batch => "batch",
            Term::Age => "age",
            Term::Skew => "skew",
        }
    }
}

/// What was recorded of something.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Nanoseconds; of [`Term::Batch`], messages. What was sampled counts for as many as it stands for.
    pub histogram: Histogram<u64>,
    /// How many of its counts were measured; the others are what those stand for.
    pub samples: u64,
}

impl Recorded {
    /// The value at a quantile, only where at least ten samples lie beyond it.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        // 100 samples have ten beyond p90, although 100 × (1 − 0.9) is a little less in binary.
        let beyond = (self.samples as f64 * (1.0 - q) + 1e-6).floor();
        (beyond >= 10.0).then(|| self.histogram.value_at_quantile(q))
    }
}

/// Longest value told apart; longer ones count as this.
const MAX_NS: u64 = 60_000_000_000;

/// Bytes of a histogram with 2 or 3 digits, for the plan's sum.
pub(crate) fn histogram_bytes(digits: u8) -> usize {
    histogram(digits).distinct_values() * size_of::<u64>()
}

fn histogram(digits: u8) -> Histogram<u64> {
    // The bounds and digits are constants that the library accepts.
    Histogram::new_with_bounds(1, MAX_NS, digits).expect("bounds within the library's limits")
}

/// A histogram of a worker, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hist(u32);

/// The counts of a histogram, in the library's own layout: what is recorded here and turned into its [`Histogram`] at the
/// end is what it would have recorded itself, at a fifth of the instructions.
pub(crate) struct Buckets {
    counts: Vec<u64>,
    /// How many of these are only stood for, by others that count for several.
    stood_for: u64,
    /// A bucket has two to this power steps of one width; the next one's are twice as wide.
    magnitude: u32,
    /// Values up to here are in the first bucket.
    mask: u64,
    digits: u8,
}

impl Buckets {
    fn new(digits: u8) -> Self {
        // The least power of two of steps that tells `digits` decimal digits apart, halved, as the library has it.
        let magnitude = if digits <= 2 { 7 } else { 10 };
        Buckets {
            counts: vec![0; histogram(digits).distinct_values()],
            stood_for: 0,
            magnitude,
            mask: (2 << magnitude) - 1,
            digits,
        }
    }

    #[inline]
    fn record(&mut self, value: u64, n: u64) {
        let value = value.min(MAX_NS);
        let bucket = (63 - self.magnitude) - (value | self.mask).leading_zeros();
        let at = (u64::from(bucket) << self.magnitude) + (value >> bucket);
        if let Some(count) = self.counts.get_mut(at as usize) {
            *count = count.saturating_add(n);
        }
    }

    /// What was recorded between two copies of a histogram's counts, behind which stands how many of them are only stood for.
    pub(crate) fn between(digits: u8, then: &[u64], now: &[u64]) -> Recorded {
        let mut passed = Buckets::new(digits);
        for ((count, then), now) in passed.counts.iter_mut().zip(then).zip(now) {
            *count = now.saturating_sub(*then);
        }
        let stood_for = now.last().zip(then.last()).map_or(0, |(now, then)| now.saturating_sub(*then));
        let histogram = passed.histogram();
        Recorded { samples: histogram.len().saturating_sub(stood_for), histogram }
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = histogram(self.digits);
        let steps = 1 << self.magnitude;
        for (at, n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let bucket = (at / steps).saturating_sub(1);
            histogram.saturating_record_n(((at - bucket * steps) as u64) << bucket, *n);
        }
        histogram
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// The histogram, and above [`HISTS`] for how many others each message counts.
    hist: u32,
    n: u32,
    value: u64,
}

/// Bits of an entry's `hist` that name the histogram.
const HISTS: u32 = 24;

/// Entries the log holds before it is folded: 16 KiB.
const LOG: usize = 1024;

/// Counts copied at once: 32 KiB, a few µs.
const PIECE: usize = 4096;

/// A copy of all histograms that is being made.
pub(crate) struct Copying {
    to: Box<[u64]>,
    written: usize,
    hist: usize,
    word: usize,
}

impl Copying {
    pub(crate) fn new(to: Box<[u64]>) -> Self {
        Copying { to, written: 0, hist: 0, word: 0 }
    }

    pub(crate) fn into_words(self) -> Box<[u64]> {
        self.to
    }
}

/// What a worker has recorded.
pub(crate) struct Meter {
    hists: Vec<Buckets>,
    log: Box<[Entry; LOG]>,
    /// How many entries are in use.
    logged: usize,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Meter { hists: Vec::new(), log: Box::new([Entry::default(); LOG]), logged: 0 }
    }

    /// A new histogram; only while the worker is built.
    pub(crate) fn histogram(&mut self, digits: u8) -> Hist {
        self.hists.push(Buckets::new(digits));
        assert!(self.hists.len() < 1 << HISTS, "a worker's nodes have less than {} histograms", 1 << HISTS);
        Hist(self.hists.len() as u32 - 1)
    }

    /// Notes `n` messages of one value, each of which counts for `weight`, from 1 to 256.
    #[inline]
    pub(crate) fn record(&mut self, hist: Hist, value: u64, n: u32, weight: u32) {
        if self.logged == LOG {
            self.fold_now();
        }
        if let Some(place) = self.log.get_mut(self.logged) {
            // Word by word: an entry put together first and copied would be read in another portion than it was written in,
            // and have to wait for the cache.
            (place.hist, place.n, place.value) = (hist.0 | (weight - 1) << HISTS, n, value);
            self.logged += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn fold_now(&mut self) {
        self.fold();
    }

    /// Moves the log into the histograms.
    pub(crate) fn fold(&mut self) {
        for Entry { hist, n, value } in &self.log[..self.logged] {
            let (mut hist, mut n) = (*hist as usize, u64::from(*n));
            if hist >= 1 << HISTS {
                let others = (hist >> HISTS) as u64;
                hist &= (1 << HISTS) - 1;
                self.hists[hist].stood_for += n * others;
                n *= others + 1;
            }
            self.hists[hist].record(*value, n);
        }
        self.logged = 0;
    }

    /// True when there is little to fold, so that it need not be done now.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.logged == 0
    }

    /// Forgets everything recorded so far: the end of the warm-up.
    pub(crate) fn clear(&mut self) {
        self.logged = 0;
        for hist in &mut self.hists {
            hist.counts.fill(0);
            hist.stood_for = 0;
        }
    }

    /// Digits and words of a histogram.
    pub(crate) fn size(&self, hist: Hist) -> (u8, usize) {
        let buckets = &self.hists[hist.0 as usize];
        (buckets.digits, buckets.counts.len())
    }

    /// Copies the next piece of all histograms; true when that was the last.
    pub(crate) fn copy_piece(&self, copying: &mut Copying) -> bool {
        let mut left = PIECE;
        while let Some(buckets) = self.hists.get(copying.hist) {
            if left == 0 {
                return false;
            }
            let from = &buckets.counts[copying.word..];
            let n = left.min(from.len());
            let (place, rest) = copying.to[copying.written..].split_at_mut(n);
            for (to, from) in place.iter_mut().zip(from).filter(|(to, from)| to != from) {
                // Most counts are 0 for ever: memory that is never written to takes no room.
                *to = *from;
            }
            (copying.word, copying.written, left) = (copying.word + n, copying.written + n, left - n);
            if copying.word == buckets.counts.len() {
                rest[0] = buckets.stood_for;
                (copying.hist, copying.word, copying.written) = (copying.hist + 1, 0, copying.written + 1);
            }
        }
        true
    }

    pub(crate) fn take(&mut self, hist: Hist) -> Recorded {
        self.fold();
        let buckets = &self.hists[hist.0 as usize];
        let histogram = buckets.histogram();
        Recorded { samples: histogram.len().saturating_sub(buckets.stood_for), histogram }
    }
}

/// Of saturated bursts, one in so many is recorded and counts as so many.
const ONE_IN: u32 = 16;

/// A source's decision which of its bursts are recorded; the messages carry it through the graph.
#[derive(Debug)]
pub(crate) struct Sampler {
    telemetry: Telemetry,
    count: u32,
    /// Bursts that are still recorded one and all before `auto` takes one in so many.
    whole: u32,
    /// When the last burst began.
    last: u64,
}

/// Bursts that begin at least so long after each other are all recorded: that costs them next to nothing, ns.
const APART: u64 = 20_000;

impl Sampler {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let whole = if telemetry == Telemetry::Auto { ONE_IN } else { 0 };
        Sampler { telemetry, count: 0, whole, last: 0 }
    }

    /// The weight of the burst that began at `now`; 0 where it is not recorded.
    #[inline]
    pub(crate) fn weight(&mut self, after_idle: bool, now: u64) -> u32 {
        let is_apart = now.saturating_sub(self.last) >= APART;
        self.last = now;
        match self.telemetry {
            Telemetry::Full => 1,
            Telemetry::Off => 0,
            Telemetry::Auto if after_idle || is_apart => {
                (self.count, self.whole) = (0, ONE_IN - 1);
                1
            }
            _ if self.whole > 0 => {
                self.whole -= 1;
                1
            }
            _ => {
                let due = self.count == 0;
                self.count = (self.count + 1) % ONE_IN;
                if due { ONE_IN } else { 0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_source_records_one_burst_in_sixteen_for_sixteen() {
        let mut sampler = Sampler::new(Telemetry::Auto);
        let mut now = 0;
        for (first, pause) in [(false, 1), (true, 1), (true, 1), (false, APART + 32)] {
            now += pause;
            let begun: Vec<u32> = (0..16).map(|n| sampler.weight(first && n == 0, now)).collect();
            assert_eq!(begun, [1; 16]);
            let weights: Vec<u32> = (0..32).map(|n| sampler.weight(false, now + n)).collect();
            assert_eq!(weights.iter().sum::<u32>(), 32);
            assert_eq!(weights.iter().filter(|w| **w > 0).count(), 2);
        }
        let slow: Vec<u32> = (1..100).map(|n| sampler.weight(false, now + n * 2 * APART)).collect();
        assert_eq!(slow, [1; 99]);
        let mut sampler = Sampler::new(Telemetry::Sampled);
        let slow: u32 = (1..=160).map(|n| u32::from(sampler.weight(false, n * APART) > 0)).sum();
        assert_eq!(slow, 10);
        assert_eq!(Sampler::new(Telemetry::Off).weight(true, 0), 0);
    }

    #[test]
    fn buckets_are_the_librarys_own() {
        for digits in [2, 3] {
            let (mut buckets, mut expected) = (Buckets::new(digits), histogram(digits));
            let values =
                (0..5000).chain((0..62).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (3 << bit) / 4]));
            for value in values.chain([MAX_NS - 1, MAX_NS, MAX_NS + 1, u64::MAX]) {
                buckets.record(value, value % 7 + 1);
                expected.saturating_record_n(value.min(MAX_NS), value % 7 + 1);
            }
            let found = buckets.histogram();
            // Not `assert_eq`, which would print thousands of counts.
            assert!(found == expected, "{digits} digits");
            assert_eq!((found.min(), found.max()), (expected.min(), expected.max()), "{digits} digits");
        }
    }

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        for weight in [1, 16] {
            let mut meter = Meter::new();
            let hist = meter.histogram(3);
            (1..=100).for_each(|value| meter.record(hist, value, 1, weight));
            let recorded = meter.take(hist);
            assert_eq!((recorded.quantile(0.9), recorded.quantile(0.95)), (Some(90), None), "each for {weight}");
        }
    }

    #[test]
    fn a_full_log_loses_nothing() {
        let mut meter = Meter::new();
        let hist = meter.histogram(2);
        for _ in 0..3 * LOG + 1 {
            meter.record(hist, 1000, 2, 16);
        }
        let (recorded, samples) = (meter.take(hist), 2 * (3 * LOG as u64 + 1));
        assert_eq!((recorded.histogram.len(), recorded.samples), (16 * samples, samples));
    }
}
