//! What a run came to: what moved, what was lost and why, where the time went.
//!
//! Knows counters and histograms, no file formats. The two laws are checked here, once, at every exit; a mismatch is a
//! bug of the engine and is said so.

pub use crate::edge::Reason;
pub use crate::exec::endpoint::{HandleKind, HandleReport};
pub use crate::host::cpu::Pinned;
pub use crate::ledger::{Recorded, Term};

use crate::base::policy::OnMiss;
use crate::base::policy::Wait;
use crate::base::policy::WhenFull;
use crate::exec::shared::Failure;
use crate::node::backend::BackendStatus;
use crate::node::metrics::Metrics;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every source ended and everything arrived.
    Finished,
    /// It was asked to stop, and everything that was on its way arrived.
    Stopped,
    /// A node failed and its `on_error` is `stop`.
    Failed,
    /// Something did not end in time.
    DeadlinePassed,
}

impl Outcome {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Finished => "finished",
            Outcome::Stopped => "stopped",
            Outcome::Failed => "failed",
            Outcome::DeadlinePassed => "deadline passed",
        }
    }
}

/// One run.
#[derive(Debug)]
pub struct Report {
    /// The graph's name.
    pub graph: String,
    /// When it began, by the wall clock.
    pub started: SystemTime,
    /// How long it took.
    pub wall: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// The nodes, in topological order.
    pub nodes: Vec<NodeReport>,
    /// The edges, in the order of the graph.
    pub edges: Vec<EdgeReport>,
    /// What moved between the graph and the program around it.
    pub handles: Vec<HandleReport>,
    /// The threads.
    pub workers: Vec<WorkerReport>,
    /// Everything recorded; empty histograms are left out.
    pub histograms: Vec<HistogramReport>,
    /// The paths that have a deadline, in the order of the graph.
    pub deadlines: Vec<DeadlineReport>,
    /// The first failures, word for word.
    pub failures: Vec<FailureReport>,
    /// How many calls failed in all.
    pub failed_calls: u64,
    /// What the engine did wrong: broken laws, panics outside of nodes. Empty, or please report it.
    pub bugs: Vec<String>,
    /// What else is worth knowing: refused pinning, folded cores.
    pub notes: Vec<String>,
}

/// What one node did.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its worker, as an index of [`Report::workers`].
    pub worker: usize,
    /// Calls that were given something; of a source, calls made.
    pub taken: u64,
    /// Calls that succeeded.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Messages still in a batch at the end.
    pub held: u64,
    /// Turns it had.
    pub turns: u64,
    /// Turns on which its pool had no free slot.
    pub pool_empty: u64,
    /// Calls that took longer than its `budget`.
    pub over_budget: u64,
    /// How often an input was silent for longer than its `expect_every`.
    pub gaps: u64,
    /// How often it failed and was built again.
    pub restarts: u64,
    /// Batched calls of a model.
    pub batches: u64,
    /// Its thread did not answer; its figures are those of the last moment.
    pub abandoned: bool,
    /// How its backend stood at the end, where it runs a model.
    pub backend: Option<BackendStatus>,
    /// Figures of its own.
    pub metrics: Metrics,
}

impl NodeReport {
    /// Messages that the node lost, before they were messages or after it took them.
    pub fn lost_total(&self) -> u64 {
        self.metrics.losses().map(|(_, n)| n).sum()
    }

    /// Messages that the node let go because that is what it is for.
    pub fn thinned_total(&self) -> u64 {
        self.metrics.thinning().map(|(_, n)| n).sum()
    }
}

/// What moved over one edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeReport {
    /// Producer, `node/port`.
    pub from: String,
    /// Consumer, `node/port`.
    pub to: String,
    /// Messages it holds.
    pub capacity: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// Whether it goes from one thread to another.
    pub crossing: bool,
    /// Messages the producer sent.
    pub sent: u64,
    /// Messages the consumer was given.
    pub received: u64,
    /// Messages that were sent and never received, by reason: those lost, and those thinned out on purpose.
    pub lost: Vec<(Reason, u64)>,
    /// Whether the consumer takes of it only what fits another of its inputs, which sets the moment: what finds no partner is
    /// thinned, not lost.
    pub thins: bool,
    /// Messages found in it at the end.
    pub left: u64,
    /// Whether both ends answered, so that `left` is exact.
    pub counted: bool,
}

impl EdgeReport {
    /// Whether messages that go for a reason are let go because the graph says so, to keep what is newest or what fits.
    pub fn is_thinned(&self, reason: Reason) -> bool {
        reason == Reason::Superseded || (reason == Reason::Unmatched && self.thins)
    }

