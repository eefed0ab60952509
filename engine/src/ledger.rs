//! The ledger of one worker: histograms without atomics, and a log that keeps histogram updates off the per-message
//! path.
//!
//! A stage records a duration and a number of messages in a log of fixed size, which is folded into the histograms
//! after publishing or when the worker is idle. Timestamps travel with runs of messages ([`Run`]), not with messages.

pub(crate) mod span;

use crate::base::policy::Telemetry;
use crate::ledger::span::{Activity, SpanWriter};
use arrayvec::ArrayVec;
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

impl Hist {
    /// Its place in the order in which the worker's histograms were created.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

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
    part: Part,
    /// A larger value is an outlier.
    limit: u64,
    /// The median when the limit was set.
    usual: u64,
    /// Counts so far, and how many there are when the limit is set anew.
    total: u64,
    next_total: u64,
    /// When the last value was recorded, and when the limit was set first, with the counts at that time.
    last: u64,
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
            Term::Source | Term::Queue | Term::Hold | Term::Blocked | Term::Emit => Part::Wait,
            Term::EndToEnd => Part::Path,
            Term::Closure | Term::Batch | Term::Age | Term::Skew | Term::Upload | Term::Kernel | Term::Download => {
                Part::Other
            }
        }
    }
}

/// Before this many counts, every value is an outlier: nothing is known to be usual.
const FIRST_COUNTS: u64 = 16;
/// A latency is an outlier if so many at most are as long, until it is beyond the 99.9th percentile.
const SLOWEST: f64 = 10.0;
/// A shorter call or wait is never an outlier, ns.
const LEAST_OUTLIER_NS: u64 = 500;

impl Buckets {
    fn new(digits: u8, part: Part) -> Self {
        Buckets { counts: vec![0; histogram(digits).distinct_values()], ..Buckets::empty(digits, part) }
    }

    /// Without room for counts.
    fn empty(digits: u8, part: Part) -> Self {
        // As in the library: half the least power of two of steps that resolves `digits` decimal digits.
        let magnitude = if digits <= 2 { 7 } else { 10 };
        Buckets {
            counts: Vec::new(),
            stood_for: 0,
            magnitude,
            mask: (2 << magnitude) - 1,
            digits,
            part,
            limit: match part {
                Part::Other => u64::MAX,
                Part::Path => 0,
                Part::Call | Part::Wait => LEAST_OUTLIER_NS,
            },
            usual: 0,
            total: 0,
            last: 0,
            first: 0,
            first_total: 0,
            next_total: if part == Part::Other { u64::MAX } else { FIRST_COUNTS },
        }
    }

    /// Forgets everything recorded.
    fn clear(&mut self) {
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
        self.next_total = self.total + (self.total / 4).max(FIRST_COUNTS);
    }

    /// The mean time from one value to the next; 0 while it is not known.
    fn mean_period(&self) -> u64 {
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
        let mut passed = Buckets::new(digits, Part::Other);
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
    /// When what it measures ended.
    at: u64,
}

/// A value that lies far from the others of its histogram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlier {
    pub(crate) hist: Hist,
    pub(crate) part: Part,
    pub(crate) value: u64,
    /// When what it measures ended.
    pub(crate) end: u64,
    /// The median of its histogram; 0 while that is not known.
    pub(crate) usual: u64,
    /// Of a wait: the calls that took most of it on this worker.
    pub(crate) behind: Option<Hist>,
    /// Of a call: how long its node had made none before, and the mean time from call to call; `None` before the second call.
    pub(crate) pause: Option<(u64, u64)>,
}

/// Outliers of either kind kept between two judgements of a worker.
const OUTLIERS: usize = 64;
/// A call this long is remembered for the waits of others, ns.
const LONG_CALL_NS: u64 = 10_000;
/// Entries of the log that are looked at for what a message waited for.
const LATEST: usize = 128;
/// Long calls remembered.
const LONG_CALLS: usize = 32;

/// A long call.
#[derive(Clone, Copy)]
struct LongCall {
    hist: Hist,
    from: u64,
    to: u64,
}

/// Bits of an entry's `hist` that identify the histogram.
const HISTS: u32 = 24;

