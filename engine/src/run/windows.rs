//! Transfers histograms from the workers to readers, for statistics of the last second.
//!
//! Workers own their histograms. On request, a worker copies them in pieces, one each time it folds
//! its log, into a buffer allocated at the start, and passes it through a queue of one; the reader
//! subtracts the previous copy. Counts are those of the whole run, so nothing is counted twice or
//! missed, however late the request.

use crate::exec::mailbox::Copied;
use crate::exec::mailbox::Subject;
use crate::exec::shared::{RunShared, lock, try_lock};
use crate::host::sync::Ordering;
use crate::ledger::{Copies, Recorded, Term};
use crate::node::StatisticsWindow;
use crate::run::events::Watcher;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The shortest window, ns of the run's clock.
const MIN_WINDOW: u64 = 1_000_000_000;
/// How long a reader waits for the workers; one that is in a call replies later.
const PATIENCE: Duration = Duration::from_millis(5);

/// The state of the reader.
#[derive(Default)]
pub(crate) struct Windows {
    workers: Vec<Before>,
    pub(super) latest: BTreeMap<(Subject, Term), StatisticsWindow>,
    /// When the run began, and whether the warm-up is excluded.
    begun: u64,
    warms_up: bool,
    /// What was recorded since the last call of `intervals`; `None` until its first call.
    kept: Option<BTreeMap<(Subject, Term), Kept>>,
}

/// What was recorded between two times.
struct Kept {
    from: u64,
    to: u64,
    recorded: Recorded,
}

/// What was recorded in an interval of a run.
pub(crate) struct RecordedInterval {
    pub(crate) subject: Subject,
    pub(crate) term: Term,
    /// From the start of the run.
    pub(crate) begin: Duration,
    pub(crate) length: Duration,
    pub(crate) recorded: Recorded,
}

/// The previous copy of one worker.
#[derive(Clone, Debug, Default)]
struct Before {
    words: Box<[u64]>,
    epoch: u64,
    /// When it was made; before the first, the start of the run.
    at: u64,
    /// When the next was requested; 0 if none was.
    asked_at: u64,
}

impl Windows {
    pub(crate) fn new(workers: usize) -> Mutex<Self> {
        Mutex::new(Windows { workers: vec![Before::default(); workers], ..Windows::default() })
    }

    /// Takes the copies that have arrived.
    fn take(&mut self, shared: &RunShared) {
        for (mailbox, before) in shared.mailboxes.iter().zip(&mut self.workers) {
            let (Some(Copied { at, epoch, words }), Some(parts)) = (mailbox.full.pop(), mailbox.parts.get()) else {
                continue;
            };
            // A worker clears its histograms at the end of the warm-up.
            let is_comparable = before.epoch == epoch;
            let then = Copies(if is_comparable { &before.words } else { &[] });
            let within = Duration::from_nanos(at.saturating_sub(before.at));
            for ((part, now), then) in parts.iter().zip(Copies(&words)).zip(then) {
                let recorded = now.since(&then, part.digits);
                self.latest.insert((part.subject, part.term), window(recorded.as_ref(), within));
                if let (Some(kept), Some(recorded), true) = (&mut self.kept, recorded, epoch > 0 || !self.warms_up) {
                    keep(kept, (part.subject, part.term), before.at, at, recorded);
                }
            }
            (before.at, before.epoch) = (at, epoch);
            let len = words.len();
            // The earlier copy is the buffer of the next one.
            let buffer = std::mem::replace(&mut before.words, words);
            let buffer = if buffer.is_empty() { vec![0; len].into_boxed_slice() } else { buffer };
            let is_put = mailbox.empty.push(buffer).is_ok();
            debug_assert!(is_put, "the worker has no other buffer");
        }
    }

