//! How figures of the last second get from the workers to whoever asks.
//!
//! A worker's histograms are its own. When somebody asks, it copies them, a piece each time it folds its log, into a buffer that was made
//! at the start, and puts that into a queue of one; the reader takes from each count what it was at the copy before. Nothing is counted
//! twice or missed, however late anybody asks, because what is copied are the counts of the whole run.

use crate::exec::mailbox::Copied;
use crate::exec::mailbox::Subject;
use crate::exec::shared::{RunShared, lock};
use crate::host::sync::Ordering;
use crate::ledger::{Buckets, Recorded, Term};
use crate::run::events::Watcher;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// No window is shorter, ns of the run's clock.
const SHORTEST: u64 = 1_000_000_000;
/// How long who asks waits for the workers' answers; one that is in a call answers later.
const PATIENCE: Duration = Duration::from_millis(5);

/// What was recorded of something in a window of time. Times are nanoseconds, to two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// How long the window was.
    pub within: Duration,
    /// Messages, where some were sampled as many as those stand for.
    pub count: u64,
    /// The median, where at least ten samples lie beyond it.
    pub p50: Option<u64>,
    /// What 99 of 100 were below, where at least ten samples lie beyond it.
    pub p99: Option<u64>,
    /// The most; 0 where nothing was recorded.
    pub max: u64,
}

/// What the reader knows.
#[derive(Default)]
pub(crate) struct Windows {
    workers: Vec<Before>,
    latest: BTreeMap<(Subject, Term), Window>,
    /// When the run began, and whether what is recorded before a warm-up has ended does not count.
    begun: u64,
    warms_up: bool,
    /// What was recorded since somebody took it last, where somebody does.
    kept: Option<BTreeMap<(Subject, Term), Kept>>,
}

/// What was recorded of something between two times.
struct Kept {
    from: u64,
    to: u64,
    recorded: Recorded,
}

/// What was recorded of something in an interval of a run.
pub(crate) struct Interval {
    pub(crate) subject: Subject,
    pub(crate) term: Term,
    /// From the begin of the run.
    pub(crate) begin: Duration,
    pub(crate) length: Duration,
    pub(crate) recorded: Recorded,
}

/// The last copy of one worker.
#[derive(Clone, Debug, Default)]
struct Before {
    words: Vec<u64>,
    epoch: u64,
    /// When it was made; the begin of the run before the first.
    at: u64,
    /// When the next was asked for; 0 where none was.
    asked_at: u64,
}

impl Windows {
    pub(crate) fn new(workers: usize) -> Mutex<Self> {
        Mutex::new(Windows { workers: vec![Before::default(); workers], ..Windows::default() })
    }

    /// Takes the copies that have come.
    fn take(&mut self, shared: &RunShared) {
        for (mailbox, before) in shared.mailboxes.iter().zip(&mut self.workers) {
            let (Some(Copied { at, epoch, words }), Some(parts)) = (mailbox.full.pop(), mailbox.parts.get()) else {
                continue;
            };
            if before.words.len() != words.len() || before.epoch != epoch {
                before.words.clear();
                before.words.resize(words.len(), 0);
                before.epoch = epoch;
            }
            let within = Duration::from_nanos(at.saturating_sub(before.at));
            let mut from = 0;
            for part in parts {
                let (now, then) = (&words[from..][..=part.words], &before.words[from..][..=part.words]);
                let recorded = Buckets::between(part.digits, then, now);
                self.latest.insert((part.subject, part.term), window(&recorded, within));
                // A node may have had a histogram of a term that another took the place of: nothing is recorded there.
                let counts = !recorded.histogram.is_empty() && (epoch > 0 || !self.warms_up);
                if let (Some(kept), true) = (&mut self.kept, counts) {
                    keep(kept, (part.subject, part.term), before.at, at, recorded);
                }
                from += part.words + 1;
            }
            before.at = at;
            before.words.copy_from_slice(&words);
            // The place that the copy has left.
            let is_put = mailbox.empty.push(words).is_ok();
            debug_assert!(is_put, "there is one buffer");
        }
    }

    /// Asks every worker that has answered and was asked long enough ago. True where one was.
    fn ask(&mut self, shared: &RunShared, now: u64) -> bool {
        let mut asked = false;
        for (worker, (mailbox, before)) in shared.mailboxes.iter().zip(&mut self.workers).enumerate() {
            let is_due = before.asked_at == 0 || now.saturating_sub(before.asked_at) >= SHORTEST;
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
            // Of one histogram both have the same bounds and digits.
            let _ = before.recorded.histogram.add(&recorded.histogram);
        }
    }
}

fn window(recorded: &Recorded, within: Duration) -> Window {
    Window {
        within,
        count: recorded.histogram.len(),
        p50: recorded.quantile(0.5),
        p99: recorded.quantile(0.99),
        max: if recorded.histogram.is_empty() { 0 } else { recorded.histogram.max() },
    }
}

impl Watcher {
    /// The latest windows, asked for and waited for where the last are older than a second.
    pub(crate) fn windows(&self) -> BTreeMap<(Subject, Term), Window> {
        let shared = &self.shared;
        let Some(now) = shared.clock().map(|clock| clock.now().0) else { return BTreeMap::new() };
        let mut windows = lock(&self.windows);
        windows.take(shared);
        if windows.ask(shared, now) && self.has_workers {
            let end = Instant::now() + PATIENCE;
            while shared.mailboxes.iter().any(|mailbox| mailbox.is_waited_for()) && Instant::now() < end {
                std::thread::sleep(Duration::from_micros(50));
            }
            windows.take(shared);
        }
        windows.latest.clone()
    }

    /// The run has begun: the first window begins with it.
    pub(crate) fn begin_windows(&self, at: u64, warms_up: bool) {
        let mut windows = lock(&self.windows);
        (windows.begun, windows.warms_up) = (at, warms_up);
        windows.workers.iter_mut().for_each(|before| before.at = at);
    }

    /// What was recorded since the last call, as far as the workers have handed it over; of the first call, since the begin.
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        lock(&self.windows).kept.get_or_insert_default();
        self.windows();
        let mut windows = lock(&self.windows);
        let begun = windows.begun;
        let kept = windows.kept.as_mut().map(std::mem::take).unwrap_or_default();
        let some = kept.into_iter().filter(|(_, kept)| !kept.recorded.histogram.is_empty());
        some.map(|((subject, term), Kept { from, to, recorded })| Interval {
            subject,
            term,
            begin: Duration::from_nanos(from.saturating_sub(begun)),
            length: Duration::from_nanos(to.saturating_sub(from)),
            recorded,
        })
        .collect()
    }
}
