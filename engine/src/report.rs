//! The report of a run: what moved, what was lost and why, where the time went.
//!
//! Knows counters and histograms, and how they are serialized (`json`). The message accounting is
//! checked here, at every exit. A sum that does not balance is a bug in the engine and reported as
//! one.

mod criticality;
mod json;

pub use crate::edge::Reason;
pub use crate::exec::endpoint::{HandleKind, HandleReport};
pub use crate::exec::outlier::TailCause;
pub use crate::host::cpu::Pinned;
pub use crate::ledger::{Counts, Recorded, Term};

use crate::base::json::{nanos, seconds, since_1970};
use crate::base::policy::{Criticality, OnMiss, Wait, WhenFull};
use crate::exec::shared::Failure;
use crate::node::backend::BackendStatus;
use crate::node::metrics::Metrics;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Every source ended and everything arrived.
    Finished,
    /// A stop was requested, and all messages in flight arrived.
    Stopped,
    /// A node failed and its `on_error` is `stop`, or something failed at a critical node or path
    /// ([`Report::critical`]).
    Failed,
    /// Something did not end in time.
    #[strum(serialize = "deadline passed")]
    DeadlinePassed,
}

impl Outcome {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The report of a run: what each node and edge did, which messages were lost, and where the time
/// went.
///
/// ```
/// use limen::Report;
/// use limen::report::Term;
/// # let report = Report::empty("robot", std::time::SystemTime::now());
/// for node in &report.nodes {
///     let compute = report.histogram(&node.name, Term::Compute);
///     let p99 = compute.and_then(|recorded| recorded.quantile(0.99)); // ns
///     println!("{}: {} calls, p99 {p99:?} ns", node.name, node.done);
/// }
/// assert_eq!(report.lost_total(), 0);
/// assert_eq!(report.metric("missed"), Some(0.0));
/// assert_eq!(report.exit_code(), 0);
/// ```
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The graph's name.
    pub graph: String,
    /// The id of the run, which recordings and histogram dumps repeat.
    pub run_id: String,
    /// When it began, by the wall clock.
    #[serde(serialize_with = "since_1970")]
    pub started: SystemTime,
    /// How long it took.
    #[serde(rename = "wall_s", with = "seconds")]
    pub wall: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The nodes, in topological order.
    pub nodes: Vec<NodeReport>,
    /// The edges, in the order of the graph.
    pub edges: Vec<EdgeReport>,
    /// Messages exchanged with the program through handles.
    pub handles: Vec<HandleReport>,
    /// The worker threads, in the order of [`NodeReport::worker`].
    pub workers: Vec<WorkerReport>,
    /// Everything recorded; empty histograms are left out.
    pub histograms: Vec<HistogramReport>,
    /// The paths that have a deadline, in the order of the graph.
    pub deadlines: Vec<DeadlineReport>,
    /// Why the slowest messages of each path were slow. Paths with fewer than 20 recorded messages
    /// are left out.
    pub tails: Vec<TailReport>,
    /// What went wrong at critical nodes and paths, a sentence each. The run has failed if there is
    /// any.
    pub critical: Vec<String>,
    /// The first failures, with their messages.
    pub failures: Vec<FailureReport>,
    /// How many calls failed in all.
    pub failed_calls: u64,
    /// Errors of the engine: sums of messages that do not balance, panics outside of nodes. Empty,
    /// or please report it.
    pub bugs: Vec<String>,
    /// Remarks on the run: refused pinning, folded cores.
    pub notes: Vec<String>,
}

/// Counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's name in the graph file; `sub.node` for a node of a subgraph.
    pub name: String,
    /// The kind of the node (`kind:` in the graph file).
    pub kind: String,
    /// Its worker, as an index of [`Report::workers`].
    pub worker: usize,
    /// Calls started with messages; for a source, all calls.
    pub taken: u64,
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls without a result because the call that wrote an input on a device has failed; among
    /// its losses as `device_lost`.
    #[serde(skip)]
    pub lost: u64,
    /// Messages still in a batch at the end.
    pub held: u64,
    /// Turns it had.
    pub turns: u64,
    /// Turns in which its pool had no free slot.
    pub pool_empty: u64,
    /// Calls that took longer than its `budget`.
    pub over_budget: u64,
    /// How often an input was silent for longer than its `expect_every`.
    pub gaps: u64,
    /// How often it failed and was restarted.
    pub restarts: u64,
    /// Batched calls of a model.
    pub batches: u64,
    /// Its thread did not reply; the figures are the last ones seen.
    pub abandoned: bool,
    /// How much the run depends on it.
    pub criticality: Criticality,
    /// How often it failed, in any call.
    #[serde(skip)]
    pub failures: u64,
    /// The state of its backend at the end, if it runs a model.
    pub backend: Option<BackendStatus>,
    /// The node's own metrics.
    #[serde(flatten)]
    pub metrics: Metrics,
}

impl NodeReport {
    /// Returns the messages the node lost, before they became messages or after it took them.
    pub fn lost_total(&self) -> u64 {
        self.metrics.losses().map(|(_, n)| n).sum()
    }

    /// Returns the messages the node discarded on purpose.
    pub fn discarded_total(&self) -> u64 {
        self.metrics.discards().map(|(_, n)| n).sum()
    }
}

/// Counters of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeReport {
    /// Producer, `node/port`.
    pub from: String,
    /// Consumer, `node/port`.
    pub to: String,
    /// Messages it holds.
    pub capacity: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Whether producer and consumer run on different threads.
    pub crossing: bool,
    /// Messages the producer sent.
    pub sent: u64,
    /// Messages the consumer got.
    pub received: u64,
    /// Messages sent but never received, by reason: lost, or discarded on purpose.
    pub lost: Vec<(Reason, u64)>,
    /// Whether another input of the consumer sets the moment, so that messages without a partner
    /// are discarded, not lost.
    pub discards_unmatched: bool,
    /// Messages found in it at the end.
    pub left: u64,
    /// Whether both workers replied, so that `left` is exact.
    pub counted: bool,
}

impl EdgeReport {
    /// Returns whether messages with this reason were discarded on purpose, to keep the newest or
    /// those that fit.
    pub fn is_discarded(&self, reason: Reason) -> bool {
        reason == Reason::Superseded || (reason == Reason::Unmatched && self.discards_unmatched)
    }

    /// Returns the messages lost, for any reason, without those discarded.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| !self.is_discarded(*reason)).map(|(_, n)| n).sum()
    }

    /// Returns the messages discarded, for any reason.
    pub fn discarded_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| self.is_discarded(*reason)).map(|(_, n)| n).sum()
    }
}

/// The results of a path with a deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadlineReport {
    /// Name of the source, where the path begins.
    pub from: String,
    /// Name of the sink, where the path ends.
    pub to: String,
    /// The deadline, ns after a message's origin.
    #[serde(rename = "deadline_ns")]
    pub deadline: u64,
    /// What happens to messages that miss it.
    pub on_miss: OnMiss,
    /// Messages of the source judged at the sink.
    pub judged: u64,
    /// Those whose call at the sink ended after the deadline. Messages dropped on the way are
    /// counted as lost, reason `expired`.
    pub missed: u64,
    /// Whether nothing had arrived for 3 s at the end of the run, or three times as long as usual,
    /// although the source had not ended.
    pub silent: bool,
    /// The node behind which the origin of the source's messages is no longer tracked; if set, none
    /// is judged.
    pub untracked_behind: Option<String>,
    /// How much the run depends on it.
    pub criticality: Criticality,
    /// Of a critical path: how often nothing arrived for so long, also if messages came again.
    #[serde(skip)]
    pub silences: u64,
    /// Of a critical path: messages lost on the way because they were too old.
    #[serde(skip)]
    pub expired: u64,
}

/// A worker thread: where it ran and how it waited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerReport {
    /// The name under which reports show the thread.
    pub name: String,
    /// The CPU it was to be pinned to; `None` if it is not pinned.
    pub cpu: Option<usize>,
    /// Why it was not to be pinned; `None` if it was.
    pub floats: Option<&'static str>,
    /// How it waits.
    pub wait: Wait,
    /// What the kernel granted.
    #[serde(flatten)]
    pub pinned: Pinned,
    /// Whether it did not reply.
    pub abandoned: bool,
}

