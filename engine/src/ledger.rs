//! The ledger of one worker: histograms without atomics, and a log that keeps histogram updates off the per-message
//! path.
//!
//! A stage records a duration and a number of messages in a log of fixed size, which is folded into the histograms
//! after publishing or when the worker is idle. Timestamps travel with runs of messages ([`Run`]), not with messages.

use crate::base::policy::Telemetry;
use hdrhistogram::Histogram;

/// Messages published together: when, and how much of their latency is accounted for.
///
/// `accounted` is a clock of its own: it starts at the first publication and is advanced by every recorded term. At the
/// sink, its distance from the real clock is the closure error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// When they were published; 0 if the run is not recorded.
    pub(crate) sent: u64,
    /// The ledger's clock at that time.
    pub(crate) accounted: u64,
    /// How much of their wait was for partners; known once they were joined.
    pub(crate) hold: u64,
    /// Number of messages.
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

/// Appends a run to a list, merging runs that are not recorded.
#[inline]
pub(crate) fn push_run(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if !last.is_recorded() && !run.is_recorded() => last.n += run.n,
        _ => runs.push(run),
    }
}

/// The quantity that a histogram measures; part of its tag in dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Term {
    /// Origin to the first publication.
    Source,
    /// Published to taken.
    Queue,
    /// Waiting for partners of a join or a batch.
    Hold,
    /// Ready, but without room in an output or pool.
    Blocked,
    /// Inside the node's call.
    Compute,
    /// Computed to published.
    Emit,
    /// Origin to the end of the sink's call.
    EndToEnd,
    /// The part of an end-to-end latency that the other terms do not explain.
    Closure,
    /// Messages in one call of a model.
    Batch,
    /// Origin to the end of the sink's call, for reused messages: their age, not a latency.
    Age,
    /// How far apart in time the messages of a join originated.
    Skew,
    /// Passing messages to a device, on the host. Part of the call's [`Term::Compute`].
    Upload,
    /// What a call takes on a device, by its clock. The host sees it in the compute time of what waits for it.
    Kernel,
    /// Copying messages from a device, by its clock. Part of the call's [`Term::Compute`].
    Download,
}

impl Term {
    /// Returns the name used in tags and tables.
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
            Term::Upload => "upload",
            Term::Kernel => "kernel",
            Term::Download => "download",
        }
    }
}

/// The measurements of one term.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Nanoseconds; of [`Term::Batch`], messages. What was sampled counts for as many as it stands for. The type is `hdrhistogram`'s,
    /// so that a program can add histograms, ask for any quantile, and write them as other tools read them.
    pub histogram: Histogram<u64>,
    /// How many of its counts were measured; the others are estimated by sampling.
    pub samples: u64,
}

impl Recorded {
    /// Returns the value at a quantile, if at least ten samples lie beyond it.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        // 100 samples have ten beyond p90, although 100 × (1 − 0.9) is a little less in binary.
        let beyond = (self.samples as f64 * (1.0 - q) + 1e-6).floor();
        (beyond >= 10.0).then(|| self.histogram.value_at_quantile(q))
    }
}

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

/// A histogram of a worker, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hist(u32);

/// The counts of a histogram, in the library's own layout: converted to a [`Histogram`] at the end, they equal what the
/// library would have recorded, at a fifth of the instructions.
pub(crate) struct Buckets {
    counts: Vec<u64>,
    /// How many of these are not measured but estimated by weighted samples.
    stood_for: u64,
    /// A bucket has 2 to this power steps of one width; the next bucket's are twice as wide.
    magnitude: u32,
    /// Values up to here are in the first bucket.
    mask: u64,
    digits: u8,
}

impl Buckets {
    fn new(digits: u8) -> Self {
        // As in the library: half the least power of two of steps that resolves `digits` decimal digits.
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

    /// Returns what was recorded between two copies of a histogram's counts; each copy ends with the number of
    /// estimated counts.
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
    /// The histogram, and above bit [`HISTS`] the weight minus one.
    hist: u32,
    n: u32,
    value: u64,
}

/// Bits of an entry's `hist` that identify the histogram.
const HISTS: u32 = 24;

/// Capacity of the log before it is folded: 16 KiB.
const LOG: usize = 1024;

/// Counts copied at a time: 32 KiB, a few µs.
const PIECE: usize = 4096;

/// A copy of all histograms in progress.
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

/// The measurements of a worker.
pub(crate) struct Meter {
    hists: Vec<Buckets>,
    log: Box<[Entry; LOG]>,
    /// Number of entries in use.
    logged: usize,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Meter { hists: Vec::new(), log: Box::new([Entry::default(); LOG]), logged: 0 }
    }

    /// Creates a histogram; only while the worker is built.
    pub(crate) fn histogram(&mut self, digits: u8) -> Hist {
        self.hists.push(Buckets::new(digits));
        assert!(self.hists.len() < 1 << HISTS, "a worker's nodes have less than {} histograms", 1 << HISTS);
        Hist(self.hists.len() as u32 - 1)
    }

    /// Records `n` messages with the same value, each counting for `weight`, from 1 to 256.
    #[inline]
    pub(crate) fn record(&mut self, hist: Hist, value: u64, n: u32, weight: u32) {
        if self.logged == LOG {
            self.fold_now();
        }
        if let Some(place) = self.log.get_mut(self.logged) {
            // Word by word: assembling an entry first and copying it would defeat store-to-load forwarding.
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

    /// Whether there is nothing to fold.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.logged == 0
    }

    /// Clears everything recorded so far, at the end of the warm-up.
    pub(crate) fn clear(&mut self) {
        self.logged = 0;
        for hist in &mut self.hists {
            hist.counts.fill(0);
            hist.stood_for = 0;
        }
    }

    /// Digits and number of counts of a histogram.
    pub(crate) fn size(&self, hist: Hist) -> (u8, usize) {
        let buckets = &self.hists[hist.0 as usize];
        (buckets.digits, buckets.counts.len())
    }

    /// Copies the next piece of all histograms; true if that was the last.
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
                // Most counts stay 0: pages that are never written take no memory.
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

/// Of saturated bursts, one in this many is recorded, with this weight.
const ONE_IN: u32 = 16;

/// Decides which of a source's bursts are recorded; the decision travels with the messages.
#[derive(Debug)]
pub(crate) struct Sampler {
    telemetry: Telemetry,
    count: u32,
    /// Bursts still recorded individually before `auto` starts sampling.
    whole: u32,
    /// When the last burst began.
    last: u64,
}

/// Bursts at least this far apart are all recorded, at negligible cost, ns.
const APART: u64 = 20_000;

impl Sampler {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        let whole = if telemetry == Telemetry::Auto { ONE_IN } else { 0 };
        Sampler { telemetry, count: 0, whole, last: 0 }
    }

    /// The weight of the burst that began at `now`; 0 if it is not recorded.
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
