//! The ledger of one worker: histograms without atomics, and a log that keeps histogram updates off
//! the per-message path.
//!
//! A stage records a duration and a number of messages in a log of fixed size, which is folded into
//! the histograms after publishing or when the worker is idle. Timestamps travel with runs of
//! messages ([`Run`]), not with messages.

mod buckets;
mod copying;
mod counts;
mod meter;
mod outlier;
mod sampler;
pub(crate) mod span;

pub(crate) use buckets::{Buckets, PathPart, histogram_bytes};
pub(crate) use copying::{Copies, Copying, copied_words, copy_bytes};
pub use counts::Counts;
pub(crate) use meter::Meter;
pub(crate) use outlier::Outlier;
pub(crate) use sampler::Sampler;

/// Messages published together: when, and how much of their latency is accounted for.
///
/// `accounted` is a clock of its own: it starts at the first publication and is advanced by every
/// recorded term. At the sink, its distance from the real clock is the residual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// When they were published; 0 if the run is not recorded.
    pub(crate) sent: u64,
    /// The ledger's clock at that time.
    pub(crate) accounted: u64,
    /// How long they waited for partners, ns; known once they were joined.
    pub(crate) wait: u64,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Term {
    /// Origin to the first publication.
    Source,
    /// Published to taken.
    Queue,
    /// Join wait: for partners of a join. At a model that joins nothing, batch wait.
    Wait,
    /// Batch wait at a model that also joins its inputs: for the rest of a batch or for calls in
    /// flight.
    BatchWait,
    /// Ready, but without room in an output or pool.
    Blocked,
    /// Inside the node's call.
    Compute,
    /// Computed to published.
    Emit,
    /// Origin to the end of the sink's call.
    #[strum(serialize = "e2e")]
    EndToEnd,
    /// The part of an end-to-end latency that no other term explains.
    Residual,
    /// Messages in one call of a model.
    Batch,
    /// Origin to the end of the sink's call, for reused messages: their age, not a latency.
    Age,
    /// How far apart in time the messages of a join originated.
    Skew,
    /// Passing messages to a device, on the host. Part of the call's [`Term::Compute`].
    Upload,
    /// What a call takes on a device, by its clock. The host sees it in the compute time of what
    /// waits for it.
    Kernel,
    /// Copying messages from a device, by its clock. Part of the call's [`Term::Compute`].
    Download,
}

impl Term {
    /// Returns the name used in tags and tables.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The measurements of one term.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Nanoseconds; of [`Term::Batch`], messages. What was sampled counts for as many as it stands
    /// for.
    pub histogram: Counts,
    /// How many of its counts were measured; the others are estimated by sampling.
    pub samples: u64,
}

impl Recorded {
    /// Returns the value at a quantile, if at least ten samples lie beyond it.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        self.histogram.quantile(q).filter(|_| self.has_samples_beyond(q))
    }

    /// Returns the values at ascending quantiles, until fewer than ten samples lie beyond one. All
    /// take as long as one call of [`Recorded::quantile`].
    pub fn quantiles(&self, ascending: impl IntoIterator<Item = f64>) -> impl Iterator<Item = u64> {
        self.histogram.quantiles(ascending.into_iter().take_while(|q| self.has_samples_beyond(*q)))
    }

    fn has_samples_beyond(&self, q: f64) -> bool {
        // 100 samples have ten beyond p90, although 100 × (1 − 0.9) is a little less in binary.
        let beyond = (self.samples as f64 * (1.0 - q) + 1e-6).floor();
        beyond >= 10.0
    }
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