/// Capacity of the log before it is folded: 16 KiB.
const LOG: usize = 16 * 1024 / size_of::<Entry>();

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
    long_calls: ArrayVec<LongCall, LONG_CALLS>,
    /// The largest outliers since they were taken last: parts of latencies, and whole ones.
    outlying_parts: ArrayVec<Outlier, OUTLIERS>,
    outlying_paths: ArrayVec<Outlier, OUTLIERS>,
    /// Where the log is written as well, if anyone asked for it.
    pub(crate) spans: Option<SpanWriter>,
}

impl Meter {
    /// `spans` is where the log is written as well.
    pub(crate) fn new(spans: Option<SpanWriter>) -> Self {
        Meter {
            hists: Vec::new(),
            log: Box::new([Entry::default(); LOG]),
            logged: 0,
            long_calls: ArrayVec::new(),
            outlying_parts: ArrayVec::new(),
            outlying_paths: ArrayVec::new(),
            spans,
        }
    }

    /// Creates a histogram; only while the worker is built.
    pub(crate) fn histogram(&mut self, digits: u8, part: Part) -> Hist {
        self.hists.push(Buckets::new(digits, part));
        assert!(self.hists.len() < 1 << HISTS, "a worker's nodes have less than {} histograms", 1 << HISTS);
        Hist(self.hists.len() as u32 - 1)
    }

