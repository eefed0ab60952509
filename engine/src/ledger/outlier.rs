//! Outliers: values far from the usual ones of their histogram, and what their worker did
//! meanwhile.

use crate::ledger::{Hist, PathPart};
use arrayvec::ArrayVec;

/// A value that lies far from the others of its histogram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlier {
    pub(crate) hist: Hist,
    pub(crate) part: PathPart,
    pub(crate) value: u64,
    /// When what it measures ended.
    pub(crate) end: u64,
    /// The median of its histogram; 0 while that is not known.
    pub(crate) usual: u64,
    /// Of a wait: the calls that took most of it on this worker.
    pub(crate) behind: Option<Hist>,
    /// Of a call: how long its node had made none before, and the mean time from call to call;
    /// `None` before the second call.
    pub(crate) pause: Option<(u64, u64)>,
}

/// Outliers of either kind kept between two judgements of a worker.
const OUTLIERS: usize = 64;
/// A call this long is remembered for the waits of others, ns.
pub(super) const LONG_CALL_NS: u64 = 10_000;
/// Long calls remembered.
const LONG_CALLS: usize = 32;

/// A call of a node, by its histogram.
#[derive(Clone, Copy)]
pub(super) struct NodeCall {
    pub(super) hist: Hist,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The largest outliers since they were taken last, and the latest long calls.
#[derive(Default)]
pub(super) struct Outliers {
    parts: ArrayVec<Outlier, OUTLIERS>,
    paths: ArrayVec<Outlier, OUTLIERS>,
    long_calls: ArrayVec<NodeCall, LONG_CALLS>,
}

impl Outliers {
    /// Notes an outlier, in place of the least one if there are too many.
    pub(super) fn note(&mut self, outlier: Outlier) {
        let outliers = if outlier.part == PathPart::Path { &mut self.paths } else { &mut self.parts };
        if outliers.try_push(outlier).is_err()
            && let Some(least) = outliers.iter_mut().min_by_key(|other| other.value)
            && least.value < outlier.value
        {
            *least = outlier;
        }
    }

    /// Notes a long call.
    #[cold]
    pub(super) fn note_call(&mut self, call: NodeCall) {
        if self.long_calls.is_full() {
            self.long_calls.remove(0);
        }
        self.long_calls.push(call);
    }

    /// The calls of a histogram that took at least half of the time from `from` to `to`, as far
    /// back as calls are remembered: the long ones, and those in `others`, of which long ones are
    /// left out.
    pub(super) fn longest_within(&self, from: u64, to: u64, others: impl Iterator<Item = NodeCall>) -> Option<Hist> {
        let oldest = self.long_calls.first().filter(|_| self.long_calls.is_full());
        let from = oldest.map_or(from, |oldest| oldest.from.clamp(from, to));
        let others = others.filter(|call| call.to - call.from < LONG_CALL_NS);
        let mut spent: ArrayVec<(Hist, u64), LONG_CALLS> = ArrayVec::new();
        for call in self.long_calls.iter().copied().chain(others) {
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

    /// Whether there are no outliers to be judged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.paths.is_empty()
    }

    /// The longest part of a latency among the outliers, ns.
    #[inline]
    pub(super) fn longest(&self) -> u64 {
        self.parts.iter().map(|outlier| outlier.value).max().unwrap_or(0)
    }

    /// Takes an outlier.
    // One by one: taking a whole list would copy all of its room.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Outlier> {
        self.parts.pop().or_else(|| self.paths.pop())
    }

    /// Forgets the outliers.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.paths.clear();
    }
}
