//! The measurements of a worker: its histograms and its log.

use crate::host::footprint::Footprint;
use crate::ledger::outlier::{LONG_CALL_NS, NodeCall, Outliers};
use crate::ledger::span::{self, Activity, SpanWriter};
use crate::ledger::{Buckets, Copying, Hist, Outlier, PathPart, Recorded};

#[derive(Clone, Copy, Default)]
struct MeterEntry {
    /// The histogram, and above bit [`HISTS`] the weight minus one.
    hist: u32,
    n: u32,
    value: u64,
    /// When what it measures ended.
    at: u64,
}

/// Bits of an entry's `hist` that identify the histogram.
const HISTS: u32 = 24;

/// Capacity of the log before it is folded: 16 KiB.
const LOG: usize = 16 * 1024 / size_of::<MeterEntry>();

/// Entries of the log that are looked at for what a message waited for.
const LATEST: usize = 128;

/// Folds from one move of zeros into the histograms to the next: seldom enough to cost nothing, and
/// often enough that the quantiles by which outliers are judged are not out of date, and that no
/// counter overflows: every zero comes with an entry of the log, of its call.
const FOLDS: u32 = 32;

/// The measurements of a worker.
pub(crate) struct Meter {
    hists: Vec<Buckets>,
    /// Zeros recorded and not yet in the histograms, by histogram; empty if the log is written
    /// elsewhere, too.
    zeros: Vec<u32>,
    /// Folds since the zeros were moved into the histograms.
    folds: u32,
    log: Box<[MeterEntry; LOG]>,
    /// Number of entries in use.
    logged: usize,
    outliers: Box<Outliers>,
    /// Where the log is written as well, if anyone asked for it.
    pub(crate) spans: Option<SpanWriter>,
}

impl Meter {
    /// `spans` is where the log is written as well.
    pub(crate) fn new(spans: Option<SpanWriter>) -> Self {
        Meter {
            hists: Vec::new(),
            zeros: Vec::new(),
            folds: 0,
            log: Box::new([MeterEntry::default(); LOG]),
            logged: 0,
            outliers: Box::default(),
            spans,
        }
    }

    /// Creates a histogram; only while the worker is built.
    pub(crate) fn histogram(&mut self, digits: u8, part: PathPart) -> Hist {
        self.hists.push(Buckets::new(digits, part));
        if self.spans.is_none() {
            self.zeros.push(0);
        }
        assert!(self.hists.len() < 1 << HISTS, "a worker's nodes have less than {} histograms", 1 << HISTS);
        Hist(self.hists.len() as u32 - 1)
    }

    /// Records `n` messages with the same value, of what ended at `at`, each counting for `weight`,
    /// from 1 to 256.
    #[inline]
    pub(crate) fn record(&mut self, hist: Hist, value: u64, n: u32, weight: u32, at: u64) {
        let Some(place) = self.log.get_mut(self.logged) else {
            return self.record_when_full(hist, value, n, weight, at);
        };
        // Word by word: assembling an entry first and copying it would defeat store-to-load
        // forwarding.
        (place.hist, place.n, place.value, place.at) = (hist.0 | (weight - 1) << HISTS, n, value, at);
        self.logged += 1;
    }

    /// As [`Meter::record`], of what is mostly zero, and has no part in a trace then: a wait, or
    /// the residual. A zero of weight 1 costs a counter instead of an entry of the log.
    #[inline]
    pub(crate) fn record_mostly_zero(&mut self, hist: Hist, value: u64, n: u32, weight: u32, at: u64) {
        if value == 0
            && weight == 1
            && let Some(zeros) = self.zeros.get_mut(hist.index())
        {
            *zeros += n;
        } else {
            self.record(hist, value, n, weight, at);
        }
    }

    /// Adds what the first messages touch that are recorded after the log was folded.
    pub(crate) fn footprint(&self, to: &mut Footprint) {
        to.add(self.log.as_ptr(), 512);
        to.add(self.zeros.as_ptr(), size_of_val(&*self.zeros));
    }

    #[cold]
    #[inline(never)]
    fn record_when_full(&mut self, hist: Hist, value: u64, n: u32, weight: u32, at: u64) {
        self.fold();
        self.record(hist, value, n, weight, at);
    }

    /// Moves the log into the histograms, and notes outliers.
    pub(crate) fn fold(&mut self) {
        if let Some(spans) = &mut self.spans {
            for MeterEntry { hist, n, value, at } in &self.log[..self.logged] {
                let activity = Activity::Recorded(hist & ((1 << HISTS) - 1));
                spans.write(span::SpanEntry { activity, messages: *n, begin: at.saturating_sub(*value), end: *at });
            }
        }
        for index in 0..self.logged {
            let MeterEntry { hist, n, value, at } = self.log[index];
            let (others, mut n) = (u64::from(hist >> HISTS), u64::from(n));
            let hist = (hist & ((1 << HISTS) - 1)) as usize;
            let buckets = &mut self.hists[hist];
            if others > 0 {
                buckets.stood_for += n * others;
                n *= others + 1;
            }
            let last = buckets.last;
            if buckets.record(value, n, at) {
                self.review(index, hist, last);
            }
        }
        self.logged = 0;
        self.folds += 1;
        if self.folds >= FOLDS {
            self.fold_zeros();
        }
    }

    /// Moves the zeros into the histograms: now and then, and before these are read.
    #[inline(never)]
    pub(crate) fn fold_zeros(&mut self) {
        self.folds = 0;
        for (buckets, zeros) in self.hists.iter_mut().zip(&mut self.zeros).filter(|(_, zeros)| **zeros > 0) {
            let last = buckets.last;
            if buckets.record(0, u64::from(std::mem::take(zeros)), last) {
                buckets.review(0);
            }
        }
    }