    /// Messages lost, for any reason; not those that were thinned out.
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| !self.is_thinned(*reason)).map(|(_, n)| n).sum()
    }

    /// Messages thinned out, for any reason.
    pub fn thinned_total(&self) -> u64 {
        self.lost.iter().filter(|(reason, _)| self.is_thinned(*reason)).map(|(_, n)| n).sum()
    }
}

/// How a path kept its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineReport {
    /// The source.
    pub from: String,
    /// The sink.
    pub to: String,
    /// The deadline, ns after a message's origin.
    pub deadline: u64,
    /// What became of messages that missed it.
    pub on_miss: OnMiss,
    /// Messages of the source that were held against it, at the sink.
    pub judged: u64,
    /// Those of them whose call at the sink ended after it. Those that never got there are among the lost, as `expired`.
    pub missed: u64,
    /// The node behind which nothing tells any more when the source began a message: then none is judged.
    pub untold_behind: Option<String>,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReport {
    /// Its name.
    pub name: String,
    /// The CPU it was asked to run on; `None` for one that floats.
    pub cpu: Option<usize>,
    /// Why it was pinned to no CPU; `None` where it was.
    pub floats: Option<&'static str>,
    /// How it waits.
    pub wait: Wait,
    /// What the kernel made of that.
    pub pinned: Pinned,
    /// It did not answer.
    pub abandoned: bool,
}

/// What was recorded of one term at one node, or of one path.
#[derive(Clone, Debug)]
pub struct HistogramReport {
    /// The node; of a path, its source.
    pub node: String,
    /// Of a path, its sink.
    pub to: Option<String>,
    /// What is counted.
    pub term: Term,
    /// What was recorded.
    pub recorded: Recorded,
}

impl HistogramReport {
    /// `camera.queue`, or `camera->labels.e2e`.
    pub fn tag(&self) -> String {
        match &self.to {
            Some(to) => format!("{}->{}.{}", self.node, to, self.term.name()),
            None => format!("{}.{}", self.node, self.term.name()),
        }
    }
}

/// How one call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureReport {
    /// The node.
    pub node: String,
    /// Which of its calls: `call`, `next`, `infer`, `finish`, `drop`.
    pub call: &'static str,
    /// How many calls of the node had ended before.
    pub number: u64,
    /// What it said.
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
        write!(f, "node `{}` failed in `{}` after {} calls: {}", self.node, self.call, self.number, self.text)
    }
}

impl Report {
    /// Calls failed, messages were lost to a failure, a node lost messages of its own or was taken out, and the run went on.
    /// What a stop cuts off (`stopped`) is lost and no failure.
    pub fn is_degraded(&self) -> bool {
        let loses = |node: &NodeReport| node.metrics.losses().any(|(reason, _)| reason != Reason::Stopped.name());
        self.failed_calls > 0 || self.nodes.iter().any(|n| n.abandoned || loses(n))
    }

    /// Messages lost: on edges, on the way to and from the program, and by nodes. What a tap did not see was not lost to anybody
    /// else.
    pub fn lost_total(&self) -> u64 {
        let handles = self.handles.iter().filter(|h| h.way != HandleKind::Past).map(HandleReport::lost_total);
        let nodes = self.nodes.iter().map(NodeReport::lost_total);
        self.edges.iter().map(EdgeReport::lost_total).chain(handles).chain(nodes).sum()
    }

    /// What [`Report::lost_total`] is made of, by reason: those of edges and handles, and those that nodes give. A reason of a node that
    /// lost nothing by it is there with 0.
    pub fn losses(&self) -> BTreeMap<&str, u64> {
        let mut losses = BTreeMap::new();
        let mut add = |reason, n: u64| *losses.entry(reason).or_default() += n;
        for edge in &self.edges {
            let lost = edge.lost.iter().filter(|(reason, _)| !edge.is_thinned(*reason));
            lost.for_each(|(reason, n)| add(reason.name(), *n));
        }
        for handle in self.handles.iter().filter(|handle| handle.way != HandleKind::Past) {
            let lost = handle.lost.iter().filter(|(reason, _)| *reason != Reason::Superseded);
            lost.for_each(|(reason, n)| add(reason.name(), *n));
        }
        for node in &self.nodes {
            node.metrics.may_lose().for_each(|(reason, n)| add(reason, n));
        }
        losses
    }