/// Why the slowest messages of a path were slow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TailReport {
    /// Name of the source, where the path begins.
    pub from: String,
    /// Name of the sink, where the path ends.
    pub to: String,
    /// The quantile beyond which messages are explained: 0.999, or that of the ten slowest if fewer
    /// than 10,000 were recorded.
    pub quantile: f64,
    /// The end-to-end latency at that quantile.
    #[serde(rename = "limit_ns", serialize_with = "nanos")]
    pub limit: Duration,
    /// Messages beyond it; as those of the histogram, estimated if bursts were sampled.
    pub beyond: u64,
    /// How many of them were recorded and explained; the others came too many at once, or before
    /// their latency was known to be unusual.
    pub judged: u64,
    /// The causes, the one that cost most time first.
    pub causes: Vec<TailCauseReport>,
}

/// A cause of slow messages.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TailCauseReport {
    /// Why the messages took longer than the median.
    pub cause: TailCause,
    /// The node where the time passed; `None` if nothing explains it.
    pub node: Option<String>,
    /// The node whose calls the messages waited for, if [`TailCause::Queued`]: perhaps the same.
    pub behind: Option<String>,
    /// How many slow messages have this cause.
    pub messages: u64,
    /// How much longer than the median they took, in all.
    pub excess: Duration,
    /// The longest end-to-end latency among them.
    pub longest: Duration,
}

/// A histogram of one term at a node, or of a path.
#[derive(Clone, Debug)]
pub struct HistogramReport {
    /// The node, or the source of the path.
    pub node: String,
    /// The sink of the path.
    pub to: Option<String>,
    /// The quantity measured.
    pub term: Term,
    /// The recorded values.
    pub recorded: Recorded,
}

impl HistogramReport {
    /// Returns the unit of the values: `ns`, or `messages` for the sizes of batches.
    pub fn unit(&self) -> &'static str {
        if self.term == Term::Batch { "messages" } else { "ns" }
    }

    /// Returns `camera.queue`, or `camera->labels.e2e`.
    pub fn tag(&self) -> String {
        match &self.to {
            Some(to) => format!("{}->{}.{}", self.node, to, self.term.name()),
            None => format!("{}.{}", self.node, self.term.name()),
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FailureReport {
    /// Name of the node.
    pub node: String,
    /// The call: `call`, `next`, `infer`, `finish`, `drop`.
    pub call: &'static str,
    /// How many calls of the node had ended before.
    pub number: u64,
    /// The error or panic message.
    pub text: String,
    /// Whether it panicked.
    pub panicked: bool,
}

impl FailureReport {
    pub(crate) fn new(node: String, failure: &Failure) -> Self {
        FailureReport {
            node,
            call: failure.call,
            number: failure.number,
            text: failure.text.clone(),
            panicked: failure.panicked,
        }
    }
}

impl std::fmt::Display for FailureReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FailureReport { node, call, number, text, .. } = self;
        let s = if *number == 1 { "" } else { "s" };
        write!(f, "node `{node}` failed in `{call}` after {number} call{s}: {text}")
    }
}

