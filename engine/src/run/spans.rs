//! What workers do when, for a reader while the run goes on.

use crate::exec::mailbox::Subject;
use crate::host::clock::Time;
use crate::host::sync::DynArc;
use crate::ledger::Term;
use crate::ledger::span::{Activity, SpanEntry};
use crate::run::events::Watcher;

/// What a worker did for some time, or what a message waited for until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSpan {
    /// The worker, as an index of [`Plan::workers`](crate::Plan::workers).
    pub worker: usize,
    /// What it was.
    pub kind: SpanKind,
    /// When it began and ended, by the run's clock.
    pub begin: Time,
    /// See `begin`.
    pub end: Time,
    /// How many messages it concerns.
    pub messages: u32,
}

/// What a [`TraceSpan`] tells of; nodes are indices of [`Plan::nodes`](crate::Plan::nodes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanKind {
    /// A turn of a node in which something moved.
    Turn {
        /// Index of the node in [`Plan::nodes`](crate::Plan::nodes).
        node: usize,
    },
    /// What the ledger recorded of a node: of [`Term::Compute`], a call. The end is exact to the
    /// time that a message took to be passed on.
    Term {
        /// Index of the node in [`Plan::nodes`](crate::Plan::nodes).
        node: usize,
        /// What was recorded. [`Term::Batch`] is no time and is left out.
        term: Term,
    },
    /// The way of messages from a source to a sink.
    Path {
        /// Index of the source in [`Plan::nodes`](crate::Plan::nodes).
        from: usize,
        /// Index of the sink in [`Plan::nodes`](crate::Plan::nodes).
        to: usize,
    },
    /// The worker slept.
    Sleep,
}

/// The spans of a run that was planned with [`Options::spans`](crate::Options::spans).
///
/// Workers write into pages of a fixed number, which are handed over when they are full or 0.1 s
/// old. While a worker has none, what it would write is only counted. What the ledger does not
/// record is not written either: under load, one burst in sixteen is
/// ([`Telemetry`](crate::policy::Telemetry)).
///
/// ```no_run
/// # fn show(running: &limen::Running) {
/// let spans = running.spans();
/// spans.read(|span| println!("{span:?}"));
/// println!("{} not kept", spans.take_lost());
/// # }
/// ```
#[derive(Clone)]
pub struct Spans(pub(crate) DynArc<Watcher>);

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spans")
    }
}

impl Spans {
    /// Reads the spans that have been handed over since the last call: those of each worker about
    /// in the order in which they ended. All clones read from the same pages.
    pub fn read(&self, mut take: impl FnMut(TraceSpan)) {
        let shared = &self.0.shared;
        for (worker, pages) in shared.spans.iter().enumerate() {
            let parts = shared.mailboxes[worker].parts.get();
            pages.read(|SpanEntry { activity, messages, begin, end }| {
                let kind = match activity {
                    Activity::Turn(node) => Some(SpanKind::Turn { node: node as usize }),
                    Activity::Sleep => Some(SpanKind::Sleep),
                    Activity::Recorded(hist) => {
                        let part = parts.and_then(|parts| parts.get(hist as usize));
                        part.and_then(|part| match (part.subject, part.term) {
                            (_, Term::Batch | Term::Residual | Term::Age | Term::Skew) => None,
                            (Subject::Node(node), term) => Some(SpanKind::Term { node, term }),
                            (Subject::Path(from, to), _) => Some(SpanKind::Path { from, to }),
                        })
                    }
                };
                if let Some(kind) = kind {
                    take(TraceSpan { worker, kind, begin: Time(begin), end: Time(end), messages });
                }
            });
        }
    }

    /// Returns how many spans were not kept since the last call, because a worker had no free page.
    pub fn take_lost(&self) -> u64 {
        self.0.shared.spans.iter().map(|pages| pages.take_lost()).sum()
    }
}