    /// Messages let go on purpose, counted as in [`Report::lost_total`].
    pub fn thinned_total(&self) -> u64 {
        let handles = self.handles.iter().filter(|h| h.way != HandleKind::Past).map(HandleReport::thinned_total);
        let nodes = self.nodes.iter().map(NodeReport::thinned_total);
        self.edges.iter().map(EdgeReport::thinned_total).chain(handles).chain(nodes).sum()
    }

    /// The exit code of a program that only ran this graph: 0 done, 1 a node failed, 3 a law is broken, 70 the stop's
    /// deadline passed.
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

    /// A figure by its name in `--fail-on` expressions: a node's own (`score.accuracy`, or `accuracy` where only one
    /// node has it), `lost`, those of one reason (`lost.overrun`), `thinned`, `left`, `failed`, `missed` (deadlines), `over_budget`
    /// (calls), `gaps` (of inputs), `restarts` (of nodes). Of a reason that nothing in the graph can lose by there is no figure.
    pub fn metric(&self, name: &str) -> Option<f64> {
        match name {
            "lost" | "drops" => return Some(self.lost_total() as f64),
            "thinned" => return Some(self.thinned_total() as f64),
            "missed" => return Some(self.deadlines.iter().map(|d| d.missed).sum::<u64>() as f64),
            "over_budget" => return Some(self.nodes.iter().map(|n| n.over_budget).sum::<u64>() as f64),
            "restarts" => return Some(self.nodes.iter().map(|n| n.restarts).sum::<u64>() as f64),
            "gaps" => return Some(self.nodes.iter().map(|n| n.gaps).sum::<u64>() as f64),
            "left" => return Some(self.edges.iter().map(|e| e.left).sum::<u64>() as f64),
            "failed" => return Some(self.failed_calls as f64),
            _ => {}
        }
        if name.contains('.') {
            // Nodes of a subgraph have dots in their names.
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

    /// Messages lost for a reason, where there is something that could lose by it.
    fn lost_by(&self, reason: &str) -> Option<f64> {
        let lost = self.losses().get(reason).copied();
        let is_known = Reason::ALL.iter().any(|known| known.name() == reason);
        lost.or(is_known.then_some(0)).map(|n| n as f64)
    }

    /// What one node did.
    pub fn node(&self, name: &str) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// What was recorded of a node's term.
    pub fn histogram(&self, node: &str, term: Term) -> Option<&Recorded> {
        let mut all = self.histograms.iter();
        all.find(|h| h.node == node && h.to.is_none() && h.term == term).map(|h| &h.recorded)
    }

    /// End-to-end latencies as (source, sink, what was recorded).
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        self.of_paths(Term::EndToEnd)
    }

    /// How old messages were at a sink that had been in others before, which a join sampled, as (source, sink, what was
    /// recorded). Their latency was that of the message they were in first.
    pub fn ages(&self) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        self.of_paths(Term::Age)
    }

    fn of_paths(&self, term: Term) -> impl Iterator<Item = (&str, &str, &Recorded)> {
        let paths = self.histograms.iter().filter(move |h| h.term == term);
        paths.filter_map(|h| Some((h.node.as_str(), h.to.as_deref()?, &h.recorded)))
    }

    /// Checks both laws; what does not add up is a bug of the engine.
    pub(crate) fn check_laws(&mut self) {
        for edge in self.edges.iter().filter(|e| e.counted) {
            let EdgeReport { from, to, sent, received, left, .. } = edge;
            let (lost, thinned) = (edge.lost_total(), edge.thinned_total());
            if *sent != received + lost + thinned + left {
                self.bugs.push(format!(
                    "edge {from} -> {to}: sent {sent} is not received {received} + lost {lost} + thinned {thinned} + left {left}"
                ));
            }
            let drained = matches!(self.outcome, Outcome::Finished | Outcome::Stopped);
            if drained && edge.left > 0 {
                self.bugs.push(format!("edge {} -> {}: {} left after a drained run", edge.from, edge.to, edge.left));
            }
        }
        for handle in self.handles.iter().filter(|h| h.counted) {
            let HandleReport { name, way, sent, received, left, .. } = handle;
            let (lost, thinned) = (handle.lost_total(), handle.thinned_total());
            if *sent != received + lost + thinned + left {
                let way = way.name();
                self.bugs.push(format!(
                    "{way} {name}: sent {sent} is not received {received} + lost {lost} + thinned {thinned} + left {left}"
                ));
            }
        }
        for node in self.nodes.iter().filter(|n| !n.abandoned) {
            if node.taken != node.done + node.failed + node.held {
                self.bugs.push(format!(
                    "node {}: taken {} is not done {} + failed {} + held {}",
                    node.name, node.taken, node.done, node.failed, node.held
                ));
            }
        }
    }
}