impl Report {
    /// The report of a graph in which nothing has happened, for tests of how a program treats
    /// reports. The reports of nodes, edges, deadlines, workers and failures have `Default`; those
    /// of handles come only from a run.
    pub fn empty(graph: impl Into<String>, started: SystemTime) -> Self {
        Report {
            graph: graph.into(),
            run_id: String::new(),
            started,
            wall: Duration::ZERO,
            outcome: Outcome::Finished,
            nodes: Vec::new(),
            edges: Vec::new(),
            handles: Vec::new(),
            workers: Vec::new(),
            histograms: Vec::new(),
            deadlines: Vec::new(),
            tails: Vec::new(),
            critical: Vec::new(),
            failures: Vec::new(),
            failed_calls: 0,
            bugs: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns whether calls failed, nodes lost messages, a join lost messages of an edge with
    /// `block`, a node was abandoned, or a path with a deadline was silent at the end. Losses by a
    /// stop (`stopped`) do not count, and neither does what happened at nodes and paths that are
    /// [`Criticality::BestEffort`].
    pub fn is_degraded(&self) -> bool {
        let is_best_effort = |criticality| criticality == Criticality::BestEffort;
        let best_effort: Vec<&NodeReport> = self.nodes.iter().filter(|n| is_best_effort(n.criticality)).collect();
        let forgiven: u64 = best_effort.iter().map(|node| node.failures).sum();
        let is_forgiven = |edge: &EdgeReport| {
            let consumer = edge.to.rsplit_once('/').map_or(&*edge.to, |(node, _)| node);
            best_effort.iter().any(|node| node.name == consumer)
        };
        let loses = |node: &NodeReport| node.metrics.losses().any(|(reason, _)| reason != Reason::Stopped.name());
        let unmatched = |edge: &EdgeReport| {
            edge.when_full == WhenFull::Block
                && !edge.discards_unmatched
                && edge.lost.iter().any(|(why, _)| *why == Reason::Unmatched)
                && !is_forgiven(edge)
        };
        self.failed_calls > forgiven
            || self.nodes.iter().any(|n| !is_best_effort(n.criticality) && (n.abandoned || loses(n)))
            || self.edges.iter().any(unmatched)
            || self.deadlines.iter().any(|path| path.silent && !is_best_effort(path.criticality))
    }

    /// Returns the messages lost on edges, between graph and program, and by nodes. Messages that
    /// only a tap missed do not count.
    pub fn lost_total(&self) -> u64 {
        let handles = self.handles.iter().filter(|h| h.kind != HandleKind::Tap).map(HandleReport::lost_total);
        let nodes = self.nodes.iter().map(NodeReport::lost_total);
        self.edges.iter().map(EdgeReport::lost_total).chain(handles).chain(nodes).sum()
    }

    /// Returns the parts of [`Report::lost_total`] by reason: of edges and handles, and of nodes.
    /// Reasons by which a node could lose messages, but did not, have the value 0.
    pub fn losses(&self) -> BTreeMap<&str, u64> {
        let mut losses = BTreeMap::new();
        let mut add = |reason, n: u64| *losses.entry(reason).or_default() += n;
        for edge in &self.edges {
            let lost = edge.lost.iter().filter(|(reason, _)| !edge.is_discarded(*reason));
            lost.for_each(|(reason, n)| add(reason.name(), *n));
        }
        for handle in self.handles.iter().filter(|handle| handle.kind != HandleKind::Tap) {
            let lost = handle.lost.iter().filter(|(reason, _)| *reason != Reason::Superseded);
            lost.for_each(|(reason, n)| add(reason.name(), *n));
        }
        for node in &self.nodes {
            node.metrics.may_lose().for_each(|(reason, n)| add(reason, n));
        }
        losses
    }

    /// Returns the messages discarded on purpose, counted as in [`Report::lost_total`].
    pub fn discarded_total(&self) -> u64 {
        let handles = self.handles.iter().filter(|h| h.kind != HandleKind::Tap).map(HandleReport::discarded_total);
        let nodes = self.nodes.iter().map(NodeReport::discarded_total);
        self.edges.iter().map(EdgeReport::discarded_total).chain(handles).chain(nodes).sum()
    }

    /// Returns the exit code of a program that only ran this graph: 0 success, 1 a node failed, 3
    /// the message accounting does not balance, 70 the deadline of the stop passed.
    pub fn exit_code(&self) -> u8 {
        if !self.bugs.is_empty() {
            return 3;
        }
        match self.outcome {
            Outcome::Finished | Outcome::Stopped => 0,
            Outcome::Failed => 1,
            Outcome::DeadlinePassed => 70,
        }
    }

    /// Returns a figure by its name in `--fail-on` expressions: a node's own (`score.accuracy`, or
    /// `accuracy` if only one node has it), `lost`, losses of one reason (`lost.overrun`),
    /// `discarded`, `left`, `failed`, `missed` (deadlines), `over_budget` (calls), `gaps` (of
    /// inputs), `restarts` (of nodes). A reason by which nothing in the graph can lose has no
    /// figure.
    pub fn metric(&self, name: &str) -> Option<f64> {
        match name {
            "lost" | "drops" => return Some(self.lost_total() as f64),
            "discarded" => return Some(self.discarded_total() as f64),
            "missed" => return Some(self.deadlines.iter().map(|d| d.missed).sum::<u64>() as f64),
            "over_budget" => return Some(self.nodes.iter().map(|n| n.over_budget).sum::<u64>() as f64),
            "restarts" => return Some(self.nodes.iter().map(|n| n.restarts).sum::<u64>() as f64),
            "gaps" => return Some(self.nodes.iter().map(|n| n.gaps).sum::<u64>() as f64),
            "left" => return Some(self.edges.iter().map(|e| e.left).sum::<u64>() as f64),
            "failed" => return Some(self.failed_calls as f64),
            _ => {}
        }
        if name.contains('.') {
            // Names of nodes in subgraphs contain dots.
            let of = |node: &NodeReport| {
                let metric = name.strip_prefix(node.name.as_str())?.strip_prefix('.')?;
                node.metrics.iter().find(|(k, _)| *k == metric).map(|(_, v)| v)
            };
            return self.nodes.iter().find_map(of).or_else(|| self.lost_by(name.strip_prefix("lost.")?));
        }
        let mut found = self.nodes.iter().flat_map(|n| n.metrics.iter()).filter(|(k, _)| *k == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value)
    }

    /// Returns the messages lost for a reason, if something in the graph could lose by it.
    fn lost_by(&self, reason: &str) -> Option<f64> {
        let lost = self.losses().get(reason).copied();
        let is_known = Reason::ALL.iter().any(|known| known.name() == reason);
        lost.or(is_known.then_some(0)).map(|n| n as f64)
    }

    /// Returns the counters of one node.
    pub fn node(&self, name: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns what was recorded for a term of a node.
    pub fn histogram(&self, node: &str, term: Term) -> Option<&Recorded> {
        let mut all = self.histograms.iter();
        all.find(|h| h.node == node && h.to.is_none() && h.term == term).map(|h| &h.recorded)
    }

    /// Returns end-to-end latencies as (source, sink, recorded values).
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        self.of_paths(Term::EndToEnd)
    }

    /// Returns ages at a sink of messages that a sampling join reused, as (source, sink, recorded
    /// values). Their latency is that of the message that first contained them.
    pub fn ages(&self) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        self.of_paths(Term::Age)
    }

    fn of_paths(&self, term: Term) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        let paths = self.histograms.iter().filter(move |h| h.term == term);
        paths.filter_map(|h| Some((h.node.as_str(), h.to.as_deref()?, &h.recorded)))
    }