    /// Records `n` messages with the same value, of what ended at `at`, each counting for `weight`, from 1 to 256.
    #[inline]
    pub(crate) fn record(&mut self, hist: Hist, value: u64, n: u32, weight: u32, at: u64) {
        if self.logged == LOG {
            self.fold_now();
        }
        if let Some(place) = self.log.get_mut(self.logged) {
            // Word by word: assembling an entry first and copying it would defeat store-to-load forwarding.
            (place.hist, place.n, place.value, place.at) = (hist.0 | (weight - 1) << HISTS, n, value, at);
            self.logged += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn fold_now(&mut self) {
        self.fold();
    }

    /// Moves the log into the histograms, and notes outliers.
    pub(crate) fn fold(&mut self) {
        if let Some(spans) = &mut self.spans {
            for Entry { hist, n, value, at } in &self.log[..self.logged] {
                let activity = Activity::Recorded(hist & ((1 << HISTS) - 1));
                spans.write(span::Entry { activity, messages: *n, begin: at.saturating_sub(*value), end: *at });
            }
        }
        for index in 0..self.logged {
            let Entry { hist, n, value, at } = self.log[index];
            let (mut hist, mut n) = (hist as usize, u64::from(n));
            let buckets = if hist < 1 << HISTS {
                &mut self.hists[hist]
            } else {
                let others = (hist >> HISTS) as u64;
                hist &= (1 << HISTS) - 1;
                let buckets = &mut self.hists[hist];
                buckets.stood_for += n * others;
                n *= others + 1;
                buckets
            };
            buckets.record(value, n);
            buckets.total += n;
            let (is_outlier, last) = (value > buckets.limit, std::mem::replace(&mut buckets.last, at));
            if buckets.total >= buckets.next_total {
                buckets.watch();
            }
            if is_outlier {
                self.note_outlier(index, hist, last);
            }
            if value >= LONG_CALL_NS && self.hists[hist].part == Part::Call {
                self.note_long_call(LongCall { hist: Hist(hist as u32), from: at.saturating_sub(value), to: at });
            }
        }
        self.logged = 0;
    }

    #[cold]
    fn note_long_call(&mut self, call: LongCall) {
        if self.long_calls.is_full() {
            self.long_calls.remove(0);
        }
        self.long_calls.push(call);
    }

    #[cold]
    #[inline(never)]
    fn note_outlier(&mut self, index: usize, hist: usize, last: u64) {
        let Entry { value, at, .. } = self.log[index];
        let Buckets { part, usual, .. } = self.hists[hist];
        let from = at.saturating_sub(value);
        let behind = if part == Part::Wait { self.longest_within(from, at, index) } else { None };
        let pause =
            (part == Part::Call && last > 0).then(|| (from.saturating_sub(last), self.hists[hist].mean_period()));
        let outlier = Outlier { hist: Hist(hist as u32), part, value, end: at, usual, behind, pause };
        let outliers = if part == Part::Path { &mut self.outlying_paths } else { &mut self.outlying_parts };
        if outliers.try_push(outlier).is_err()
            && let Some(least) = outliers.iter_mut().min_by_key(|other| other.value).filter(|least| least.value < value)
        {
            *least = outlier;
        }
    }

    /// The calls of a histogram that took at least half of the time from `from` to `to`, as far back as calls are remembered: long ones,
    /// and the latest of the first `entries` of the log.
    fn longest_within(&self, from: u64, to: u64, entries: usize) -> Option<Hist> {
        let latest = self.log[..entries].iter().rev().take(LATEST).take_while(|entry| entry.at > from);
        let logged = latest.filter_map(|entry| {
            let hist = entry.hist & ((1 << HISTS) - 1);
            // Longer ones are remembered.
            let is_call = self.hists[hist as usize].part == Part::Call && entry.value < LONG_CALL_NS;
            is_call.then(|| LongCall { hist: Hist(hist), from: entry.at.saturating_sub(entry.value), to: entry.at })
        });
        let oldest = self.long_calls.first().filter(|_| self.long_calls.is_full());
        let from = oldest.map_or(from, |oldest| oldest.from.clamp(from, to));
        let mut spent: ArrayVec<(Hist, u64), LONG_CALLS> = ArrayVec::new();
        for call in self.long_calls.iter().copied().chain(logged) {
            let within = call.to.min(to).saturating_sub(call.from.max(from));
            if within == 0 {
                continue;
            }
            match spent.iter_mut().find(|(hist, _)| *hist == call.hist) {
                Some((_, sum)) => *sum += within,
                None => _ = spent.try_push((call.hist, within)),
            }
        }
        let longest = spent.into_iter().max_by_key(|(_, sum)| *sum);
        longest.filter(|(_, sum)| *sum >= (to - from) / 2).map(|(hist, _)| hist)
    }

    /// Whether there are outliers to be judged.
    #[inline]
    pub(crate) fn has_outliers(&self) -> bool {
        !self.outlying_parts.is_empty() || !self.outlying_paths.is_empty()
    }

    /// The longest part of a latency among the outliers, ns.
    #[inline]
    pub(crate) fn longest_outlier(&self) -> u64 {
        self.outlying_parts.iter().map(|outlier| outlier.value).max().unwrap_or(0)
    }

    /// Takes the outliers since the last call.
    pub(crate) fn take_outliers(&mut self) -> impl Iterator<Item = Outlier> + use<> {
        self.outlying_parts.take().into_iter().chain(self.outlying_paths.take())
    }

    /// Whether there is nothing to fold.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.logged == 0
    }

    /// Whether the log is more than half full.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        self.logged > LOG / 2
    }

    /// Clears everything recorded so far, at the end of the warm-up.
    pub(crate) fn clear(&mut self) {
        self.logged = 0;
        self.hists.iter_mut().for_each(Buckets::clear);
        self.outlying_parts.clear();
        self.outlying_paths.clear();
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
            let (mut buckets, mut expected) = (Buckets::new(digits, Part::Other), histogram(digits));
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
            let mut meter = Meter::new(None);
            let hist = meter.histogram(3, Part::Other);
            (1..=100).for_each(|value| meter.record(hist, value, 1, weight, 0));
            let recorded = meter.take(hist);
            assert_eq!((recorded.quantile(0.9), recorded.quantile(0.95)), (Some(90), None), "each for {weight}");
        }
    }

    #[test]
    fn a_full_log_loses_nothing() {
        let mut meter = Meter::new(None);
        let hist = meter.histogram(2, Part::Other);
        for _ in 0..3 * LOG + 1 {
            meter.record(hist, 1000, 2, 16, 0);
        }
        let (recorded, samples) = (meter.take(hist), 2 * (3 * LOG as u64 + 1));
        assert_eq!((recorded.histogram.len(), recorded.samples), (16 * samples, samples));
    }
}