    /// Takes a closer look at an entry that was just recorded; `last` is when the one before it
    /// was.
    #[cold]
    #[inline(never)]
    fn review(&mut self, index: usize, hist: usize, last: u64) {
        let MeterEntry { value, at, .. } = self.log[index];
        if self.hists[hist].review(value) {
            self.note_outlier(index, hist, last);
        }
        if value >= LONG_CALL_NS && self.hists[hist].part == PathPart::Call {
            self.outliers.note_call(NodeCall { hist: Hist(hist as u32), from: at.saturating_sub(value), to: at });
        }
    }

    fn note_outlier(&mut self, index: usize, hist: usize, last: u64) {
        let MeterEntry { value, at, .. } = self.log[index];
        let Buckets { part, usual, .. } = self.hists[hist];
        let from = at.saturating_sub(value);
        let behind = if part == PathPart::Wait { self.longest_within(from, at, index) } else { None };
        let pause =
            (part == PathPart::Call && last > 0).then(|| (from.saturating_sub(last), self.hists[hist].mean_period()));
        let hist = Hist(hist as u32);
        self.outliers.note(Outlier { hist, part, value, end: at, usual, behind, pause });
    }

    /// The calls of a histogram that took at least half of the time from `from` to `to`, among long
    /// ones and the latest of the first `entries` of the log.
    fn longest_within(&self, from: u64, to: u64, entries: usize) -> Option<Hist> {
        let latest = self.log[..entries].iter().rev().take(LATEST).take_while(|entry| entry.at > from);
        let calls = latest.filter_map(|entry| {
            let hist = Hist(entry.hist & ((1 << HISTS) - 1));
            let is_call = self.hists[hist.index()].part == PathPart::Call;
            is_call.then(|| NodeCall { hist, from: entry.at.saturating_sub(entry.value), to: entry.at })
        });
        self.outliers.longest_within(from, to, calls)
    }

    /// Whether there are outliers to be judged.
    #[inline]
    pub(crate) fn has_outliers(&self) -> bool {
        !self.outliers.is_empty()
    }

    /// The longest part of a latency among the outliers, ns.
    #[inline]
    pub(crate) fn longest_outlier(&self) -> u64 {
        self.outliers.longest()
    }

    /// Takes an outlier; `None` if there are no more.
    #[inline]
    pub(crate) fn pop_outlier(&mut self) -> Option<Outlier> {
        self.outliers.pop()
    }

    /// Whether there is nothing to fold but zeros.
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
        self.zeros.fill(0);
        self.hists.iter_mut().for_each(Buckets::clear);
        self.outliers.clear();
    }

    /// The digits of a histogram.
    pub(crate) fn digits(&self, hist: Hist) -> u8 {
        self.hists[hist.index()].digits
    }

    /// Copies the next piece of all histograms; true if that was the last.
    pub(crate) fn copy_piece(&self, copying: &mut Copying) -> bool {
        copying.copy_piece(&self.hists)
    }

    /// Returns what a histogram has, as far as log and zeros were folded.
    pub(crate) fn recorded(&self, hist: Hist) -> Recorded {
        let buckets = &self.hists[hist.index()];
        let histogram = buckets.histogram();
        Recorded { samples: histogram.len().saturating_sub(buckets.stood_for), histogram }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(meter: &mut Meter, hist: Hist) -> Recorded {
        meter.fold();
        meter.fold_zeros();
        meter.recorded(hist)
    }

    #[test]
    fn a_quantile_needs_ten_samples_beyond_it() {
        for weight in [1, 16] {
            let mut meter = Meter::new(None);
            let hist = meter.histogram(3, PathPart::Other);
            (1..=100).for_each(|value| meter.record(hist, value, 1, weight, 0));
            let recorded = take(&mut meter, hist);
            assert_eq!((recorded.quantile(0.9), recorded.quantile(0.95)), (Some(90), None), "each for {weight}");
        }
    }

    #[test]
    fn a_full_log_loses_nothing() {
        let mut meter = Meter::new(None);
        let hist = meter.histogram(2, PathPart::Other);
        for _ in 0..3 * LOG + 1 {
            meter.record(hist, 1000, 2, 16, 0);
        }
        let (recorded, samples) = (take(&mut meter, hist), 2 * (3 * LOG as u64 + 1));
        assert_eq!((recorded.histogram.len(), recorded.samples), (16 * samples, samples));
    }

    #[test]
    fn zeros_are_counted_like_other_values() {
        let mut meter = Meter::new(None);
        let (wait, call) = (meter.histogram(2, PathPart::Wait), meter.histogram(2, PathPart::Call));
        for at in 1..=5000 {
            meter.record_mostly_zero(wait, u64::from(at % 10 == 0) * 100, 1, 1, at);
            meter.record(call, 7, 1, 1, at);
            if at % 3 == 0 {
                meter.record_mostly_zero(wait, 0, 2, 16, at);
            }
        }
        let (waits, calls) = (take(&mut meter, wait), take(&mut meter, call));
        assert_eq!((waits.samples, waits.histogram.len()), (5000 + 2 * 1666, 5000 + 32 * 1666));
        assert_eq!(waits.histogram.iter().next(), Some((0, 4500 + 32 * 1666)));
        assert_eq!(calls.samples, 5000);
        meter.record_mostly_zero(wait, 0, 1, 1, 1);
        meter.clear();
        assert_eq!(take(&mut meter, wait).samples, 0);
    }
}