    /// Checks the message accounting; a sum that does not balance is a bug in the engine.
    /// `remaining` returns what an edge still contains; what was left in a loop is not in it.
    pub(crate) fn check_accounting(&mut self, remaining: impl Fn(usize) -> u64) {
        for (at, edge) in self.edges.iter().enumerate().filter(|(_, e)| e.counted) {
            let EdgeReport { from, to, sent, received, left, .. } = edge;
            let (lost, discarded) = (edge.lost_total(), edge.discarded_total());
            if *sent != received + lost + discarded + left {
                self.bugs.push(format!(
                    "edge {from} -> {to}: sent {sent} is not received {received} + lost {lost} + discarded {discarded} + left {left}"
                ));
            }
            let drained = matches!(self.outcome, Outcome::Finished | Outcome::Stopped);
            let remaining = remaining(at);
            if drained && remaining > 0 {
                self.bugs.push(format!("edge {} -> {}: {remaining} left after a drained run", edge.from, edge.to));
            }
        }
        for handle in self.handles.iter().filter(|h| h.counted) {
            let HandleReport { name, kind, sent, received, left, .. } = handle;
            let (lost, discarded) = (handle.lost_total(), handle.discarded_total());
            if *sent != received + lost + discarded + left {
                let kind = kind.name();
                self.bugs.push(format!(
                    "{kind} {name}: sent {sent} is not received {received} + lost {lost} + discarded {discarded} + left {left}"
                ));
            }
        }
        for node in self.nodes.iter().filter(|n| !n.abandoned) {
            if node.taken != node.done + node.failed + node.lost + node.held {
                self.bugs.push(format!(
                    "node {}: taken {} is not done {} + failed {} + lost {} + held {}",
                    node.name, node.taken, node.done, node.failed, node.lost, node.held
                ));
            }
        }
    }
}