    /// Requests a copy from every worker that has none outstanding and whose last request is old
    /// enough. Returns whether any was requested.
    fn ask(&mut self, shared: &RunShared, now: u64) -> bool {
        let mut asked = false;
        for (worker, (mailbox, before)) in shared.mailboxes.iter().zip(&mut self.workers).enumerate() {
            let is_due = before.asked_at == 0 || now.saturating_sub(before.asked_at) >= MIN_WINDOW;
            if is_due && !mailbox.is_asked() && !mailbox.empty.is_empty() && !mailbox.is_closed.load(Ordering::Relaxed)
            {
                before.asked_at = now.max(1);
                mailbox.asked.store(true, Ordering::Release);
                shared.bell(worker).ring();
                asked = true;
            }
        }
        asked
    }
}

/// Adds what was recorded between two times.
fn keep(kept: &mut BTreeMap<(Subject, Term), Kept>, of: (Subject, Term), from: u64, to: u64, recorded: Recorded) {
    match kept.get_mut(&of) {
        None => _ = kept.insert(of, Kept { from, to, recorded }),
        Some(before) => {
            before.to = to;
            before.recorded.samples += recorded.samples;
            before.recorded.histogram.add(&recorded.histogram);
        }
    }
}

fn window(recorded: Option<&Recorded>, within: Duration) -> StatisticsWindow {
    StatisticsWindow {
        within,
        count: recorded.map_or(0, |recorded| recorded.histogram.len()),
        p50: recorded.and_then(|recorded| recorded.quantile(0.5)),
        p99: recorded.and_then(|recorded| recorded.quantile(0.99)),
        max: recorded.map(|recorded| recorded.histogram.max()),
    }
}

impl Watcher {
    /// Returns the latest windows; requests new ones if the last are older than a second, and waits
    /// for them.
    pub(crate) fn windows(&self) -> BTreeMap<(Subject, Term), StatisticsWindow> {
        self.renew_windows().latest.clone()
    }

    /// Takes the copies that have arrived; requests new ones if the last are older than a second,
    /// and waits for them.
    pub(super) fn renew_windows(&self) -> MutexGuard<'_, Windows> {
        let shared = &self.shared;
        let mut windows = lock(&self.windows);
        let Some(now) = shared.clock().map(|clock| clock.now().0) else { return windows };
        windows.take(shared);
        if windows.ask(shared, now) && self.has_workers {
            let end = Instant::now() + PATIENCE;
            while shared.mailboxes.iter().any(|mailbox| mailbox.is_waited_for()) && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(50));
            }
            windows.take(shared);
        }
        windows
    }

    /// As [`windows`](Self::windows), for a worker, which never waits: new windows are there for
    /// the next call. `None` while another thread reads.
    pub(crate) fn windows_without_waiting(&self) -> Option<BTreeMap<(Subject, Term), StatisticsWindow>> {
        let now = self.shared.clock()?.now().0;
        let mut windows = try_lock(&self.windows)?;
        windows.take(&self.shared);
        windows.ask(&self.shared, now);
        Some(windows.latest.clone())
    }

    /// Starts the first window at the start of the run.
    pub(crate) fn begin_windows(&self, at: u64, warms_up: bool) {
        let mut windows = lock(&self.windows);
        (windows.begun, windows.warms_up) = (at, warms_up);
        windows.workers.iter_mut().for_each(|before| before.at = at);
    }

    /// Returns what was recorded since the last call, as far as the workers have passed it on; the
    /// first call covers the run so far.
    pub(crate) fn intervals(&self) -> Vec<RecordedInterval> {
        lock(&self.windows).kept.get_or_insert_default();
        let mut windows = self.renew_windows();
        let begun = windows.begun;
        let kept = windows.kept.as_mut().map(std::mem::take).unwrap_or_default();
        kept.into_iter()
            .map(|((subject, term), Kept { from, to, recorded })| RecordedInterval {
                subject,
                term,
                begin: Duration::from_nanos(from.saturating_sub(begun)),
                length: Duration::from_nanos(to.saturating_sub(from)),
                recorded,
            })
            .collect()
    }
}
